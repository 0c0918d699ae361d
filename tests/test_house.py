"""The house rules that a machine can hold: which room imports which, what is never imported, what is packaged."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("plait", "lang", "radix", "constrained", "runtime", "native", "examples")

#: room -> what it may import of the other rooms ("runtime.protocol" allows that module only)
ARROWS = {
    "plait": {"lang", "runtime"},
    "lang": {"runtime.protocol", "runtime.errors", "runtime.backend"},
    "radix": set(),
    "constrained": {"native"},
    "runtime": {"radix", "constrained", "native", "examples"},
    "native": set(),
    "examples": {"plait"},
}
NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "multiprocessing"}
NO_TORCH = (
    "plait",
    "lang",
    "radix",
    "constrained",
    "native",
    "examples",
    "runtime/front",
    "runtime/server",
    "runtime/cli",
)


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def imports(path: Path, top_level_only: bool = False) -> Iterator[tuple[str, ...]]:
    """Absolute dotted names below ``plait`` (as ("lang", "errors")) or of other packages (as ("torch",))."""
    package = path.relative_to(ROOT).parent.parts
    if package[:1] == ("plait",):
        package = package[1:]
    tree = ast.parse(path.read_text("utf-8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1] if node.level > 1 else package
                name = (*base, *(node.module.split(".") if node.module else ()))
                if node.module:
                    yield ("plait", *name)
                else:
                    for alias in node.names:
                        yield ("plait", *name, alias.name)
            elif node.module:
                yield tuple(node.module.split("."))


def test_rooms_import_one_way() -> None:
    wrong = []
    for path in sources(*ROOMS):
        room = path.relative_to(ROOT).parts[0]
        for name in imports(path):
            if name[0] != "plait" or len(name) < 2:
                continue
            target = name[1]
            if target == room or target not in ROOMS:
                continue
            allowed = ARROWS[room]
            if target not in allowed and ".".join(name[1:3]) not in allowed and room != "examples":
                wrong.append(f"{path.relative_to(ROOT)}: {'.'.join(name)}")
    assert not wrong, "imports against the arrows of docs/architecture.md:\n" + "\n".join(wrong)


def test_no_pickle_anywhere() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {'.'.join(name)}"
        for path in sources(*ROOMS, "benchmarks")
        for name in imports(path)
        if name[0] in NEVER
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("call", ["eval", "exec"])
def test_no_dynamic_code(call: str) -> None:
    wrong = []
    for path in sources(*ROOMS):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "zmq.Socket.recv_pyobj"}:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            if isinstance(node, ast.Attribute) and node.attr in {"recv_pyobj", "send_pyobj"}:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, wrong


def test_rooms_without_torch() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {'.'.join(name)}"
        for path in sources(*NO_TORCH)
        for name in imports(path)
        if name[0] in {"torch", "transformers", "numba"}
    ]
    assert not wrong, wrong


def test_packages_match_the_folders() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    found = set()
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            found.add(".".join(parts if parts[0] == "plait" else ("plait", *parts)))
    assert set(config["packages"]) == found
    assert set(config["package-dir"]) == {"plait", *(f"plait.{room}" for room in ROOMS[1:])}
    assert not (ROOT / "__init__.py").exists()


def test_import_plait_is_light(tmp_path: Path) -> None:
    code = (
        "import sys, plait; plait.gen, plait.function, plait.select;"
        "heavy = {'torch', 'transformers', 'numba', 'numpy', 'fastapi', 'tokenizers'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60)
