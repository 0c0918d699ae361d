"""What is wrong with an op, found when it arrives: every refusal names the field and the fix."""

from __future__ import annotations

from ..protocol import MAX_CONSTRAINT_BYTES, ConstraintSpec, Gen, Ids, Regex, Select
from .settings import ServedModel, Settings
from .strand import Item, OpError


def check(item: Item, model: ServedModel, settings: Settings) -> OpError | None:
    """The first fault of one op, by itself; faults that depend on the strand are found when it is lowered."""
    try:
        return _check(item, model, settings)
    except TypeError as error:  # actions that did not come through a backend (Session.receive) are held to no types
        return OpError("invalid_value", f"{type(item).__name__}: a field has the wrong type ({error})")


def _check(item: Item, model: ServedModel, settings: Settings) -> OpError | None:
    if isinstance(item, Gen):
        return _gen(item, model, settings)
    if isinstance(item, Select):
        return _select(item, settings)
    if isinstance(item, Ids):
        if len(item.ids) > model.context_length:  # before anybody looks at each
            message = f"the prompt has {len(item.ids)} tokens, but the model's context holds {model.context_length}"
            return OpError("context_length", f"{message}: shorten the prompt", "ids")
        for token in (min(item.ids), max(item.ids)) if item.ids else ():
            if not 0 <= token < model.vocab_size:
                return OpError("invalid_value", f"ids: {token} is not a token id (0 to {model.vocab_size - 1})", "ids")
    return None


def _gen(gen: Gen, model: ServedModel, settings: Settings) -> OpError | None:
    problem = gen.sampling.problem(model.vocab_size)
    if problem is not None:
        return OpError("invalid_value", problem[1], problem[0])
    if not 1 <= gen.n <= settings.max_n:
        return OpError("invalid_value", f"n must be a whole number from 1 to {settings.max_n}, not {gen.n}", "n")
    if gen.constraint is None:
        unused = gen.sampling.end is not None
        return (
            OpError("invalid_value", "end says how a constrained text ends, and no constraint is given", "end")
            if unused
            else None
        )
    return _constraint(gen.constraint)


def _constraint(spec: ConstraintSpec) -> OpError | None:
    field, source = ("regex", spec.pattern) if isinstance(spec, Regex) else (spec.field, spec.source)
    if not source:
        return OpError("invalid_value", f"{field} must not be empty: leave it out, or say what may come", field)
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_CONSTRAINT_BYTES:
        limit = f"at most {MAX_CONSTRAINT_BYTES:,} bytes fit"
        return OpError("invalid_value", f"{field} has {size:,} bytes; {limit}: make it smaller", field)
    if not spec.backend:
        return OpError("invalid_value", "constraint_backend must not be empty", "constraint_backend")
    return None


def _select(select: Select, settings: Settings) -> OpError | None:
    if not select.choices:
        return OpError("invalid_value", "choices must hold at least one string", "choices")
    if len(select.choices) > settings.max_choices:
        return OpError("invalid_value", f"at most {settings.max_choices} choices, not {len(select.choices)}", "choices")
    for at, text in enumerate(select.choices):
        if not text:
            return OpError("invalid_value", f"choices[{at}] must not be empty", "choices")
    if not 0.0 <= select.temperature <= 100.0:  # also false for NaN
        return OpError(
            "invalid_value", f"temperature must be a number from 0 to 100, not {select.temperature!r}", "temperature"
        )
    if select.seed is not None and not -(2**63) <= select.seed < 2**64:
        return OpError("invalid_value", f"seed must be a 64-bit whole number, not {select.seed!r}", "seed")
    return None
