"""Sampling parameters: one table, merged as "the gen's, else the run's, else the default"."""

from __future__ import annotations

import difflib
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ..runtime.errors import InvalidValue
from ..runtime.protocol import MAX_N, Ending, Sampling, WrapUp, without_surrogates

#: A program's gen stops here unless it, or the run, says otherwise. Over HTTP the default is the rest of the context.
DEFAULT_MAX_TOKENS = 128


class GenOptions(TypedDict, total=False):
    """Keywords of ``gen`` and, with ``max_tokens``, of every way to run a program. None takes the next default.

    ``stop`` and ``stop_regex`` may be a str. ``top_k=-1`` means off, as 0 does. ``seed`` of a run expands to one for
    each of its gens; ``seed`` of a gen is taken as it is. ``constraint_backend`` compiles the constraints: "plait",
    "outlines", "llguidance" or "xgrammar". The other fields are those of :class:`plait.runtime.protocol.Sampling`.
    """

    min_tokens: int | None
    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_regex: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    logprobs: bool | None
    top_logprobs: int | None
    logprob_start_len: int | None
    wrap_up: WrapUp | None
    end: Ending | None
    constraint_backend: str | None


class SamplingOptions(GenOptions, total=False):
    """All of them; ``gen`` takes ``max_tokens`` as its second positional argument too."""

    max_tokens: int | None


#: Names that SGLang programs use for the same thing.
ALIASES = {"max_new_tokens": "max_tokens", "return_logprob": "logprobs", "top_logprobs_num": "top_logprobs"}

#: Names that SGLang has for what is so in any case: the text of each token stands in its logprob.
_ALWAYS = ("return_text_in_logprobs",)

#: Names that SGLang and others document and that this version does not have, with what to do instead.
NOT_AVAILABLE = {
    "use_thread": "leave it out: a run takes no thread of its own",
    "num_api_spec_tokens": "leave it out: the engine goes on from one gen to the next without a request in between",
    "position_ids_offset": "leave it out: branches go on where they forked",
}


def whole(field: str, value: object) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # anything may come; what has no __index__ raises
        except TypeError:
            pass
    raise InvalidValue(f"{field} must be a whole number, not {value!r}", field)


def number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidValue(f"{field} must be a number, not {value!r}", field)
    return float(value)


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{field} must be True or False, not {value!r}", field)
    return value


def strings(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise InvalidValue(f"{field} must be a string or a list of strings, not {value!r}", field)
    for item in value:
        spelled(field, item)
    return tuple(value)


def spelled(field: str, text: str) -> None:
    """Raises InvalidValue for what is compared with text that a model writes, and can never be found there."""
    if without_surrogates(text) != text:
        raise InvalidValue(f"{field}: {text!r} holds half of a surrogate pair, which no text can hold", field)


def patterns(field: str, value: object) -> tuple[str, ...]:
    from .constraint import checked_regex  # which spells its literals with this module

    return tuple(checked_regex(item, field) for item in strings(field, value))


def name_of(field: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{field} must be a name, not {value!r}", field)
    return value


def token_ids(field: str, value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValue(f"{field} must be a list of token ids, not {value!r}", field)
    return tuple(whole(field, item) for item in value)


def biases(field: str, value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{field} must map token ids to numbers, not {value!r}", field)
    return {whole(field, token): number(field, bias) for token, bias in value.items()}


def wrapping(field: str, value: object) -> WrapUp:
    if value == "stop":
        return "stop"
    if not isinstance(value, bool):
        raise InvalidValue(f'{field} must be True, False or "stop", not {value!r}', field)
    return value


def ending(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f'{field} must be "natural" or "eos", not {value!r}', field)
    return value


def filter_size(field: str, value: object) -> int:
    size = whole(field, value)
    return 0 if size == -1 else size


_READERS: dict[str, Callable[[str, object], Any]] = {
    "max_tokens": whole,
    "min_tokens": whole,
    "n": whole,
    "temperature": number,
    "top_p": number,
    "top_k": filter_size,
    "min_p": number,
    "repetition_penalty": number,
    "presence_penalty": number,
    "frequency_penalty": number,
    "logit_bias": biases,
    "seed": whole,
    "stop": strings,
    "stop_regex": patterns,
    "stop_token_ids": token_ids,
    "ignore_eos": flag,
    "logprobs": flag,
    "top_logprobs": whole,
    "logprob_start_len": whole,
    "wrap_up": wrapping,
    "end": ending,
    "constraint_backend": name_of,
}
#: options that are not of one sample
_ASIDE = ("n", "constraint_backend")
OPTION_NAMES = frozenset(_READERS) | frozenset(ALIASES) | frozenset(_ALWAYS)


def asks_nothing(name: str, value: object) -> bool:
    """Whether ``name`` is an option that exists elsewhere and is not wanted here: None is "not given" of all names."""
    return value is None and (name in NOT_AVAILABLE or name == "stream")


def unexpected(where: str, name: str, known: Iterable[str] = ()) -> TypeError:
    """The error for a keyword that ``where`` does not take; ``known`` are those it takes beside the options."""
    if name in NOT_AVAILABLE:
        return TypeError(f"{where}: {name}= is not available in this version; {NOT_AVAILABLE[name]}")
    if name == "stream":
        return TypeError(f"{where} takes no stream=; program.stream(...) gives a state that can be read as it grows")
    near = difflib.get_close_matches(name, sorted({*OPTION_NAMES, *known}), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return TypeError(f"{where} got an unexpected keyword argument {name!r}{hint}")


def normalize(where: str, options: Mapping[str, object], known: Iterable[str] = ()) -> dict[str, Any]:
    """The options that were given, checked and in wire form.

    Raises TypeError for a name ``where`` does not take, InvalidValue for a bad value; never changes ``options``.
    """
    given: dict[str, Any] = {}
    for name, value in options.items():
        if asks_nothing(name, value) or name in _ALWAYS:
            continue
        field = ALIASES.get(name, name)
        reader = _READERS.get(field)
        if reader is None:
            raise unexpected(where, name, known)
        if value is None:
            continue
        if field in given:
            raise InvalidValue(f"{where}: {name}= is another name for {field}=; give one of them", field)
        given[field] = reader(field, value)
    if given.get("top_logprobs") or given.get("logprob_start_len", -1) >= 0:
        given.setdefault("logprobs", True)
    if given.get("logprob_start_len", -1) >= 0 and not given["logprobs"]:
        raise InvalidValue(f"{where}: logprob_start_len needs logprobs=True", "logprob_start_len")
    n = given.get("n", 1)
    if not 1 <= n <= MAX_N:
        raise InvalidValue(f"{where}: n must be a whole number from 1 to {MAX_N:,}, not {n}", "n")
    check(where, {name: value for name, value in given.items() if name not in _ASIDE})
    return given


def check(where: str, fields: Mapping[str, Any]) -> Sampling:
    sampling = Sampling(**fields)
    problem = sampling.problem()
    if problem is not None:
        field, message = problem
        raise InvalidValue(f"{where}: {message}", field)
    return sampling


def merge(
    where: str, run: Mapping[str, Any], own: Mapping[str, Any], *, constrained: bool, extra_stops: Sequence[str] = ()
) -> tuple[Sampling, int, str]:
    """What a gen samples with, its n, and who compiles its constraint. Both mappings are normalized, and stay so.

    A run's seed is not a gen's: the front expands it, so that the gens of a program differ. Its ``end`` is for the
    gens that are constrained.
    """
    fields: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS, **run}
    fields.pop("seed", None)
    if not constrained:
        fields.pop("end", None)
    fields.update(own)
    n: int = fields.pop("n", 1)
    backend: str = fields.pop("constraint_backend", "plait")
    if fields.get("logprob_start_len", -1) >= 0 and fields.get("logprobs"):
        fields["prompt_top_logprobs"] = fields.get("top_logprobs", 0)
    else:
        fields.pop("logprob_start_len", None)  # a run's, and the gen wants no logprobs
    if extra_stops:
        fields["stop"] = (*fields.get("stop", ()), *extra_stops)
    if "min_tokens" not in own and fields.get("min_tokens", 0) > fields["max_tokens"]:
        fields["min_tokens"] = fields["max_tokens"]  # a run's floor cannot exceed a gen's own ceiling
    return check(where, fields), n, backend
