"""Who killed the core: strands that were in flight at two deaths are tried one by one.

::

    death, everybody is replayed ── a second one within the minute ──> suspects: whoever was running at both
        one suspect in the core, alone ── the core dies ──────────────> it is guilty, and fails
                                       ── it goes on for a while ─────> the next one
        none is left, or the time is up ──────────────────────────────> everybody goes on

What nobody tries waits: only of a strand that ran alone is it certain that it killed. A suspect that was let go runs on
beside the next one; if the core dies then, the next one is tried again alone, and those beside it are tried again only
if it was not that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .. import wire
from .link import CoreItem
from .strand import Strand

if TYPE_CHECKING:
    from .front import Front


class Quarantine:
    """The suspects, and what the core of now may be told while they are tried."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self.trial: Strand | None = None
        self._suspects: list[Strand] = []
        self._doubted: list[Strand] = []  # ran beside the trial at the last death
        self._inside: set[int] | None = None  # what the core of now knows; None: everything
        self._until = 0.0  # by the front's clock
        self._tokens = 0  # that the trial has made

    @property
    def on(self) -> bool:
        return self._inside is not None

    def lift(self) -> list[Strand]:
        """It is over: everybody may go on. Gives those that the core does not know yet."""
        inside, self._inside = self._inside or set(), None
        self.trial = None
        self._suspects, self._doubted = [], []
        return [strand for strand in self._ordered() if strand.sid not in inside]

    # ------------------------------------------------------------ deaths

    def died(self, now: float) -> list[Strand]:
        """The core died. Gives the guilty; everybody else is to be told to the next core as :meth:`next` says."""
        settings = self._front.settings
        trial, self.trial = self.trial, None
        running = [strand for strand in self._ordered() if self._knows(strand.sid) and strand.running]
        again = [one for one in running if one is trial or now - one.last_death <= settings.blame_window]
        for strand in running:
            strand.last_death = now
        doubted, self._doubted = self._doubted, []
        if len(running) == 1 and again:
            return self._started(again, now)
        if trial in again:
            self._suspects.insert(0, trial)
            self._doubted = [one for one in again if one is not trial] + doubted
        else:
            self._doubt([*again, *doubted])
        spent = [one for one in self._suspects if one.trials >= settings.max_trials]  # only together, or slowly
        return self._started(spent, now)

    def _started(self, guilty: list[Strand], now: float) -> list[Strand]:
        self._suspects = [one for one in self._suspects if one not in guilty]
        if self._suspects and self._inside is None:
            self._until = now + self._front.settings.quarantine_s
        if self._suspects or self._inside is not None:
            self._inside = set()  # the next core knows nothing
        return guilty

    def _doubt(self, strands: Iterable[Strand]) -> None:
        known = {*self._suspects}
        self._suspects += [strand for strand in strands if strand not in known]
        self._suspects.sort(key=lambda one: (one.trials, one.sid))  # who was not tried yet first: the time may run out

    # ------------------------------------------------------------ trials

    def next(self, now: float) -> list[Strand] | None:
        """Strands to be told to the core, parents first: the next suspect, with those that are to be born of it.
        None: no suspect is left, or the time is up."""
        if self.trial is not None:  # it was not the one
            self._doubt(self._doubted)
            self._doubted = []
        self.trial = None
        while self._suspects and now < self._until and self._inside is not None:
            one = self._suspects.pop(0)
            if one.gone or not one.running or self._front.sids.get(one.sid) is not one:
                continue
            one.trials += 1
            self.trial, self._tokens = one, 0
            family = [strand for strand in self._ordered() if strand is one or _unborn(strand, one)]
            self._inside.update(strand.sid for strand in family)
            return family
        return None

    def passed(self, events: Sequence[wire.CoreEvent]) -> bool:
        """Whether the trial has ended well, as these events tell."""
        one = self.trial
        if one is None:
            return False
        self._tokens += sum(
            len(event.ids) for event in events if isinstance(event, wire.Tokens) and event.sid == one.sid
        )
        ended = one.gone or not one.running or self._front.sids.get(one.sid) is not one
        return ended or self._tokens >= self._front.settings.trial_tokens

    # ------------------------------------------------------------ what the core is told

    def admitted(self, items: Sequence[CoreItem]) -> list[CoreItem]:
        """What the core may hear now. The rest is in the strands' records, and is told once they are let in."""
        if self._inside is None:
            return list(items)
        return [item for item in items if self._admits(item, self._inside)]

    def _admits(self, item: CoreItem, inside: set[int]) -> bool:
        if isinstance(item, wire.Define | wire.Forget | wire.Stop):
            return True
        anew = isinstance(item, wire.OpenStrand) and self.trial is not None
        if anew and self._front.sids.get(item.sid) is self.trial:  # it begins its ids again, under another number
            inside.add(item.sid)
        if item.sid not in inside:
            return False
        if isinstance(item, wire.ExtendStrand):
            inside.update(sid for op in item.ops if isinstance(op, wire.ForkAt) for sid in op.children)
        return True

    def _knows(self, sid: int) -> bool:
        return self._inside is None or sid in self._inside

    def _ordered(self) -> list[Strand]:
        return [strand for _, strand in sorted(self._front.sids.items())]


def _unborn(strand: Strand, origin: Strand) -> bool:
    """Its ids will come of ``origin``, by forks that are not done."""
    at: Strand | None = strand
    while at is not None and at.ids is None:
        at = at.parent
        if at is origin:
            return True
    return False
