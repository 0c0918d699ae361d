"""Messages between the front and the core: one pair of sockets on a fresh ipc path per core epoch.

The front owns the truth (each live strand's token ids), the core owns the cache. A ``sid`` is never reused.
The core answers :class:`Sample`, :class:`Score`, :class:`ScorePrompt` and :class:`ForkAt` with exactly one of
:class:`Ended`, :class:`Scored`, :class:`PromptScored`, :class:`Forked` or :class:`OpFailed` per op and sid;
:class:`Append` is silent unless it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from .protocol import Message, Method, Reason, Usage, WrapUp, check_size
from .protocol import encode as encode
from .protocol import fill as fill

# ---------------------------------------------------------------- scripts (front -> core)

#: what ends a constrained text that could go on: see :class:`.protocol.Sampling`; "never": nothing does
TextEnd = Literal["natural", "eos", "never"]


class SampleParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A validated, fully resolved Sampling: nothing here is optional in meaning.

    ``seed`` is final (already expanded from run seed, fork path and op, or the gen's own). ``choice`` enters the
    noise key beside it. ``stop_ids``: eos ids of the model unless ignore_eos, then stop_token_ids.
    ``max_tokens`` is final (already bounded by the context). ``stop`` holds UTF-8 bytes, ``stop_regex`` patterns that
    the compiler child has accepted. ``end`` matters only beside a constraint.
    """

    max_tokens: int
    seed: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop: tuple[bytes, ...] = ()
    stop_regex: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    wrap_up: WrapUp = True
    end: TextEnd = "eos"


class Append(Message, frozen=True):
    op: int
    ids: tuple[int, ...]


class Sample(Message, frozen=True):
    """``constraint``: key of an earlier :class:`Define`.

    The core sends Tokens for every sample in any case (the front's replay record needs every sampled id).
    ``resume_ids``: ids that an earlier epoch already sampled for this op; the core re-advances matcher, stop
    scanner, penalties and the random counter over them and emits nothing for them.
    ``resume_usage`` is what Started said then, with ``wrapped`` so far: prompt accounting stays as first admission
    fixed it.
    """

    op: int
    params: SampleParams
    choice: int = 0
    constraint: str | None = None
    resume_ids: tuple[int, ...] = ()
    resume_usage: Usage | None = None


class Score(Message, frozen=True):
    """Score each choice's ids after the strand's ids; append the winner's and keep its KV.

    ``prefix`` holds the ids before which the unconditional method scores (BOS, or empty: first token counts 0).
    """

    op: int
    choices: tuple[tuple[int, ...], ...]
    method: Method
    temperature: float
    seed: int
    prefix: tuple[int, ...] = ()


class ScorePrompt(Message, frozen=True):
    """How likely each of the strand's ids was after those before it, from the id at ``start`` on; ``top`` alternatives
    beside each."""

    op: int
    start: int = 0
    top: int = 0


class ForkAt(Message, frozen=True):
    """Commit, then give ``children`` (sids, opened by this) the strand's ids."""

    op: int
    children: tuple[int, ...]


CoreOp = Append | Sample | Score | ScorePrompt | ForkAt


class OpenStrand(Message, frozen=True):
    """KV is shared only inside one ``namespace``: "", or a digest of salt and adapter, so that it has one size."""

    sid: int
    namespace: str = ""
    priority: int = 0


class ExtendStrand(Message, frozen=True):
    """Children named by a ForkAt sent earlier (or in the same frame) may be extended at once; they wait."""

    sid: int
    ops: tuple[CoreOp, ...]


class CloseStrand(Message, frozen=True):
    """Ordered after queued ops. No answer."""

    sid: int


class AbortStrand(Message, frozen=True):
    """The running op (a Sample that resumes is one) ends with reason "abort" and its partial text; queued ops are
    dropped silently (the front fails them); the strand closes. Children of ForkAt ops not reached are dropped too."""

    sid: int


class Define(Message, frozen=True):
    """A compiled constraint, as ``plait.constrained`` serialized it. Kept until :class:`Forget`."""

    key: str
    payload: bytes


class Forget(Message, frozen=True):
    key: str


class Stop(Message, frozen=True):
    """Leave the loop and exit."""


class ToCore(Message, frozen=True):
    """One frame, applied in order."""

    items: tuple[OpenStrand | ExtendStrand | CloseStrand | AbortStrand | Define | Forget | Stop, ...]


# ---------------------------------------------------------------- events (core -> front)


class CoreLogprob(msgspec.Struct, frozen=True, array_like=True):
    """log-softmax of the raw logits for one token of the op; ``top`` = (id, logprob) best first.

    ``logprob`` is None where an earlier epoch drew the token, and said its number then.
    """

    id: int
    logprob: float | None
    forced: bool = False
    top: tuple[tuple[int, float], ...] = ()

    def cut_to(self, tail: Sequence[int]) -> tuple[CoreLogprob, ...]:
        """Entries of the ids that stand for the beginning of this token, which was drawn and cut.

        They have no draw of their own. The first has this one's number, the others 0 (they followed from it), so that
        the numbers of a text still add up to what was drawn. All of them had the same alternatives.
        """
        later = None if self.logprob is None else 0.0
        return tuple(
            CoreLogprob(token, later if place else self.logprob, self.forced, self.top)
            for place, token in enumerate(tail)
        )


class Tokens(Message, frozen=True):
    """``ids``: every id this op gained since the last frame (sampled or forced). ``data``: bytes released since.

    ``settled``: how many of all ids of this op can no longer be cut by a stop. ``wrapped``: :attr:`Usage.wrapped` so
    far. ``logprobs`` align with ``ids`` when asked for.
    """

    sid: int
    op: int
    choice: int
    ids: tuple[int, ...]
    data: bytes = b""
    settled: int = 0
    logprobs: tuple[CoreLogprob, ...] = ()
    wrapped: int = 0


class Ended(Message, frozen=True):
    """``ids``: the op's final ids (kept + re-encoded tail); the strand's ids grow by exactly these.

    ``data``: the bytes still held back that belong to the text (Tokens.data so far + this = the whole text).
    ``logprobs`` align with ``ids`` when asked for; those of the tail are :meth:`CoreLogprob.cut_to` of the token that
    was cut. ``end``: of the end or stop token that ended it, which is not among ``ids``. ``next_top``: what would come
    next, where nothing may (``max_tokens`` is 0); best first.
    """

    sid: int
    op: int
    choice: int
    reason: Reason
    ids: tuple[int, ...]
    data: bytes = b""
    tail: int = 0
    matched: str | int | None = None
    partial: bool = False
    usage: Usage = Usage()
    logprobs: tuple[CoreLogprob, ...] | None = None
    end: CoreLogprob | None = None
    next_top: tuple[tuple[int, float], ...] = ()


class Started(Message, frozen=True):
    """Prompt accounting of an op, fixed at first admission; the front keeps it for replay."""

    sid: int
    op: int
    choice: int
    usage: Usage


class Scored(Message, frozen=True):
    """``logprobs``: of each token of each choice, behind the strand's ids."""

    sid: int
    op: int
    winner: int
    scores: tuple[float, ...]
    usage: Usage
    logprobs: tuple[tuple[float, ...], ...] = ()


class CorePromptLogprob(msgspec.Struct, frozen=True, array_like=True):
    """log-softmax of the raw logits for one id of a prompt; None for the first, which nothing precedes. ``rank``: 1 is
    the likeliest. ``top`` = (id, logprob) best first."""

    id: int
    logprob: float | None
    rank: int = 0
    top: tuple[tuple[int, float], ...] = ()


class PromptScored(Message, frozen=True):
    """The next of them, in order; the last event of an op has its ``usage``, which counts the ids whose KV it made sure
    of: all but the last."""

    sid: int
    op: int
    logprobs: tuple[CorePromptLogprob, ...]
    usage: Usage | None = None


class Forked(Message, frozen=True):
    sid: int
    op: int
    usage: Usage


class OpFailed(Message, frozen=True):
    """The op and, silently, every later op of the sid fail; the strand closes in the core."""

    sid: int
    op: int
    choice: int
    code: str
    message: str
    field: str | None = None


class Stats(Message, frozen=True):
    """Sent at most a few times a second, and when the core falls idle. Totals rise monotonically per epoch."""

    running: int
    waiting: int
    kv_total: int
    kv_free: int
    kv_cached: int
    steps: int
    prompt_tokens: int
    cached_tokens: int
    sampled_tokens: int
    forced_tokens: int
    recomputed_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    retractions: int
    evicted_tokens: int
    step_s: float  # seconds spent in steps
    forward_s: float  # of which inside Model.forward

    @classmethod
    def empty(cls, kv_tokens: int) -> Stats:
        """Of a core that has done nothing yet with its pool."""
        return cls(0, 0, kv_tokens, kv_tokens, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Ready(Message, frozen=True):
    kv_tokens: int
    vocab_size: int
    context_length: int
    mode: str
    device: str
    kernels: str  # "cpu" | "reference" | "triton"
    notes: tuple[str, ...] = ()  # what whoever starts an engine should know


class Fatal(Message, frozen=True):
    """The core cannot start or go on (bad model file, out of memory); it exits after this."""

    message: str


CoreEvent = Tokens | Ended | Started | Scored | PromptScored | Forked | OpFailed | Stats | Ready | Fatal


class ToFront(Message, frozen=True):
    """One frame per step for all strands."""

    events: tuple[CoreEvent, ...]


_to_core: msgspec.msgpack.Decoder[ToCore] = msgspec.msgpack.Decoder(ToCore)
_to_front: msgspec.msgpack.Decoder[ToFront] = msgspec.msgpack.Decoder(ToFront)


def decode_to_core(frame: bytes) -> ToCore:
    check_size(frame)
    return _to_core.decode(frame)


def decode_to_front(frame: bytes) -> ToFront:
    check_size(frame)
    return _to_front.decode(frame)
