"""What a name of a program stands for."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.errors import ForkError, GenerationError, InvalidValue
from ..runtime.protocol import Done
from .expr import Expr, ExprList, Literal, RefExpr
from .forms import Form
from .outcome import Outcome, Piece, joined
from .result import Result
from .waiting import Read

if TYPE_CHECKING:
    from .program import Program


class Variable(ABC):
    """A named value, perhaps still to come. Each method is a read: it waits for what it needs."""

    @abstractmethod
    def result(self) -> Read[Any]:
        """A :class:`Result`, or a list of them where the variable is a list. Failures stand inside, as ``error``."""

    def value(self) -> Read[Any]:
        """The value; raises what failed."""
        result: Result = yield from self.result()
        if result.error is not None:
            raise result.error
        return result.value

    def stream(self) -> Read[None]:
        """Its text, piece by piece."""
        result: Result = yield from self.result()
        if result.error is not None:
            raise result.error
        yield result.text

    @abstractmethod
    def reference(self) -> Expr:
        """Its text as an expression, without waiting for it."""

    @abstractmethod
    def failed(self) -> bool:
        """Whether reading the value is known to raise. Never waits: what is still to come has not failed."""


class SetVariable(Variable):
    """``s[name] = value``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Read[Any]:
        yield from ()  # a read, like its siblings; it never waits
        return Result(value=self._value, text=str(self._value))

    def reference(self) -> Expr:
        return Literal(str(self._value))

    def failed(self) -> bool:
        return False


class OpVariable(Variable):
    """What a gen or a select produces."""

    def __init__(
        self,
        program: Program,
        outcome: Outcome,
        strand: int,
        op: int,
        form: Form | None = None,
        choices: Sequence[str] = (),
    ) -> None:
        self._choices = choices
        self._program = program
        self.outcome = outcome
        self._strand = strand
        self._op = op
        self._form = form
        self._lock = threading.RLock()
        self._results: list[Result] | None = None
        self._values: list[Any] = []

    def result(self) -> Read[Any]:
        yield from self.outcome.until_finished()
        results = self._made()
        return results[0] if len(results) == 1 else results

    def _made(self) -> list[Result]:
        """Of each choice, made once: what a reader changes in a value lasts, and a type's own code runs once. The op
        must be over."""
        with self._lock:
            if self._results is None:
                self._results = [self._choice(choice) for choice in range(len(self.outcome.texts))]
                self._values = [result.value for result in self._results]
            return self._results

    def _choice(self, choice: int) -> Result:
        done, error = self.outcome.dones[choice], self.outcome.errors[choice]
        text, prompt = self.outcome.texts[choice], self.outcome.prompt
        if done is None:
            return Result(text=text, error=error)
        logprobs, scored = done.logprobs, done.choice_logprobs
        if scored is not None and done.winner is not None:
            logprobs = scored[done.winner]
        value: Any = text
        if self._form is not None:
            value, error = self._read(self._form, text, done)
        return Result(
            value=value,
            text=text,
            tokens=done.ids,
            logprobs=logprobs,
            finish_reason=done.reason,
            matched=done.matched,
            usage=done.usage,
            seed=done.seed,
            error=error,
            partial=done.partial,
            notes=done.notes if self._form is None else (*done.notes, *self._form.notes),
            scores=done.scores,
            choice_logprobs=None if scored is None else dict(zip(self._choices, scored, strict=True)),
            prompt_logprobs=None if prompt is None else tuple(prompt),
            next_top=done.next_top,
        )

    def _read(self, form: Form, text: str, done: Done) -> tuple[Any, GenerationError | None]:
        """The value, and why there is none. What was cut short is worth what ``form.partial`` makes of it; a whole
        text is a value of its type, whatever ended it, or none."""
        if done.partial:
            return form.partial(text), None
        try:
            return form.value(text), None
        except Exception as problem:  # of the type's own code: a validator, a __post_init__, a schema= callable
            if done.reason == "abort":  # nobody may have been left to tell whether it is whole
                return form.partial(text), None
            error = GenerationError(f"{self.outcome.label} is not {form.name}: {problem}", field=form.kind)
            error.__cause__ = problem
            return None, error

    def value(self) -> Read[Any]:
        yield from self.outcome.until_finished()
        results = self._made()
        for result in results:
            if result.error is not None:
                raise result.error
        return results[0].value if len(results) == 1 else self._values

    def stream(self) -> Read[None]:
        yield from self.outcome.stream()

    def reference(self) -> Expr:
        return RefExpr(self._program, self.outcome, self._strand, self._op, 0)

    def failed(self) -> bool:
        if self.outcome.error is not None or not self.outcome.finished:
            return self.outcome.error is not None
        if self._form is None:
            return False
        return any(result.error is not None for result in self._made())


class ScopeVariable(Variable):
    """The text between the marks of ``with s.var_scope(name)``."""

    def __init__(self, name: str, pieces: Sequence[Piece], references: Mapping[Outcome, RefExpr]) -> None:
        self._name = name
        self._pieces = tuple(pieces)
        self._to = references

    def result(self) -> Read[Any]:
        try:
            text = yield from joined(self._pieces)
        except Exception as error:
            # Not swallowed: whoever reads the value gets it raised.
            return Result(error=error)
        return Result(value=text, text=text)

    def stream(self) -> Read[None]:
        for piece in self._pieces:
            yield from piece.stream()

    def reference(self) -> Expr:
        return ExprList(tuple(self._references()))

    def failed(self) -> bool:
        return any(piece.outcome is not None and piece.outcome.errors[piece.choice] for piece in self._pieces)

    def _references(self) -> Iterator[Expr]:
        for piece in self._pieces:
            if piece.mark is not None:
                raise InvalidValue(f"{self._name!r} holds role marks and cannot be referred to; use its value", "name")
            if piece.outcome is None:
                yield Literal(piece.text)
            else:
                yield self._to[piece.outcome]


class JoinedVariable(Variable):
    """What the branches of a fork call by one name, in branch order; None where a branch has no such name."""

    def __init__(self, name: str, branches: Sequence[Variable | None]) -> None:
        self._name = name
        self._branches = tuple(branches)
        self._lock = threading.Lock()
        self._values: list[Any] | None = None  # made once, as those of the branches are

    def result(self) -> Read[Any]:
        results: list[Any] = []
        for branch in self._branches:
            results.append(None if branch is None else (yield from branch.result()))
        return results

    def value(self) -> Read[Any]:
        values: list[Any] = []
        errors: dict[int, Exception] = {}
        for index, branch in enumerate(self._branches):
            try:
                values.append(None if branch is None else (yield from branch.value()))
            except Exception as error:
                errors[index] = error
        if errors:
            raise fork_error(f"{self._name!r}", errors)
        with self._lock:
            if self._values is None:
                self._values = values
            return self._values

    def failed(self) -> bool:
        return any(branch is not None and branch.failed() for branch in self._branches)

    def stream(self) -> Read[None]:
        yield from ()  # a read, like its siblings
        raise InvalidValue(f"{self._name!r} is a list; iterate over the text of one branch", "name")

    def reference(self) -> Expr:
        raise InvalidValue(f"{self._name!r} is a list; refer to one branch: forks[i].ref({self._name!r})", "name")


def fork_error(what: str, errors: dict[int, Exception]) -> ForkError:
    listed = "; ".join(f"branch {index}: {type(error).__name__}: {error}" for index, error in errors.items())
    error = ForkError(f"{what} failed in {len(errors)} branch{'es' if len(errors) > 1 else ''}: {listed}", errors)
    error.__cause__ = next(iter(errors.values()))
    return error
