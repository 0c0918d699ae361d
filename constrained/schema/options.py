"""How a schema is read and how its instances are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ..interface import ConstraintError
from .errors import Problem, Unsupported

DRAFTS = ("2020-12", "2019-09", "7", "6", "4")
AUTO = "auto"
WHITESPACE = (AUTO, "single", "compact", "spaced")
#: spaces of one level of indentation, at most
MAX_INDENT = 16


@dataclass(slots=True)
class SchemaOptions:
    """One compilation's options, and the place where what it relaxed is written down.

    draft: which draft a schema without ``$schema`` is in.
    format: "assert": ``format`` limits strings, for the names that :mod:`..regular.formats` knows; "annotate": it is
        an annotation everywhere (a metaschema with the format-assertion vocabulary still asserts).
    strict: refuse what cannot be kept exactly. False: drop that assertion and report it in :attr:`relaxed`.
    any_order: keys may come in any order; else in the order in which ``properties`` declares them, others after them.
    undeclared: False: beside declared keys none are written that no keyword speaks of, as if ``additionalProperties``
        were false there. Models that are sampled hot go on for long in such keys, and few readers want them.
    whitespace: "auto": compact, spaced, or indented by 1 to 8 columns or a tab, as the text itself begins (see
        :mod:`.undecided`); "compact": none; "single": at most one optional space after ``:`` and ``,``; "spaced":
        exactly one; an int: newline and that many spaces of indentation per level.
    openapi: read OpenAPI 3.0's ``nullable: true`` beside ``type`` as "or null". Else it is an annotation, which never
        allows more than the schema says.
    """

    draft: str = "2020-12"
    format: Literal["assert", "annotate"] = "assert"
    strict: bool = True
    any_order: bool = False
    undeclared: bool = True
    whitespace: str | int = AUTO
    openapi: bool = False
    #: levels of schema inside schema, at most
    max_depth: int = 256
    #: schema objects reached from one root, at most
    max_schemas: int = 100_000
    #: bytes of one document as JSON, at most
    max_bytes: int = 16 * 1024 * 1024
    relaxed: list[Problem] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if self.draft not in DRAFTS:
            raise ConstraintError(f"draft {self.draft!r} is not known (known: {', '.join(DRAFTS)})")
        if self.format not in ("assert", "annotate"):
            raise ConstraintError(f"format={self.format!r}: write 'assert' or 'annotate'")
        space = self.whitespace
        if isinstance(space, bool) or not (
            0 <= space <= MAX_INDENT if isinstance(space, int) else isinstance(space, str) and space in WHITESPACE
        ):
            raise ConstraintError(
                f"whitespace={space!r}: write {', '.join(map(repr, WHITESPACE))} or 0 to {MAX_INDENT} spaces of "
                "indentation"
            )
        for name, value in (
            ("strict", self.strict),
            ("any_order", self.any_order),
            ("undeclared", self.undeclared),
            ("openapi", self.openapi),
        ):
            if not isinstance(value, bool):
                raise ConstraintError(f"{name}={value!r}: write true or false")

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> SchemaOptions:
        """From plain data. Raises ConstraintError for a name or a value that is not known."""
        for name in data:
            if name not in _GIVEN:
                raise ConstraintError(f"schema option {name!r} is not known (known: {', '.join(_GIVEN)})")
        return cls(**data)

    def relax(self, problem: Problem) -> bool:
        """Whether this assertion may be dropped; if so it is recorded, once."""
        if self.strict:
            return False
        if problem not in self.relaxed:
            self.relaxed.append(problem)
        return True

    def unsupported(self, keyword: str, pointer: str, message: str) -> None:
        """Come back if the assertion may be dropped; else raise :class:`.errors.Unsupported`."""
        if not self.relax(Problem(keyword, pointer, message)):
            raise Unsupported(keyword, pointer, message)


#: options that are given from outside
_GIVEN = tuple(
    sorted(one.name for one in fields(SchemaOptions) if not one.name.startswith("max_") and one.name != "relaxed")
)
