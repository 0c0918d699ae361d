"""One shared library out of every ``native/*.cpp``: found, or built once into the user's cache, or done without.

::

    built into the wheel, same sources, same CPU? ── yes ──> loaded
    in the cache under the key?                   ── yes ──> loaded
    a C++ compiler?  ── yes ──> built beside its final name, moved there in one step, loaded
    else one RuntimeWarning, and load() gives None: callers use their numpy or torch code

The key is the sources, the compiler's version and the CPU's flags (the code is built for this very CPU). A build that
is killed leaves a file under a name of its own, never a lock and never a broken library. Each user of the library
declares the argument types of the functions it calls.

The library keeps threads of its own: it must not be used in a child of ``os.fork`` while a job ran in the parent.
Set ``PLAIT_NATIVE=0`` to go without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path

_HERE = Path(__file__).parent
PREBUILT = "prebuilt"  # folder beside the sources that setup.py fills
LIBRARY = "libplait_native.so"
_BUILD_TIMEOUT = 300.0  # seconds
_STALE = 3600.0  # seconds after which the file of a killed build is swept away
_KEPT = 8  # libraries in the cache

_lock = threading.Lock()
_loaded: dict[str, ctypes.CDLL | None] = {}


def load() -> ctypes.CDLL | None:
    """The library, or None (after one RuntimeWarning per process) where it cannot be had. Raises nothing."""
    with _lock:
        if "library" not in _loaded:
            _loaded["library"] = find(_HERE)
        return _loaded["library"]


def sources(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.cpp"), *folder.glob("*.h")])


def source_key(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sources(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def cpu_key() -> str:
    """Two CPUs with one key run each other's ``-march=native`` code."""
    flags = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features", "isa"):
                flags = " ".join(sorted(value.split()))
                break
    return hashlib.sha256(f"{platform.system()} {platform.machine()} {flags}".encode()).hexdigest()[:24]


def find_compiler() -> str | None:
    wanted = os.environ.get("CXX", "").split()
    for name in [*wanted[:1], "c++", "g++", "clang++"]:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def compiler_version(compiler: str) -> str:
    """Raises OSError or subprocess.SubprocessError if it does not run."""
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30, check=True)
    return answer.stdout.strip()


def flags() -> list[str]:
    native = "-march=native" if platform.machine().lower() in ("x86_64", "amd64", "i686") else "-mcpu=native"
    # GCC 12's own AVX-512 headers trip -Wuninitialized; -w keeps a failed build's message short enough to read.
    return [native, "-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-w"]


def build(target: Path, compiler: str, folder: Path = _HERE) -> None:
    """Compile to ``target`` in one step. Raises RuntimeError with the compiler's words, or OSError."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        inputs = [str(path) for path in sources(folder) if path.suffix == ".cpp"]
        command = [compiler, *flags(), *inputs, "-o", str(part)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT, check=False)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{compiler} did not finish within {_BUILD_TIMEOUT:.0f} s") from error
        if done.returncode != 0:
            raise RuntimeError(f"{compiler} failed: {done.stderr.strip()[-600:] or done.returncode}")
        part.chmod(0o755)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "plait" / "native"


def write_prebuilt_record(folder: Path, compiler: str) -> None:
    """What :func:`load` holds a library inside a wheel against. Called by setup.py."""
    record = {"sources": source_key(_HERE), "cpu": cpu_key(), "compiler": compiler_version(compiler)}
    (folder / "key.json").write_text(json.dumps(record), encoding="utf-8")


def find(folder: Path) -> ctypes.CDLL | None:
    """The library of the sources in ``folder``, by the ways drawn above; None after a RuntimeWarning."""
    if os.environ.get("PLAIT_NATIVE", "1").lower() in ("0", "off", "no", "false"):
        return None
    library = _prebuilt(folder)
    if library is not None:
        return library
    compiler = find_compiler()
    if compiler is None:
        _warn("there is no C++ compiler (looked for $CXX, c++, g++ and clang++)")
        return None
    try:
        return _cached(folder, compiler)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        _warn(str(error))
        return None


def _prebuilt(folder: Path) -> ctypes.CDLL | None:
    try:
        record = json.loads((folder / PREBUILT / "key.json").read_text(encoding="utf-8"))
        if record.get("sources") == source_key(folder) and record.get("cpu") == cpu_key():
            return ctypes.CDLL(str(folder / PREBUILT / LIBRARY))
    except (OSError, ValueError, AttributeError):
        return None  # absent or not ours to use: the cache is next
    return None


def _cached(folder: Path, compiler: str) -> ctypes.CDLL:
    text = "\n".join([source_key(folder), cpu_key(), compiler_version(compiler), *flags()])
    home = cache_folder() / hashlib.sha256(text.encode()).hexdigest()[:32]
    target = home / LIBRARY
    if target.exists():
        try:
            return ctypes.CDLL(str(target))
        except OSError:
            target.unlink(missing_ok=True)  # damaged from outside (a full disk, a copied home): build again
    build(target, compiler, folder)
    _sweep(home)
    return ctypes.CDLL(str(target))


def _sweep(folder: Path) -> None:
    """Remove what builds that were killed long ago left, and all but the newest few libraries."""
    with contextlib.suppress(OSError):
        for part in folder.glob(".*.part"):
            if time.time() - part.stat().st_mtime > _STALE:
                part.unlink()
        others = sorted((f for f in folder.parent.iterdir() if f != folder), key=lambda f: f.stat().st_mtime)
        for old in others[: max(0, len(others) - _KEPT + 1)]:
            shutil.rmtree(old, ignore_errors=True)


def _warn(reason: str) -> None:
    warnings.warn(
        f"plait runs without its native kernels, several times slower: {reason}. "
        "Install a C++17 compiler (for instance the package g++), or set CXX to one.",
        RuntimeWarning,
        stacklevel=3,
    )
