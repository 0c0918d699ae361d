"""One growing sequence of a program: turns expressions into ops, and keeps the text and names they make."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.errors import InvalidValue, PlaitError, from_code
from ..runtime.protocol import (
    Close,
    Extend,
    Failed,
    Fork,
    Gen,
    Join,
    Op,
    Role,
    RoleBegin,
    RoleEnd,
    Select,
    Text,
    VarRef,
)
from .expr import Expr, GenExpr, Literal, RefExpr, RoleBeginExpr, RoleEndExpr, SelectExpr, parts
from .notices import caller, say
from .outcome import Outcome, Piece
from .program import GenRecord, Program
from .sampling import merge
from .variables import JoinedVariable, OpVariable, ScopeVariable, Variable
from .waiting import Changing, complete


class Strand(Changing):
    """Its pieces begin with its parent's, up to the fork. Changes when it gets pieces or names, or ends."""

    def __init__(self, program: Program, parent: Strand | None = None) -> None:
        super().__init__()
        self.program = program
        self.parent = parent
        self.id = program.backend.allocate()
        self.pieces: list[Piece] = [] if parent is None else list(parent.pieces)
        self.variables: dict[str, Variable] = {} if parent is None else dict(parent.variables)
        self.role: Role | None = None if parent is None else parent.role
        self.outcomes: dict[int, Outcome] = {}
        self.groups: list[list[Strand]] = []
        self.error: BaseException | None = None  # the first op of this strand that failed
        self.broken: BaseException | None = None  # the same, if the strand could not go on after it
        self.over = False  # nothing more can be added
        self._fork_length = len(self.pieces)
        self._inherited = dict(self.variables)
        self._references: dict[Outcome, RefExpr] = {} if parent is None else dict(parent._references)
        self._buffer: list[Op] = []
        self._last_op = 0
        self._closing = False

    # ------------------------------------------------------------ adding

    def add(self, expr: Expr) -> None:
        """Raises InvalidValue for what cannot stand here, and the program's failure if it has one."""
        for part in parts(expr):
            if isinstance(part, RefExpr) and part.program is not self.program and part.program.ended:
                # The backend forgets that program when its last op is done; its text is known here then.
                self.flush()
                complete(part.outcome.until_finished(), self.program.block("`await` on its value first"))
        with self.program.together():
            self._must_be_open()
            for part in parts(expr):
                self._add_one(part)
            self.changed()

    def _add_one(self, expr: Expr) -> None:
        match expr:
            case Literal(text):
                if text:
                    self._buffer.append(Text(self._op(), text))
                    self.pieces.append(Piece(text))
            case RefExpr():
                self._add_reference(expr)
            case RoleBeginExpr(role):
                if self.role is not None:
                    raise InvalidValue(
                        f"a {role} turn cannot begin inside the {self.role} turn: end that first", "role"
                    )
                self.role = role
                op, outcome = self._waited_op(f"the beginning of the {role} turn")
                self._buffer.append(RoleBegin(op, role))
                self.pieces.append(Piece(outcome=outcome, mark="begin", role=role))
            case RoleEndExpr(role):
                if self.role is None:
                    raise InvalidValue(f"the {role} turn cannot end here: no turn is open", "role")
                if self.role != role:
                    say(
                        "role",
                        caller(),
                        f"{role}_end() ends the {self.role} turn, which is the open one: write {self.role}_end()",
                    )
                role, self.role = self.role, None
                op, outcome = self._waited_op(f"the end of the {role} turn")
                self._buffer.append(RoleEnd(op))
                self.pieces.append(Piece(outcome=outcome, mark="end", role=role))
            case GenExpr():
                self._add_gen(expr)
            case SelectExpr():
                self._add_select(expr)
            case _:
                raise TypeError(f"unknown expression {type(expr).__name__}")

    def _add_reference(self, expr: RefExpr) -> None:
        if expr.program.backend is not self.program.backend:
            raise InvalidValue("a reference cannot cross to another backend; use the value instead", "ref")
        self.pieces.append(Piece(outcome=expr.outcome, choice=expr.choice))
        if expr.program is not self.program and expr.outcome.ended(expr.choice):
            error = expr.outcome.errors[expr.choice]
            if error is not None:
                raise error
            self._buffer.append(Text(self._op(), expr.outcome.texts[expr.choice]))
        else:
            self._buffer.append(VarRef(self._op(), expr.strand, expr.op, expr.choice))
            if expr.program is not self.program:
                self.flush()  # while that program lives
        self._references[expr.outcome] = expr

    def _add_gen(self, expr: GenExpr) -> None:
        form = expr.form
        sampling, n, backend = merge(
            expr.label,
            self.program.options,
            expr.options,
            constrained=form is not None,
            extra_stops=form.stops if form else (),
        )
        if form is None and self._ends_in_space():
            say(
                "space",
                expr.site,
                f"the text before {expr.label} ends in a space; most tokens carry their own leading space, so the "
                "model writes better without it: take the space off the end of the text",
            )
        op, outcome = self._waited_op(expr.label, choices=n, streaming=self.program.streaming)
        constraint = None if form is None else form.spec(backend)
        self._buffer.append(Gen(op, sampling, constraint, n, self.program.streaming))
        self.program.gens.append(GenRecord(expr, sampling, outcome))
        self._produced(expr.name, OpVariable(self.program, outcome, self.id, op, form), outcome, op)

    def _add_select(self, expr: SelectExpr) -> None:
        op, outcome = self._waited_op(expr.label)
        self._buffer.append(Select(op, expr.choices, expr.method, expr.temperature, expr.seed))
        self._produced(expr.name, OpVariable(self.program, outcome, self.id, op, None, expr.choices), outcome, op)

    def _produced(self, name: str | None, variable: OpVariable, outcome: Outcome, op: int) -> None:
        self.pieces.append(Piece(outcome=outcome))
        self._references[outcome] = RefExpr(self.program, outcome, self.id, op, 0)
        if name is not None:
            self.variables[name] = variable
        self.flush()

    def _ends_in_space(self) -> bool:
        return bool(self.pieces) and self.pieces[-1].text.endswith(" ")

    def _op(self) -> int:
        self._last_op += 1
        return self._last_op

    def _waited_op(self, label: str, *, choices: int = 1, streaming: bool = False) -> tuple[int, Outcome]:
        op = self._op()
        outcome = self.outcomes[op] = Outcome(label, choices=choices, streaming=streaming)
        if self.program.failure is not None:  # it came between the check and here, and did not see this outcome
            outcome.fail(self.program.failure)
        return op, outcome

    def set(self, name: str, variable: Variable) -> None:
        """Names are bound in program order, whatever is still running."""
        if not isinstance(name, str) or not name:
            raise InvalidValue(f"a variable's name must be a non-empty string, not {name!r}", "name")
        with self.program.lock:
            self.variables[name] = variable
            self.changed()

    def scope(self, name: str, start: int) -> ScopeVariable:
        return ScopeVariable(name, self.pieces[start:], dict(self._references))

    # ------------------------------------------------------------ forking

    def fork(self, size: int) -> list[Strand]:
        with self.program.together():
            self._must_be_open()
            self.flush()
            children = [Strand(self.program, self) for _ in range(size)]
            for child in children:
                self.program.register(child)
            self.groups.append(children)
            self.program.put(Fork(self.id, self._op(), tuple(child.id for child in children)))
        return children

    def join(self, children: Sequence[Strand], *, append: bool) -> Outcome:
        """Gathers what the children named, appends their text if asked, and closes them. Does not wait."""
        with self.program.together():
            self._must_be_open()
            self.flush()
            for child in children:
                child.flush()
            op, outcome = self._waited_op("the join")
            self.program.put(Join(self.id, op, tuple(child.id for child in children), append))
            if append:
                for child in children:
                    self.pieces += child.pieces[child._fork_length :]
                    self._references |= child._references
            self._gather(children)
            for child in children:
                child.close()
                child.seal()
            self.changed()
        return outcome

    def _gather(self, children: Sequence[Strand]) -> None:
        names = dict.fromkeys(name for child in children for name in child.own_names())
        for name in names:
            own = [child.variables[name] if name in child.own_names() else None for child in children]
            self.variables[name] = JoinedVariable(name, own)

    def own_names(self) -> list[str]:
        """Names given since the fork, in the order they were first given."""
        return [name for name, variable in self.variables.items() if self._inherited.get(name) is not variable]

    # ------------------------------------------------------------ sending and ending

    @property
    def unsent(self) -> bool:
        """Whether something waits here that only the backend can tell (a role's marks)."""
        return any(not isinstance(op, Text) for op in self._buffer)

    def flush(self) -> None:
        with self.program.lock:
            if self._buffer and not (self._closing or self.over):
                self.program.put(Extend(self.id, tuple(self._buffer)))
                self._buffer = []
            self.program.flush()

    def close(self) -> None:
        """Ordered after the queued ops."""
        with self.program.together():
            if not self._closing:
                self.flush()
                self._closing = True
                self.program.put(Close(self.id))

    def seal(self) -> None:
        """Tells readers that nothing more will be added."""
        self.over = True
        self.changed()

    def _must_be_open(self) -> None:
        if self.program.failure is not None:
            raise self.program.failure
        if self.over or self._closing:
            raise PlaitError(
                "this state has ended (it was joined, or its program returned); nothing can be added to it. To go on, "
                "begin another program with its text: s += earlier.text()"
            )

    # ------------------------------------------------------------ failing, on the backend's thread

    def on_failed(self, event: Failed) -> None:
        outcome = self.outcomes.get(event.op)
        cause = self._what_broke() if event.code == "upstream" else None
        message = event.message
        if cause is not None and outcome is not None:
            message = f"{outcome.label} did not run, because an earlier step failed: {cause}"
        error = from_code(event.code, event.field, message, event.op)
        error.__cause__ = cause
        if self.error is None:
            self.error = error
        if self.broken is None and event.choice == 0:  # a gen's other choices are dead ends anyway
            self.broken = error
        if outcome is not None:
            outcome.fail(error, event.choice)

    def _what_broke(self) -> BaseException | None:
        if self.broken is not None:
            return self.broken
        return None if self.parent is None else self.parent._what_broke()
