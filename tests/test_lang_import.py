"""``import plait`` loads the language and nothing heavy."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_importing_plait_loads_nothing_heavy() -> None:
    heavy = "torch transformers numpy numba zmq tokenizers tqdm fastapi rich jinja2"
    code = f"import sys, plait; print([name for name in '{heavy}'.split() if name in sys.modules])"
    assert run(code) == "[]"


def test_a_star_import_is_light_too_and_has_the_words() -> None:
    code = "import sys\nfrom plait import *\ngen, select, function, system\nprint('numpy' in sys.modules)"
    assert run(code) == "False"


def test_every_public_name_is_there() -> None:
    code = "import plait; print([n for n in plait.__all__ if not hasattr(plait, n)], 'Runtime' in dir(plait))"
    assert run(code) == "[] True"


def test_what_completion_offers_is_public() -> None:
    code = (
        "import plait; "
        "print({n for n in dir(plait) if n[0] != '_'} - {*plait.__all__, 'Runtime', 'connect'}, "
        "'__version__' in dir(plait))"
    )
    assert run(code) == "set() True"


def test_programs_can_be_written_without_a_backend() -> None:
    code = (
        "import plait\n"
        "@plait.function\n"
        "def program(s):\n"
        "    s += plait.gen('x', regex='a+')\n"
        "print(program.bind(), 'torch' in __import__('sys').modules)"
    )
    assert run(code) == "<plait.function program> False"
