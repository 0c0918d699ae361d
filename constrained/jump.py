"""Jump-forward: which tokens of a forced run may be appended without sampling.

Forced bytes are tokenized canonically, as the model would have met them in its training text. But a token that the
model would have sampled may begin inside the run and reach past its end, so the last tokens are held back as long as
such a token exists and the constraint allows it:

::

    run             {"name": "            then any letter may come
    encode(run)     {"  name  ":  ␣"      the vocabulary has  "A  (quote, letter): it could start at the last quote
    settled         {"  name  ":          held:  ␣"           released later, with the token that covers it

Pure functions of the matcher's position: replaying a sequence falls on the same edges.
"""

from __future__ import annotations

from .interface import Matcher
from .trie import TokenTrie
from .vocabulary import Vocabulary


def settled_prefix(matcher: Matcher, vocabulary: Vocabulary, run: bytes) -> tuple[list[int], bytes]:
    """The settled ids of ``run`` (a prefix of ``vocabulary.encode(run)``) and the bytes held back after them.

    ``run`` is ``matcher.forced()`` at a token edge (or a prefix of it). Does not move ``matcher``.
    """
    if not run:
        return [], b""
    ids = vocabulary.encode(run)
    edge = first_crossing(matcher, vocabulary.trie, run)
    end = 0
    for count, token in enumerate(ids):
        after = end + len(vocabulary.bytes(token))
        if after > edge:
            return ids[:count], run[end:]
        end = after
    return ids, b""


def first_crossing(matcher: Matcher, trie: TokenTrie, run: bytes) -> int:
    """The first place in ``run`` where an allowed token could start and end beyond the run; ``len(run)`` if none."""
    beyond = matcher.fork()
    if not beyond.advance_bytes(run):
        raise ValueError("the run is not allowed here")
    for start in range(max(0, len(run) - trie.max_depth + 1), len(run)):
        node = trie.node(run[start:])
        if node is not None and _some_token(beyond, trie, node, b""):
            return start
    return len(run)


def _some_token(matcher: Matcher, trie: TokenTrie, node: int, path: bytes) -> bool:
    """True if a token strictly below ``node`` continues with bytes that ``matcher`` allows."""
    for value, child in trie.children(node).items():
        longer = path + bytes((value,))
        ends_token = trie.first_at[child + 1] > trie.first_at[child]
        if matcher.allows(longer) and (ends_token or _some_token(matcher, trie, child, longer)):
            return True
    return False
