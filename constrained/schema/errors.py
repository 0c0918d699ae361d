"""What is wrong with a schema, said once: a keyword, where it stands, and a sentence with the fix in it."""

from __future__ import annotations

from typing import NamedTuple

from ..interface import ConstraintError

#: characters of a pointer in a sentence
_LONGEST = 160


class Problem(NamedTuple):
    """``pointer``: the schema that holds ``keyword``, as ``#/properties/a`` or ``http://example.com/x#/items``."""

    keyword: str
    pointer: str
    message: str

    def __str__(self) -> str:
        where = self.pointer
        if len(where) > _LONGEST:
            where = f"{where[: _LONGEST // 2]} ... {where[-_LONGEST // 2 :]}"
        return f"{self.keyword!r} at {where}: {self.message}" if self.keyword else f"{where}: {self.message}"


class SchemaError(ConstraintError):
    """A schema that is not one: a keyword's value of the wrong kind, a reference that leads nowhere, a bound passed."""

    def __init__(self, keyword: str, pointer: str, message: str) -> None:
        self.problem = Problem(keyword, pointer, message)
        super().__init__(f"JSON Schema: {self.problem}")


class Unsupported(SchemaError):
    """A right schema with an assertion that cannot be kept exactly. ``strict=False`` drops it and says so."""
