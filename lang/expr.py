"""What a program adds to its state: text, gens, selects, role marks and references, put together with ``+``.

Expressions are immutable descriptions. Adding one to a state makes its ops, so one expression may be added often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..runtime.errors import InvalidValue
from ..runtime.protocol import Method, Role, without_surrogates
from .forms import Form
from .notices import Site
from .outcome import Outcome

if TYPE_CHECKING:
    from .program import Program


class Expr:
    """Base of all expressions."""

    __slots__ = ()

    def __add__(self, other: Expr | str) -> ExprList:
        return ExprList((*parts(self), *parts(as_expr(other))))

    def __radd__(self, other: str) -> ExprList:
        return ExprList((*parts(as_expr(other)), *parts(self)))

    def __format__(self, spec: str) -> str:
        """An f-string would put the repr into the prompt, unseen."""
        raise InvalidValue('an expression cannot stand in an f-string; join it on with +: "Hi " + gen("x")', "expr")


@dataclass(frozen=True, slots=True)
class ExprList(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    text: str


@dataclass(frozen=True, slots=True)
class GenExpr(Expr):
    name: str | None
    options: Mapping[str, Any]  # normalized: only what was given
    form: Form | None
    site: Site

    @property
    def label(self) -> str:
        return "an unnamed gen" if self.name is None else f"gen {self.name!r}"


@dataclass(frozen=True, slots=True)
class SelectExpr(Expr):
    name: str | None
    choices: tuple[str, ...]
    method: Method
    temperature: float
    seed: int | None

    @property
    def label(self) -> str:
        return "an unnamed select" if self.name is None else f"select {self.name!r}"


@dataclass(frozen=True, slots=True)
class RoleBeginExpr(Expr):
    role: Role


@dataclass(frozen=True, slots=True)
class RoleEndExpr(Expr):
    role: Role


@dataclass(frozen=True, slots=True)
class RefExpr(Expr):
    """The text that another op produces, whenever it does; no strand waits in the program for it."""

    program: Program
    outcome: Outcome
    strand: int
    op: int
    choice: int


def parts(expr: Expr) -> tuple[Expr, ...]:
    return expr.items if isinstance(expr, ExprList) else (expr,)


def as_expr(value: object) -> Expr:
    """``value`` as an expression. Raises InvalidValue for anything but a str or an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return Literal(without_surrogates(value))  # what the model will see
    raise InvalidValue(_advice(value), "expr")


def _advice(value: object) -> str:
    """What to write instead of adding ``value``."""
    from .function import Function  # programs and states are made of expressions
    from .state import State

    if isinstance(value, State):
        return (
            "a state cannot be added to a state: a program that is called has a state of its own; add its .text(), "
            "or a value of it"
        )
    if isinstance(value, Function):
        return f"the program {value.name} was added to a state: call it and add its text, {value.name}(...).text()"
    if value is None:
        return "None was added to a state: did a helper function forget to return its text?"
    kind = type(value).__name__
    what = f"only text and expressions can be added to a state, not {kind}"
    if callable(value):
        name = getattr(value, "__name__", kind)
        return f"{name} was added to a state without being called: write {name}(...)"
    if isinstance(value, list | tuple):
        return f'{what}; add one of its items, or "\\n".join(...) of them'
    if isinstance(value, bytes):
        return f"{what}; write .decode() behind it"
    return f"{what}; write str(...) around it"
