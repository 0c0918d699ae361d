"""Bounds and clocks of the front, in one place. Every queue, cache and wait has one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.card import ModelCard
    from ..tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """Seconds, items and bytes. ``clock`` is monotonic seconds."""

    max_strands: int = 20_000  # live strands of all sessions; beyond: queue_full
    max_pending_ops: int = 200_000  # unanswered ops of all sessions, each choice of a gen; beyond: queue_full
    max_strand_ops: int = 16_384  # ops of one strand that are to be done, texts included; beyond: queue_full
    max_choices: int = 4_096  # of one Select
    max_n: int = 128  # choices of one Gen
    start_timeout: float = 600.0  # from Popen to Ready
    blame_window: float = 60.0  # two deaths within it on one strand make it a suspect
    trial_s: float = 5.0  # a suspect is alone in the core for so long at most,
    trial_tokens: int = 16  # ... and until it has made so many tokens
    quarantine_s: float = 30.0  # from the second death on; then everybody goes on, tried or not
    max_trials: int = 4  # of one strand; if the core dies beside it after them, it fails
    max_restarts: int = 3  # failed starts in a row after which every strand fails
    compile_timeout: float = 30.0  # wall clock of one constraint
    compile_quick: float = 0.5  # of it, seconds in the lane that nobody may keep busy
    compiler_start_timeout: float = 60.0
    compile_memory: int = 2 * 1024**3  # address space of the compiler child, bytes
    payload_bytes: int = 64 * 1024**2  # compiled constraints kept
    error_seconds: float = 60.0  # how long a refused constraint is remembered
    max_constraints: int = 10_000  # remembered, refused ones included
    turn: float = 0.05  # seconds of one turn; what is left then comes after what else the loop has to do
    encode_inline: int = 16 * 1024  # characters; what is longer is encoded beside the loop
    max_backlog_ops: int = 1_000_000  # of one client over the socket, sent and not looked at yet; beyond: it is ended
    max_unread: int = 64 * 1024**2  # bytes of events that one client does not take; beyond: it is ended
    max_sessions: int = 1_000  # clients over the socket
    lease: float = 60.0  # a client without a sign of life keeps its strands this long
    probe: float = 5.0  # how often each client is probed
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class ServedModel:
    """What the front has to know of a model: no weights."""

    name: str
    tokenizer: Tokenizer
    vocab_size: int
    context_length: int  # tokens
    chat_template: str | None = None

    @classmethod
    def of(cls, card: ModelCard, tokenizer: Tokenizer) -> ServedModel:
        return cls(
            name=card.name,
            tokenizer=tokenizer,
            vocab_size=tokenizer.size,
            context_length=card.config.context,
            chat_template=card.chat_template,
        )

    def token_text(self, token: int | None) -> str:
        """How a token is written in a prompt; "" for None."""
        return "" if token is None else self.tokenizer.token_bytes(token).decode("utf-8", "replace")
