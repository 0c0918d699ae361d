"""Builds the native library into the wheel where a C++ compiler exists; everything else is in pyproject.toml.

A build that fails is not an installation that fails: the library is then compiled on first use, or done without.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


def _loader() -> ModuleType:
    """native/loader.py by its path: the package is not installed yet."""
    path = Path(__file__).parent / "native" / "loader.py"
    spec = importlib.util.spec_from_file_location("plait_native_loader", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOADER = _loader()
COMPILER = LOADER.find_compiler()


class BuildWithNative(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode or COMPILER is None:
            return
        folder = Path(self.build_lib) / "plait" / "native" / LOADER.PREBUILT
        try:
            LOADER.build(folder / LOADER.LIBRARY, COMPILER)
            LOADER.write_prebuilt_record(folder, COMPILER)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"plait: the native library is left to first use: {error}", file=sys.stderr)


class PlatformWheel(bdist_wheel):
    """Any Python 3, but one platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = COMPILER is None

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if COMPILER is None else ("py3", "none", platform)


setup(cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel})
