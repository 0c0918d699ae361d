"""Which programs in a class take its instance."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from .state import State


def is_method(parameters: Sequence[inspect.Parameter]) -> bool:
    """Whether a function in a class takes the instance, and the state after it: its first parameter is called self or
    cls, or the state is said to be the second, by its type or its usual names."""
    first, second = parameters[0], parameters[1] if len(parameters) > 1 else None
    if first.name in ("self", "cls"):
        return True
    return second is not None and _is_state(second) and not _is_state(first)


def _is_state(parameter: inspect.Parameter) -> bool:
    note = parameter.annotation
    return (
        note is State or (isinstance(note, str) and note.split(".")[-1] == "State") or parameter.name in ("s", "state")
    )
