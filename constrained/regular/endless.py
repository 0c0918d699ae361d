"""Languages that no character ever leads out of: they differ from "any string" only in where a text may end.

::

    not "name", not "id"          whatever was written, more characters make it another string
    foo anywhere in the string    whatever was written, "foo" may still come

Token masks of such strings need no look at most of the vocabulary (native/token_walk.h).
"""

from __future__ import annotations

from .language import Language
from .languages import Languages
from .nodes import Repeat
from .states import Both, Not, Union


def endless(languages: Languages, language: Language) -> bool:
    """True only if every string over the universe is a prefix of a member. False may mean that it is not known."""
    if isinstance(language, Union):
        for term in language.terms:
            node = term.node  # a loop over any character that may be gone round again before the rest
            loop = type(node) is Repeat and node.body is languages.any_char and (node.low, node.high) == (0, None)
            if loop and term.pure:
                return True
        return False
    if isinstance(language, Not):
        return language.inner.longest is not None
    if isinstance(language, Both):
        # what several languages of bounded length leave, one such language leaves: their union
        return all(isinstance(part, Not) and part.inner.longest is not None for part in language.parts)
    return False
