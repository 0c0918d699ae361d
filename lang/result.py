"""What came of one gen, select or variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..runtime.protocol import Reason, TokenLogprob, TopLogprob, Usage


@dataclass(frozen=True, slots=True)
class Result:
    """``value`` is typed by the gen's dtype or schema, else the text; ``error`` is what reading the value raises, else
    None.

    ``tokens`` are ids. ``finish_reason`` is "stop", "length" or "abort"; ``matched`` the stop string, what a stop regex
    matched, or the token id that ended it. ``partial``: a constrained gen was cut before its constraint accepted, and
    ``value`` is what its text is worth so far (None: nothing). ``notes``: what ``strict=False`` relaxed in its
    schema, and what its type asks for beyond it (validators).
    ``scores``: of a select, by choice; ``choice_logprobs`` the tokens that each choice was scored by, and ``logprobs``
    those of the winner. ``prompt_logprobs``: of the tokens before the gen, from ``logprob_start_len`` on. ``next_top``:
    with ``max_tokens=0`` and ``top_logprobs``, what would come next, best first. A variable that the program set itself
    has only ``value`` and ``text``.
    """

    value: Any = None
    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: Reason | None = None
    matched: str | int | None = None
    usage: Usage = field(default_factory=Usage)
    seed: int | None = None
    error: BaseException | None = None
    partial: bool = False
    notes: tuple[str, ...] = ()
    scores: tuple[float, ...] | None = None
    choice_logprobs: dict[str, tuple[TokenLogprob, ...]] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    next_top: tuple[TopLogprob, ...] = ()
