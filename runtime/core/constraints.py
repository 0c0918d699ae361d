"""The constraints that the front defined: kept as payloads, built when a gen first needs one, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict

from ...constrained.compiler import load, read_payload
from ...constrained.interface import Constraint, ConstraintError, Matcher
from ...constrained.lexicon import Lexicon, lexicon_of
from ...constrained.vocabulary import Vocabulary
from .kit import OpError
from .slices import Sliced

#: what the child needed longer for is built in slices, by itself
SLOW_S = 0.02
_LOOK_EVERY = 64  # uses between two looks at what all of them take


class Defined:
    """One constraint. What is built of it may be dropped while nobody looks, and is built again from the payload."""

    def __init__(self, store: Constraints, key: str, payload: bytes) -> None:
        self.key = key
        self.payload = payload
        self.built: Constraint | None = None
        self.lexicon: Lexicon | None = None  # what it was built with
        self._store = store
        self._slices: Sliced[Constraint] | None = None

    def prepare(self, seconds: float | None = None) -> bool:
        """Work for up to about ``seconds`` (None: to the end) on building it. True once :meth:`matcher` answers at
        once. Raises OpError if it cannot be built."""
        if self.lexicon is not None and self.lexicon.full:
            self._store.outgrown(self)
        if self.built is not None:
            return True
        try:
            if self._slices is None:
                vocabulary = self._store.vocabulary
                if read_payload(self.payload).build_s < SLOW_S:
                    self.lexicon = lexicon_of(vocabulary)
                    self.built = load(self.payload, vocabulary, self.key, self.lexicon)
                    self._store.grown(self)
                    return True
                lexicon = self.lexicon = Lexicon(vocabulary)  # of its own: the shared one changes between slices
                self._slices = Sliced(lambda: load(self.payload, vocabulary, self.key, lexicon))
            if not self._slices.run(seconds):
                return False
            slices, self._slices = self._slices, None
            self.built = slices.result()
            self._store.grown(self)
        except (ConstraintError, ValueError) as error:
            raise OpError("invalid_constraint", str(error), "constraint") from error
        return True

    def matcher(self) -> Matcher:
        """A fresh one. Call :meth:`prepare` before."""
        assert self.built is not None
        self._store.used(self)
        return self.built.matcher()

    def drop(self) -> None:
        """Give up what was built; gens at work keep theirs alive."""
        self.built = self.lexicon = None

    def cancel(self) -> None:
        """It will not be built."""
        if self._slices is not None:
            self._slices.cancel()
            self._slices = None


class Constraints:
    """By key. ``max_bytes`` of what was built stay, their lexicons included, the most recently used."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary = vocabulary
        self._max_bytes = max_bytes
        self._defined: dict[str, Defined] = {}
        self._built: OrderedDict[str, Defined] = OrderedDict()  # least recently used first
        self._uses = 0

    def define(self, key: str, payload: bytes) -> None:
        self.forget(key)
        self._defined[key] = Defined(self, key, payload)

    def forget(self, key: str) -> None:
        found = self._defined.pop(key, None)
        self._built.pop(key, None)
        if found is not None:
            found.cancel()

    def __getitem__(self, key: str) -> Defined:
        """Raises OpError for a key that was not defined."""
        found = self._defined.get(key)
        if found is None:
            raise OpError("internal", f"constraint {key!r} was not defined")
        return found

    def grown(self, defined: Defined) -> None:
        """It was built."""
        if self._defined.get(defined.key) is defined:
            self._built[defined.key] = defined
            self._shrink()

    def outgrown(self, defined: Defined) -> None:
        """The lexicon that it was built with is full: it is built again with a fresh one."""
        if defined.built is not None:
            defined.drop()
            self._built.pop(defined.key, None)

    def used(self, defined: Defined) -> None:
        """It was asked for a matcher: it is the last to be dropped."""
        if self._built.get(defined.key) is defined:
            self._built.move_to_end(defined.key)
        self._uses += 1  # they grow while they are used
        if self._uses % _LOOK_EVERY == 0:
            self._shrink()

    def _shrink(self) -> None:
        total = 0
        seen: set[int] = set()
        for at, (key, one) in enumerate(reversed(list(self._built.items()))):
            assert one.built is not None
            total += one.built.nbytes
            if one.lexicon is not None and id(one.lexicon) not in seen:
                seen.add(id(one.lexicon))
                total += one.lexicon.nbytes
            if at and total > self._max_bytes:
                one.drop()
                del self._built[key]
