"""Messages between a client and the front. The contract is docs/architecture.md, section "The contract".

Everything is keyed by (strand, op, choice). Clients choose ``strand`` and ``program`` (u64); ``op`` (u32) rises
within a strand. Every op except :class:`Text`, :class:`Ids` and :class:`VarRef` is answered by exactly one
:class:`Done` or :class:`Failed` per choice; those three are silent unless they fail. Every ``Close`` is answered by
one :class:`Closed`, after which the front has forgotten the strand.

Frames are MessagePack of tagged msgspec structs with unknown fields forbidden; never pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

PROTOCOL_VERSION = 3
MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_N = 1024  # choices of one Gen that can be told apart; a front may allow fewer
MAX_MESSAGES = 1024  # of one conversation, the open one among them
MAX_CONSTRAINT_BYTES = 4 * 1024 * 1024  # of one constraint's specification, as UTF-8

Reason = Literal["stop", "length", "abort"]
#: how a constrained text ends that could go on, see :class:`Sampling`
Ending = Literal["natural", "eos"]
#: whether a constrained text is brought to an end in time, see :class:`Sampling`
WrapUp = bool | Literal["stop"]
Method = Literal["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]
Role = Literal["system", "user", "assistant", "tool"]

#: Every ``Failed.code``. The first four are refusals of the request itself (HTTP 400).
CODES = (
    "invalid_value",
    "context_length",
    "invalid_constraint",
    "invalid_request",
    "upstream",  # an earlier op of this strand, or the parent, failed
    "aborted",
    "kv_exhausted",  # this strand alone does not fit the KV pool
    "queue_full",  # bounded queue, HTTP 429
    "core_crashed",  # the core died twice within a minute on this strand
    "lease_expired",
    "shutdown",
    "internal",
)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag=True):
    """Base of all wire structs: tagged with the class name."""


# ---------------------------------------------------------------- ops


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How one gen samples. Declared here once; ``lang`` and the HTTP server fill it in.

    ``max_tokens=None`` means the rest of the context. ``top_k=0`` and ``min_p=0`` switch those filters off; ``top_p=0``
    keeps the likeliest token alone.
    ``logprobs`` are of the raw logits, before bias, penalties, mask and temperature. ``wrap_up``: with a constraint,
    a text that would be cut by ``max_tokens`` is brought to a whole one in time, where that is possible;
    the reason is "length" all the same; "stop": then the reason is "stop", for readers who throw away whole values at
    "length". ``logprob_start_len``: the tokens of the prompt have theirs too, from this one
    on (-1: none), with ``prompt_top_logprobs`` alternatives each; see :class:`PromptLogprobs`.

    ``end``, only with a constraint: where the text may end but could go on, "natural" (None, the default) lets the
    model draw what it likes, and the text ends where that does not fit; "eos": it ends by an end token only.
    ``min_tokens`` and ``ignore_eos`` put off both.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    wrap_up: WrapUp = True
    end: Ending | None = None
    logprob_start_len: int = -1
    prompt_top_logprobs: int = 0

    def problem(self, vocab_size: int | None = None) -> tuple[str, str] | None:
        """The first bad field and what to do about it, or None. Called by ``lang`` early and by the front always."""
        ranges: tuple[tuple[str, float | None, float, float, str], ...] = (
            ("max_tokens", self.max_tokens, 0, 2**31 - 1, "a whole number of 0 or more"),
            ("min_tokens", self.min_tokens, 0, 2**31 - 1, "a whole number of 0 or more"),
            ("temperature", self.temperature, 0.0, 100.0, "a number from 0 to 100"),
            ("top_p", self.top_p, 0.0, 1.0, "a number from 0 (greedy) to 1"),
            ("top_k", self.top_k, 0, 2**31 - 1, "a whole number of 0 (off) or more"),
            ("min_p", self.min_p, 0.0, 1.0, "a number from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, 0.0, 100.0, "a number above 0, up to 100"),
            ("presence_penalty", self.presence_penalty, -2.0, 2.0, "a number from -2 to 2"),
            ("frequency_penalty", self.frequency_penalty, -2.0, 2.0, "a number from -2 to 2"),
            ("seed", self.seed, -(2**63), 2**64 - 1, "a 64-bit whole number"),
            ("top_logprobs", self.top_logprobs, 0, 20, "a whole number from 0 to 20"),
            ("logprob_start_len", self.logprob_start_len, -1, 2**31 - 1, "a whole number of -1 (none) or more"),
            ("prompt_top_logprobs", self.prompt_top_logprobs, 0, 20, "a whole number from 0 to 20"),
        )
        if self.wrap_up not in (True, False, "stop"):
            return "wrap_up", f'wrap_up must be true, false or "stop", not {self.wrap_up!r}'
        if self.end not in (None, "natural", "eos"):
            return "end", f'end must be "natural" or "eos", not {self.end!r}'
        for name, value, low, high, want in ranges:
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                return name, f"{name} must be {want}, not {value!r}"
        if self.repetition_penalty == 0.0:
            return "repetition_penalty", "repetition_penalty must be above 0; 1 switches it off"
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            return "min_tokens", f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})"
        if len(self.stop) > 64:
            return "stop", f"at most 64 stop strings, not {len(self.stop)}"
        for text in self.stop:
            if not text:
                return "stop", "a stop string must not be empty: leave it out"
            if len(text) > 1024:
                return "stop", "a stop string must not be longer than 1,024 characters"
        if len(self.stop_regex) > 16:
            return "stop_regex", f"at most 16 stop regexes, not {len(self.stop_regex)}: join them with |"
        for pattern in self.stop_regex:
            if not pattern:
                return "stop_regex", "a stop regex must not be empty"
            if len(pattern) > 1024:
                return "stop_regex", "a stop regex must not be longer than 1,024 characters"
        if self.top_logprobs and not self.logprobs:
            return "top_logprobs", "top_logprobs needs logprobs=True"
        if len(self.stop_token_ids) > 16_384:
            return "stop_token_ids", f"at most 16,384 stop_token_ids, not {len(self.stop_token_ids):,}"
        if vocab_size is not None and len(self.logit_bias) > vocab_size:
            return "logit_bias", f"logit_bias: {len(self.logit_bias):,} entries, and there are {vocab_size:,} token ids"
        for name, ids in (("stop_token_ids", self.stop_token_ids), ("logit_bias", tuple(self.logit_bias))):
            for token in ids:
                if token < 0 or (vocab_size is not None and token >= vocab_size):
                    return name, f"{name}: {token} is not a token id (0 to {(vocab_size or 2**31) - 1})"
        for token, bias in self.logit_bias.items():
            if math.isnan(bias) or not -100.0 <= bias <= 100.0:
                return "logit_bias", f"logit_bias[{token}] must be a number from -100 to 100, not {bias!r}"
        return None


class Regex(Message, frozen=True):
    """The whole text matches ``pattern``, in Python's syntax."""

    pattern: str
    backend: str = "plait"


class Spec(Message, frozen=True):
    """Any other constraint: ``source`` is the JSON text of one of the forms of ``constrained/spec.py``, such as
    ``{"json_schema": {...}, "options": {...}}``.

    ``backend`` is the engine that shall compile it ("plait" is ours). ``field`` is what the caller calls it, for
    messages; it changes nothing else.
    """

    source: str
    backend: str = "plait"
    field: str = "constraint"


#: What a gen must match, as its specification; compiled by the compiler child.
ConstraintSpec = Regex | Spec


class Text(Message, frozen=True):
    """Literal text. Special tokens are recognized outside roles only."""

    op: int
    text: str


class Ids(Message, frozen=True):
    """Literal token ids (HTTP prompts given as ids)."""

    op: int
    ids: tuple[int, ...]


class VarRef(Message, frozen=True):
    """The text that (strand, ref_op, choice) produced, any strand of the same session. Waits for it."""

    op: int
    strand: int
    ref_op: int
    choice: int = 0


class RoleBegin(Message, frozen=True):
    """Done.text is the role's prefix as the model's chat template writes it."""

    op: int
    role: Role


class RoleEnd(Message, frozen=True):
    """Done.text is the role's suffix."""

    op: int


class Gen(Message, frozen=True):
    """Sample until a stop. ``n`` choices; choice 0 is what the strand goes on with.

    An ``n`` outside of 1 to MAX_N is refused with one Failed, of choice 0.

    ``stream=False`` suppresses Delta; Done carries the whole text either way.
    """

    op: int
    sampling: Sampling
    constraint: ConstraintSpec | None = None
    n: int = 1
    stream: bool = False


class Select(Message, frozen=True):
    """Score ``choices`` (encoded alone, after the strand's ids) and append the winner.

    temperature 0 takes the best score; above 0 samples from softmax(score / temperature).
    """

    op: int
    choices: tuple[str, ...]
    method: Method = "token_length_normalized"
    temperature: float = 0.0
    seed: int | None = None


Op = Text | Ids | VarRef | RoleBegin | RoleEnd | Gen | Select

# ---------------------------------------------------------------- client -> front


class Open(Message, frozen=True):
    """A new root strand. ``seed`` is the run's seed; None draws one. ``salt`` separates cache namespaces;
    at most ``salt.MAX_SALT_BYTES`` long.

    Strands of a higher ``priority`` are admitted first, and take the room of lower ones where it is short.
    """

    strand: int
    program: int
    seed: int | None = None
    salt: str = ""
    priority: int = 0


class Extend(Message, frozen=True):
    strand: int
    ops: tuple[Op, ...]


class Fork(Message, frozen=True):
    """Children start with the parent's ids as they are when every earlier op of the parent has ended."""

    strand: int
    op: int
    children: tuple[int, ...]


class Join(Message, frozen=True):
    """A barrier in ``strand``: done when each child's last op submitted so far is done, failed or closed.

    ``append=True`` also appends the ids each child added since its fork, in order.
    A failed child does not fail the join (its variables fail when read) unless ``append`` is set.
    """

    strand: int
    op: int
    children: tuple[int, ...]
    append: bool = False


class Close(Message, frozen=True):
    """Ordered after the strand's queued ops. Children stay valid."""

    strand: int


Action = Open | Extend | Fork | Join | Close


class Hello(Message, frozen=True):
    """First frame of a client; a known ``session`` is taken up again."""

    protocol: int
    session: str


class Fragment(Message, frozen=True):
    actions: tuple[Action, ...]


class Abort(Message, frozen=True):
    """Exactly one of the two. The running op ends with reason "abort", queued ops fail, the strand closes."""

    strand: int | None = None
    program: int | None = None


class Ping(Message, frozen=True):
    token: int


ClientMessage = Hello | Fragment | Abort | Ping

# ---------------------------------------------------------------- front -> client


class Info(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a backend serves."""

    model: str
    context_length: int  # tokens
    vocab_size: int
    kv_tokens: int  # slots of the KV pool
    mode: str  # reference | exact
    device: str
    version: str
    has_chat_template: bool


class TopLogprob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    token: str
    data: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """log-softmax of the raw logits. ``forced`` tokens were not sampled. Where a stop cut a token, what stands for its
    beginning has the number of the whole (the first of them; any further ones have 0). ``logprob`` is None for the
    first token of a text alone, which nothing precedes. ``rank`` (1: the likeliest) is of a prompt's tokens.

    ``data`` is what the token adds to the text: nothing for a special one, whose name ``token`` shows all the same.
    """

    id: int
    token: str
    data: bytes
    logprob: float | None
    forced: bool = False
    top: tuple[TopLogprob, ...] = ()
    rank: int | None = None


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens of one op. ``prompt = cached + computed`` as fixed at first admission; ``completion = sampled + forced``.

    ``recomputed``: prompt or output tokens computed again after a retraction or a replay. ``steps``: forward passes
    the op took part in. ``wrapped``: tokens that were drawn and gave way to others, or to the end, so that a
    constrained text ends whole within max_tokens (:attr:`Sampling.wrap_up`). Seconds are measured by the core from
    the moment the op could start.
    """

    prompt: int = 0
    cached: int = 0
    sampled: int = 0
    forced: int = 0
    recomputed: int = 0
    steps: int = 0
    wrapped: int = 0
    first_token_s: float = 0.0
    total_s: float = 0.0

    @property
    def computed(self) -> int:
        return self.prompt - self.cached

    @property
    def completion(self) -> int:
        return self.sampled + self.forced


class Welcome(Message, frozen=True):
    info: Info


class Delta(Message, frozen=True):
    """Whole code points, and the ids that can no longer be cut."""

    strand: int
    op: int
    choice: int
    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class PromptLogprobs(Message, frozen=True):
    """The next of the prompt's tokens that a Gen asked for; all of them come before its first Delta, ``last`` with the
    last ones. They hold for each of its choices."""

    strand: int
    op: int
    logprobs: tuple[TokenLogprob, ...]
    last: bool


class Done(Message, frozen=True):
    """An op ended well. ``text`` and ``ids`` are whole, whether or not deltas were sent.

    ``matched``: the stop string, what a stop regex matched, or the token id that ended a gen. ``tail``: how many of
    ``ids`` (at the end) were re-encoded after a stop cut a token. ``partial``: a stop or the length cut a constrained
    gen before its constraint accepted. ``notes``: what was relaxed in its constraint (``strict`` off), by name.
    ``scores``, ``winner`` and ``choice_logprobs``: of a Select, by choice. ``end_logprob``: of the token id that
    ``matched`` names, with logprobs. ``next_top``: where max_tokens is 0, what would come next, best first.
    """

    strand: int
    op: int
    choice: int = 0
    reason: Reason = "stop"
    matched: str | int | None = None
    text: str = ""
    ids: tuple[int, ...] = ()
    tail: int = 0
    partial: bool = False
    notes: tuple[str, ...] = ()
    usage: Usage = Usage()
    seed: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    scores: tuple[float, ...] | None = None
    winner: int | None = None
    choice_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    end_logprob: TokenLogprob | None = None
    next_top: tuple[TopLogprob, ...] = ()


class Failed(Message, frozen=True):
    """``cause_op``: for code "upstream", the op (of this strand or its parent) that failed first."""

    strand: int
    op: int
    choice: int = 0
    code: str = "internal"
    field: str | None = None
    message: str = ""
    cause_op: int | None = None


class Closed(Message, frozen=True):
    strand: int


class Pong(Message, frozen=True):
    token: int


class Lost(Message, frozen=True):
    """The session is over: nothing more will come. ``code`` is "lease_expired", "shutdown" or "internal"."""

    code: str
    message: str


class Batch(Message, frozen=True):
    """Everything one step has for a session, in one frame."""

    events: tuple[Delta | PromptLogprobs | Done | Failed | Closed, ...]


Event = Delta | PromptLogprobs | Done | Failed | Closed | Lost
FrontMessage = Welcome | Batch | Pong | Lost

Item = TypeVar("Item")

_encoder = msgspec.msgpack.Encoder()
_client_decoder: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_front_decoder: msgspec.msgpack.Decoder[FrontMessage] = msgspec.msgpack.Decoder(FrontMessage)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def fill(kind: Callable[[tuple[Item, ...]], Message], items: Sequence[Item], most: int = 0) -> tuple[bytes, int]:
    """One frame of as many of the first ``items`` as fit into ``most`` bytes (0: :data:`MAX_FRAME_BYTES`), at least
    one; and how many those are."""
    count = len(items)
    while len(frame := encode(kind(tuple(items[:count])))) > (most or MAX_FRAME_BYTES) and count > 1:
        count //= 2
    return frame, count


def decode_client(frame: bytes) -> ClientMessage:
    """Raises ``msgspec.ValidationError`` or ``msgspec.DecodeError`` on a bad frame, ValueError on an oversized one."""
    check_size(frame)
    return _client_decoder.decode(frame)


def decode_front(frame: bytes) -> FrontMessage:
    check_size(frame)
    return _front_decoder.decode(frame)


def without_surrogates(text: str) -> str:
    """``text`` as UTF-8 can spell it: pairs of surrogates are characters, single ones become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def check_size(frame: bytes) -> None:
    """Raises ValueError for a frame longer than :data:`MAX_FRAME_BYTES`."""
    if len(frame) > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {len(frame)} bytes exceeds {MAX_FRAME_BYTES}")
