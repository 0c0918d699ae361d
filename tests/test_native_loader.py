"""The native library is found, built once, or done without; a build that dies leaves nothing behind that matters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from plait.native import loader

TINY = 'extern "C" int plait_answer() { return %d; }\n'

needs_compiler = pytest.mark.skipif(loader.find_compiler() is None, reason="there is no C++ compiler here")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PLAIT_NATIVE", raising=False)
    return tmp_path / "cache" / "plait" / "native"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "tiny.cpp").write_text(TINY % 42)
    return folder


def refuse_to_build(*_: object) -> None:
    raise AssertionError("nothing needed building")


@needs_compiler
def test_built_once_then_taken_from_the_cache(cache: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = loader.find(sources)
    assert library is not None
    assert library.plait_answer() == 42
    assert [path.name for path in cache.glob("*/*")] == [loader.LIBRARY]
    monkeypatch.setattr(loader, "build", refuse_to_build)
    again = loader.find(sources)
    assert again is not None
    assert again.plait_answer() == 42


@needs_compiler
def test_changed_source_is_built_anew(cache: Path, sources: Path) -> None:
    assert loader.find(sources) is not None
    (sources / "tiny.cpp").write_text(TINY % 43)
    library = loader.find(sources)
    assert library is not None
    assert library.plait_answer() == 43
    assert len(list(cache.glob(f"*/{loader.LIBRARY}"))) == 2


def test_key_covers_sources_and_headers(sources: Path) -> None:
    keys = {loader.source_key(sources)}
    (sources / "more.h").write_text("// one\n")
    keys.add(loader.source_key(sources))
    (sources / "more.h").write_text("// two\n")
    keys.add(loader.source_key(sources))
    assert len(keys) == 3


@needs_compiler
def test_cache_is_bounded(cache: Path, sources: Path) -> None:
    for n in range(12):
        (cache / f"old{n}").mkdir(parents=True)
        os.utime(cache / f"old{n}", (n, n))
    assert loader.find(sources) is not None
    left = {path.name for path in cache.iterdir()}
    assert len(left) == 8
    assert "old11" in left
    assert "old0" not in left


@needs_compiler
def test_damaged_library_is_built_again(cache: Path, sources: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader.ctypes, "CDLL", lambda path: path)  # do not map the file that is overwritten below
        assert loader.find(sources) is not None
    (made,) = cache.glob(f"*/{loader.LIBRARY}")
    made.write_bytes(b"not a library")
    library = loader.find(sources)
    assert library is not None
    assert library.plait_answer() == 42


@needs_compiler
def test_killed_build_does_not_break_the_next(cache: Path, sources: Path, tmp_path: Path) -> None:
    """A compiler that has written half its output when the whole process group is killed."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    slow = tmp_path / "slow-c++"
    slow.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then exec {loader.find_compiler()} --version; fi
for last; do :; done
echo half > "$last"
echo > {ready}
exec sleep 600
"""
    )
    slow.chmod(0o755)
    code = f"from pathlib import Path; from plait.native import loader; loader.find(Path({str(sources)!r}))"
    building = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "CXX": str(slow)}, start_new_session=True
    )
    with ready.open() as signalled:
        signalled.readline()
    os.killpg(building.pid, signal.SIGKILL)
    building.wait(timeout=30)
    assert len(list(cache.glob("*/.*.part"))) == 1
    assert not list(cache.glob(f"*/{loader.LIBRARY}"))

    library = loader.find(sources)
    assert library is not None
    assert library.plait_answer() == 42


@needs_compiler
def test_leftovers_of_killed_builds_are_swept_later(cache: Path, sources: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader.ctypes, "CDLL", lambda path: path)
        assert loader.find(sources) is not None
    (made,) = cache.glob(f"*/{loader.LIBRARY}")
    old, young = made.parent / ".old.part", made.parent / ".young.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (1, 1))
    made.unlink()
    assert loader.find(sources) is not None
    assert not old.exists()
    assert young.exists()


def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CXX", raising=False)


def test_without_compiler_one_warning_then_the_reference(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_compiler(monkeypatch, tmp_path)
    monkeypatch.setattr(loader, "_loaded", {})
    monkeypatch.setattr(loader, "PREBUILT", "nothing")
    with pytest.warns(RuntimeWarning, match=r"no C\+\+ compiler.*Install") as caught:
        assert loader.load() is None
        assert loader.load() is None
    assert len(caught) == 1

    from plait.runtime.kernels import select

    assert select("cpu").name == "reference"


def test_compiler_that_fails_is_quoted(
    cache: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-c++"
    broken.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo 1; exit 0; fi\necho "no such header" >&2; exit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.warns(RuntimeWarning, match="no such header"):
        assert loader.find(sources) is None
    assert not list(cache.glob("*/*"))


def test_unwritable_cache_is_a_warning(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if loader.find_compiler() is None:
        pytest.skip("there is no C++ compiler here")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="without its native kernels"):
        assert loader.find(sources) is None


def test_switched_off_without_a_word(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_NATIVE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loader.find(sources) is None


@needs_compiler
@pytest.mark.parametrize("field", [None, "cpu", "sources"])
def test_prebuilt_is_used_only_under_its_key(
    field: str | None, cache: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = loader.find_compiler()
    assert compiler is not None
    folder = sources / loader.PREBUILT
    loader.build(folder / loader.LIBRARY, compiler, sources)
    record = {"sources": loader.source_key(sources), "cpu": loader.cpu_key(), "compiler": "any"}
    if field is not None:
        record[field] = "another"
    (folder / "key.json").write_text(json.dumps(record))
    if field is None:
        monkeypatch.setattr(loader, "build", refuse_to_build)
    library = loader.find(sources)
    assert library is not None
    assert library.plait_answer() == 42
    assert bool(list(cache.glob("*/*"))) == (field is not None)
