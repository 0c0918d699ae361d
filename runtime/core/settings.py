"""What the core may be told: one tree of numbers, checked once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Limits of one step and of the pool.

    ``step_tokens``: rows of one forward while nothing decodes. ``mixed_tokens``: rows of one forward while at least
    one strand decodes, so that a long prompt does not make the others stutter; decode rows always run, even beyond it.
    The defaults are for a CPU: there a chunk of 128 rows costs no more per row than one of 2,048 (measured), and small
    chunks shorten the wait of whoever arrives or hangs up meanwhile.
    ``forward_rows``: in how many rows' time the rest of a forward, which all its rows share, is done: how many rows of
    drafts may be in vain for one forward less. (8: once measured with SmolLM2-135M on two cores; what comes of it is
    shown by the section ``jump`` of benchmarks/constrained_speed.py.)
    ``score_rows``: rows of a Score, or of a prompt whose numbers are wanted, whose logits one step may hold (each is a
    vocabulary wide); and rows of drafts. ``score_numbers``: log-probabilities, those of alternatives included, that the
    answer about one prompt may hold, or about the choices of one Score (beyond it their scores alone are told).
    ``reserve_share``, ``reserve_cap``: admission keeps this part of a sample's remaining max_tokens (at most the
    cap, in tokens) free for its growth; what grows beyond is what retraction is for.
    ``constraint_first_s``, ``constraint_more_s``: seconds that all rows of a step may spend together on finding out
    what their constraints allow, at their first look and at later ones; a row that is not done by then sits out the
    step. ``constraint_slice_s``: of these, what one row gets at a time. ``constraint_s``: what one row may spend at one
    place of its text, over all steps, before it is refused.
    ``draft_s``: seconds that a step may spend on drafts of what comes next, half of them for one row; 0: none are made.
    Most take a fraction of a millisecond, the first ones under a constraint a few. With less, whether a draft is found
    in time hangs on how busy the machine is, and with it the last bits of the logits.
    ``constraint_bytes``: of built constraints that are kept.
    """

    kv_tokens: int
    step_tokens: int = 512
    mixed_tokens: int = 128
    forward_rows: float = 8.0
    max_running: int = 256
    score_rows: int = 256
    score_numbers: int = 2**18
    reserve_share: float = 0.5
    reserve_cap: int = 512
    stats_interval_s: float = 0.25
    constraint_first_s: float = 0.05
    constraint_more_s: float = 0.005
    draft_s: float = 0.02
    constraint_slice_s: float = 0.002
    constraint_s: float = 10.0
    constraint_bytes: int = 512 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("kv_tokens", "step_tokens", "mixed_tokens", "max_running", "score_rows", "score_numbers"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if not 0.0 <= self.reserve_share <= 1.0:
            raise ValueError(f"reserve_share must be from 0 to 1, not {self.reserve_share}")
        for name in ("reserve_cap", "forward_rows", "draft_s"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} must be 0 or more, not {value}")
