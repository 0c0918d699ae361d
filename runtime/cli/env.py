"""``plait env`` and ``plait version``: what a bug report needs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import store

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "msgspec", "pyzmq", "fastapi", "uvicorn", "triton")
_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")
_ASK_TORCH = """
import torch
found = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
print(", ".join(found) or "cpu")
"""


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def show() -> None:
    for name, value in facts():
        print(f"{name + ':':<16}{value}")


def facts() -> list[tuple[str, str]]:
    packages = [
        f"{name} {version_of(name) or '(missing)'}" for name in _PACKAGES if name != "triton" or version_of(name)
    ]
    return [
        ("plait", version_of("plait") or "not installed"),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("packages", ", ".join(packages)),
        ("cpu", _cpu()),
        ("memory", _memory()),
        ("device", _device()),
        ("native kernels", _native()),
        ("models", f"{store.models_folder()} ({len(store.stored())} stored)"),
        ("backend", os.environ.get("PLAIT_BACKEND") or "none ($PLAIT_BACKEND is not set)"),
    ]


def _cpu() -> str:
    name, flags = platform.processor() or platform.machine(), set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    except OSError:
        return f"{name}, {os.cpu_count()} cores"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {usable} cores, {' '.join(flag for flag in _FLAGS if flag in flags) or 'no vector flags known'}"


def _memory() -> str:
    page = os.sysconf("SC_PAGE_SIZE")
    return (
        f"{page * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB, {page * os.sysconf('SC_AVPHYS_PAGES') / 1e9:.1f} GB free"
    )


def _device() -> str:
    """Asked in a child: torch takes seconds to import, and its drivers may do worse than raise."""
    if version_of("torch") is None:
        return "none: torch is missing"
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _ASK_TORCH], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "unknown: torch did not answer within two minutes"
    return child.stdout.strip() or f"unknown: {child.stderr.strip().splitlines()[-1:] or 'torch said nothing'}"


def _native() -> str:
    from ...native.loader import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library = load()
    if library is not None:
        return f"loaded ({library._name})"
    why = "; ".join(str(warning.message) for warning in caught)
    return f"not available, the reference is used ({why or 'no reason given'})"
