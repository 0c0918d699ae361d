"""What all constraints of one vocabulary share: languages, lexeme rows and token masks.

::

    vocabulary ── lexicon_of() ──> Lexicon(languages, lexemes, masks) <── every constraint compiled for it

A lexicon only grows, since its constraints hold the numbers of its states. One that is full is replaced for
constraints compiled from then on, and goes with the last constraint that uses it.
"""

from __future__ import annotations

from .charset import Ranges, normalize
from .masks import MaskCache
from .pushdown.lexemes import LexemeTable
from .pushdown.native_library import shared_bytes
from .regular.languages import Languages
from .vocabulary import Vocabulary

MAX_BYTES = 256 * 1024 * 1024


class Lexicon:
    """Languages over the characters that the vocabulary can write, their byte states, and the masks."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int = MAX_BYTES) -> None:
        self.vocabulary = vocabulary
        self.languages = Languages(writable(vocabulary))
        self.lexemes = LexemeTable(self.languages, vocabulary)
        self.masks = MaskCache(max_bytes // 4)
        self.max_bytes = max_bytes

    @property
    def nbytes(self) -> int:
        return self.languages.nbytes + self.lexemes.nbytes + shared_bytes(self.lexemes) + self.masks.nbytes

    @property
    def full(self) -> bool:
        """New constraints should be compiled for a new lexicon. Masks are bounded by themselves and do not count."""
        return self.languages.nbytes + self.lexemes.nbytes > self.max_bytes


def lexicon_of(vocabulary: Vocabulary) -> Lexicon:
    """The lexicon for new constraints of ``vocabulary``; it lives as long as the vocabulary or a constraint."""
    found = vocabulary.shared.get("lexicon")
    if not isinstance(found, Lexicon) or found.full:
        found = vocabulary.shared["lexicon"] = Lexicon(vocabulary)
    return found


def writable(vocabulary: Vocabulary) -> Ranges:
    """The code points whose UTF-8 can be written byte by byte, so that no text ever leads to where no token goes on.

    A vocabulary without some continuation byte writes no four-byte characters at all: the exact set would be tens of
    thousands of ranges.
    """
    known = [value not in vocabulary.missing_bytes for value in range(256)]
    tails = [tail for tail in range(64) if known[0x80 + tail]]
    whole = len(tails) == 64
    found = [(value, value) for value in range(0x80) if known[value]]
    for lead in range(0xC2, 0xE0):
        if known[lead]:
            base = (lead & 0x1F) << 6
            found.extend([(base, base + 63)] if whole else [(base + tail, base + tail) for tail in tails])
    for lead in range(0xE0, 0xF0):
        if known[lead]:
            base = (lead & 0xF) << 12
            if whole:
                found.append((max(base, 0x800), base + 0xFFF))
                continue
            for middle in tails:
                if lead > 0xE0 or middle >= 0x20:
                    found.extend((base + (middle << 6) + tail,) * 2 for tail in tails)
    for lead in range(0xF0, 0xF5):
        if known[lead] and whole:
            base = (lead & 7) << 18
            found.append((max(base, 0x10000), min(base + 0x3FFFF, 0x10FFFF)))
    return normalize(found)
