"""Other engines behind the protocol of :mod:`..interface`: outlines-core, llguidance and xgrammar, where installed.

::

    backends.load("llguidance", spec, vocabulary, key) -> Constraint
    backends.verdict("llguidance", spec)                  the same over single bytes, to be asked in the compiler child

``spec`` is the plain data that every constraint travels in (:mod:`..spec`). What a library cannot say is refused by
name with :class:`~..interface.ConstraintError`; what it says differently from this project is listed in
docs/constraints.md and held in tests/test_constraint_backends.py.

The libraries build without limits and in this process. The compiler child asks first, so a specification that makes a
library crash or exceed the child's bounds is refused; but the core builds again, over the model's whole vocabulary, and
what a library does there (time, memory, a crash) is its own. The default engine has none of these risks.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..interface import Constraint, ConstraintError

if TYPE_CHECKING:
    from ..vocabulary import Vocabulary

#: name -> (module of the library, what to install)
_LIBRARIES = {
    "outlines": ("outlines_core", "plait[outlines]"),
    "llguidance": ("llguidance", "plait[llguidance]"),
    "xgrammar": ("xgrammar", "plait[xgrammar]"),
}
#: every value of ``constraint_backend``
NAMES = ("plait", *_LIBRARIES)


def installed() -> tuple[str, ...]:
    """The libraries that can be imported here."""
    return tuple(name for name, (module, _) in _LIBRARIES.items() if importlib.util.find_spec(module) is not None)


def check_name(name: str) -> None:
    """Raises ConstraintError if ``name`` is no backend, or one whose library is missing."""
    if name not in NAMES:
        raise ConstraintError(f"constraint_backend={name!r} is not known (known: {', '.join(NAMES)})")
    if name != "plait" and name not in installed():
        module, extra = _LIBRARIES[name]
        raise ConstraintError(
            f"constraint_backend={name!r} needs the package {module}, which is not installed: pip install '{extra}'"
        )


def load(name: str, spec: Mapping[str, Any], vocabulary: Vocabulary, key: str) -> Constraint:
    """``spec`` compiled by the library ``name``. Raises ConstraintError: no such library, not installed, refused."""
    if name == "plait":
        raise ValueError("the default engine is loaded by constrained.compiler")
    check_name(name)
    build: Callable[[Mapping[str, Any], Vocabulary, str], Constraint]
    if name == "outlines":
        from .outlines import build
    elif name == "llguidance":
        from .llguidance import build
    else:
        from .xgrammar import build
    try:
        return build(spec, vocabulary, key)
    except ConstraintError as error:
        raise ConstraintError(f"constraint_backend={name!r}: {error}") from error
    except (ValueError, TypeError, RuntimeError, KeyError, RecursionError, NotImplementedError) as error:
        # each library has its own exceptions for a refusal; none of them may end the core
        raise ConstraintError(f"constraint_backend={name!r} refuses it: {_one_line(error)}") from error


def preload(name: str) -> None:
    """Import the library ``name``, which takes seconds for some. What is wrong is said when it is used."""
    if name in _LIBRARIES:
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module(_LIBRARIES[name][0])


def verdict(name: str, spec: Mapping[str, Any]) -> None:
    """Raises the ConstraintError that :func:`load` would raise for the specification itself, over any vocabulary."""
    from ..vocabulary import single_bytes

    load(name, spec, single_bytes(), "")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else text[:397] + "..."
