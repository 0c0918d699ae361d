"""The constraints that the front defined: kept as payloads, built when a gen first needs one, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict

from ...constrained.compiler import load, read_payload
from ...constrained.interface import Constraint, ConstraintError, Matcher
from ...constrained.lexicon import Lexicon
from ...constrained.vocabulary import Vocabulary
from .kit import OpError
from .slices import Sliced

#: what the child needed longer for is built in slices, by itself
SLOW_S = 0.02


class Defined:
    """One constraint. What is built of it may be dropped while nobody looks, and is built again from the payload."""

    def __init__(self, store: Constraints, key: str, payload: bytes) -> None:
        self.key = key
        self.payload = payload
        self.built: Constraint | None = None
        self._store = store
        self._slices: Sliced[Constraint] | None = None

    def prepare(self, seconds: float | None = None) -> bool:
        """Work for up to about ``seconds`` (None: to the end) on building it. True once :meth:`matcher` answers at
        once. Raises OpError if it cannot be built."""
        if self.built is not None:
            return True
        try:
            if self._slices is None:
                vocabulary = self._store.vocabulary
                if read_payload(self.payload).build_s < SLOW_S:
                    self.built = load(self.payload, vocabulary, self.key)
                    return True
                lexicon = Lexicon(vocabulary)  # of its own: the shared one changes between slices
                self._slices = Sliced(lambda: load(self.payload, vocabulary, self.key, lexicon))
            if not self._slices.run(seconds):
                return False
            slices, self._slices = self._slices, None
            self.built = slices.result()
        except (ConstraintError, ValueError) as error:
            raise OpError("invalid_constraint", str(error), "constraint") from error
        return True

    def matcher(self) -> Matcher:
        """A fresh one. Call :meth:`prepare` before."""
        assert self.built is not None
        self._store.used(self)
        return self.built.matcher()

    def cancel(self) -> None:
        """It will not be built."""
        if self._slices is not None:
            self._slices.cancel()
            self._slices = None


class Constraints:
    """By key. ``max_bytes`` of what was built stay, the most recently used."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary = vocabulary
        self._max_bytes = max_bytes
        self._defined: OrderedDict[str, Defined] = OrderedDict()  # least recently used first

    def define(self, key: str, payload: bytes) -> None:
        self._defined[key] = Defined(self, key, payload)

    def forget(self, key: str) -> None:
        found = self._defined.pop(key, None)
        if found is not None:
            found.cancel()

    def __getitem__(self, key: str) -> Defined:
        """Raises OpError for a key that was not defined."""
        found = self._defined.get(key)
        if found is None:
            raise OpError("internal", f"constraint {key!r} was not defined")
        return found

    def used(self, defined: Defined) -> None:
        """It was asked for a matcher: it is the last to be dropped, others may go."""
        if self._defined.get(defined.key) is defined:
            self._defined.move_to_end(defined.key)
        total = 0
        for one in reversed(self._defined.values()):
            if one.built is not None:
                total += one.built.nbytes
                if total > self._max_bytes and one is not defined:
                    one.built = None  # gens at work keep theirs alive

    @property
    def nbytes(self) -> int:
        return sum(one.built.nbytes for one in self._defined.values() if one.built is not None)
