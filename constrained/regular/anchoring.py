"""The two ends of a pattern: a ``^`` in front or a ``$`` behind takes the place of "anything" there.

Nearly all anchors of real patterns vanish this way, also out of alternatives (``^a|b$``), and what is left is made of
sets and repeats only. Any other anchor stays, as a question to the place where it stands.
"""

from __future__ import annotations

from .nodes import START, Ahead, Alt, Behind, Node, Seq
from .terms import Arena


def leading(node: Node, prefix: Node, arena: Arena) -> Node:
    """``prefix`` and then ``node``, at the start of the text; a ``^`` at its front takes the prefix's place."""
    if not node.front & START:
        return arena.seq([prefix, node])
    if type(node) is Behind:
        return arena.NOTHING if node.mask == START and node.wanted else arena.seq([prefix, node])
    if type(node) is Alt:
        return arena.alt([leading(option, prefix, arena) for option in node.options])
    if type(node) is Seq and node.parts[0].front & START:
        first = node.parts[0]
        if type(first) is Behind and first.mask == START and first.wanted:
            return leading(arena.seq(node.parts[1:]), arena.NOTHING, arena)
        if type(first) is Alt:
            return arena.seq([leading(first, prefix, arena), *node.parts[1:]])
    return arena.seq([prefix, node])


def trailing(node: Node, suffix: Node, arena: Arena) -> Node:
    """``node`` and then ``suffix``, up to the end of the text; a ``$`` at its end takes the suffix's place."""
    if not _ends(node):
        return arena.seq([node, suffix])
    if type(node) is Alt:
        return arena.alt([trailing(option, suffix, arena) for option in node.options])
    if type(node) is Seq:
        return arena.seq([*node.parts[:-1], trailing(node.parts[-1], suffix, arena)])
    if type(node) is Ahead:
        if suffix is arena.NOTHING and node.guard.accepting:
            return arena.NOTHING
        if suffix is arena.anything and (whole := arena.node_of(node.guard)).plain:
            return whole
    return arena.seq([node, suffix])


def _ends(node: Node) -> bool:
    if type(node) is Alt:
        return any(_ends(option) for option in node.options)
    if type(node) is Seq:
        return bool(node.parts) and _ends(node.parts[-1])
    return type(node) is Ahead
