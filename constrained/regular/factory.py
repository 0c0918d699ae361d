"""``Factory``: hash-conses syntax nodes, in a normal form that keeps terms few.

Literals side by side are one node, so are sets side by side in an alternative; a set of words is a trie; alternatives
that begin alike are factored; a repeat of a repeat is one repeat where that is the same; what stands beside "anything"
loses the counts that do not matter there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..charset import ALL, Ranges
from .alphabet import Alphabet, CharSet
from .language import Language
from .nodes import START, Ahead, Alt, Behind, Chars, Embedded, Node, Repeat, Seq, Words

#: longest string that one node spells out; longer literals are chunks, so that suffixes stay short
CHUNK = 48


class Factory:
    """The tables of nodes over one universe. All makers return the same object for the same arguments."""

    def __init__(self, universe: Ranges = ALL) -> None:
        self.alphabet = Alphabet(universe)
        self._whole = universe == ALL
        self._chars: dict[CharSet, Chars] = {}
        self._words: dict[tuple[str, ...], Node] = {}
        self._nodes: dict[tuple[object, ...], Node] = {}
        #: classes as they were written, for the parsers
        self.classes: dict[tuple[object, ...], Node] = {}
        #: sets of code points that something asks of the code point before; number i is bit i + 1 of a kind
        self.tested: list[CharSet] = []
        #: objects made, for the memory estimate
        self._made = 0
        self.NOTHING = Seq(())
        self.FAIL = Node(0, 0, False, plain=False, pure=False)
        self.any_char = self.chars_node(self.alphabet.all)
        self.anything = self.repeat_node(self.any_char, 0, None)

    def chars_node(self, chars: CharSet) -> Node:
        if not chars.ranges:
            return self.FAIL
        found = self._chars.get(chars)
        if found is None:
            found = self._chars[chars] = Chars(chars)
        return found

    def text_node(self, text: str) -> Node:
        """Just ``text``."""
        return self.sorted_words((text,)) if self.spells(text) else self.FAIL

    def spells(self, text: str) -> bool:
        """Whether all of ``text`` is in the universe."""
        return self._whole or all(self.alphabet.one(ord(char)).ranges for char in text)

    def words_node(self, texts: Iterable[str]) -> Node:
        """One of ``texts``; those with a code point outside of the universe are left out."""
        words = sorted(set(texts))
        allowed = {char for char in set("".join(words)) if self.alphabet.one(ord(char)).ranges}
        words = [word for word in words if allowed.issuperset(word)]
        if not words:
            return self.FAIL
        return self.sorted_words(tuple(words))

    def sorted_words(self, words: tuple[str, ...]) -> Node:
        found = self._words.get(words)
        if found is None:
            found = self._words[words] = self._make_words(words)
            self._made += len(words)
        return found

    def _make_words(self, words: tuple[str, ...]) -> Node:
        if len(words) == 1:
            word = words[0]
            if len(word) > CHUNK:
                return Seq(tuple(self.sorted_words((word[at : at + CHUNK],)) for at in range(0, len(word), CHUNK)))
            if not word:
                return self.NOTHING
        if all(len(word) == 1 for word in words):
            return self.chars_node(self.alphabet.join([self.alphabet.one(ord(word)) for word in words]))
        return Words(words)

    def remembers(self) -> None:
        """A node keeps an answer."""
        self._made += 1

    def seq(self, parts: Iterable[Node]) -> Node:
        """Flattened; neighbouring literals are joined, and repeats beside ``anything`` lose their upper bound."""
        found: list[Node] = []
        text = ""
        for part in self._flat(parts):
            if part is self.FAIL:
                return part
            piece = _literal(part)
            if piece:
                text += piece
                continue
            if text:
                found.append(self.sorted_words((text,)))
                text = ""
            if part is self.anything:
                while found and found[-1].nullable:
                    found.pop()
            if found and found[-1] is self.anything and part.plain:
                if part.nullable:
                    continue
                if type(part) is Repeat:
                    part = self.repeat_node(part.body, part.low, part.low)
            found.append(part)
        if text:
            found.append(self.sorted_words((text,)))
        if len(found) == 1:
            return found[0]
        if not found:
            return self.NOTHING
        key = ("seq", *found)
        node = self._nodes.get(key)
        if node is None:
            flat: list[Node] = []
            for part in found:
                flat.extend(part.parts if type(part) is Seq else (part,))
            node = self._nodes[key] = Seq(tuple(flat))
            self._made += 1 + len(flat)
        return node

    def _flat(self, parts: Iterable[Node]) -> Iterable[Node]:
        for part in parts:
            if type(part) is Seq:
                yield from part.parts
            else:
                yield part

    def alt(self, options: Iterable[Node]) -> Node:
        """Flattened, without doubles; sets are joined, literals become one trie, common first nodes are factored."""
        chars: list[CharSet] = []
        words: list[str] = []
        others: dict[Node, None] = {}
        optional = False
        flat: list[Node] = []
        for option in options:
            flat.extend(option.options if type(option) is Alt else (option,))
        for option in flat:
            if type(option) is Chars:
                chars.append(option.set)
            elif type(option) is Words:
                words.extend(option.words)
            elif option is self.NOTHING:
                optional = True
            elif option is not self.FAIL:
                others[option] = None
        made: list[Node] = []
        if words and chars:
            words.extend(chr(one.single) for one in chars if one.single >= 0)
            chars = [one for one in chars if one.single < 0]
        if words:
            made.append(self.words_node(words))
        if chars:
            made.append(self.chars_node(self.alphabet.join(chars)))
        made.extend(self._factored(list(others)) if len(others) > 3 else others)
        if optional:
            if len(made) == 1:
                return self.repeat_node(made[0], 0, 1)
            if not any(node.nullable for node in made):
                made.append(self.NOTHING)
        if not made:
            return self.NOTHING if optional else self.FAIL
        if len(made) == 1:
            return made[0]
        key = ("alt", *made)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Alt(tuple(made))
            self._made += 1 + len(made)
        return node

    def _factored(self, options: list[Node]) -> list[Node]:
        """Sequences that begin with the same node, as that node and the alternatives after it."""
        groups: dict[Node, list[Node]] = {}
        for option in options:
            first = option.parts[0] if type(option) is Seq and option.parts else option
            groups.setdefault(first, []).append(option)
        if len(groups) == len(options):
            return options
        found: list[Node] = []
        for group in groups.values():
            if len(group) == 1:
                found.append(group[0])
            else:
                rows = [one.parts if type(one) is Seq else (one,) for one in group]
                same = 1
                while all(len(row) > same and row[same] is rows[0][same] for row in rows):
                    same += 1
                found.append(self.seq([*rows[0][:same], self.alt([self.seq(row[same:]) for row in rows])]))
        return found

    def repeat_node(self, body: Node, low: int, high: int | None) -> Node:
        if high == 0 or body is self.NOTHING:
            return self.NOTHING
        if body is self.FAIL:
            return self.FAIL if low else self.NOTHING
        if low == 1 and high == 1:
            return body
        key = (body, low, high)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self._make_repeat(body, low, high)
            self._made += 1
        return node

    def _make_repeat(self, body: Node, low: int, high: int | None) -> Node:
        if body.longest == 0:  # only asks something: once is as good as often
            return body if low else self.NOTHING
        if body.nullable:
            low = 0
        if type(body) is Repeat:
            inner_low, inner_high = body.low, body.high
            # k rounds read inner_low * k to inner_high * k; no gap between one k and the next
            dense = inner_low <= 1 if low == 0 else True
            if dense and inner_high is not None and low != high:
                dense = (max(low, 1) + 1) * inner_low <= max(low, 1) * inner_high + 1
            if dense:
                top = None if inner_high is None or high is None else inner_high * high
                return self.repeat_node(body.body, inner_low * low, top)
        return Repeat(body, low, high)

    def embedded(self, language: Language) -> Node:
        key = ("language", language)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Embedded(language)
            self._made += 1
        return node

    def ahead(self, guard: Language) -> Node:
        key = ("ahead", guard)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Ahead(guard)
            self._made += 1
        return node

    def behind(self, start: bool, chars: CharSet | None, wanted: bool) -> Node:
        """Whether the place is the start (if ``start``) or follows one of ``chars``; must be ``wanted``."""
        mask = START if start else 0
        if chars is not None and chars.ranges:
            if chars not in self.tested:
                self.tested.append(chars)
            mask |= 2 << self.tested.index(chars)
        key = ("behind", mask, wanted)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Behind(mask, wanted)
        return node


def _literal(node: Node) -> str:
    """The text, if the node is just one string."""
    if type(node) is Chars:
        return chr(node.set.single) if node.set.single >= 0 else ""
    if type(node) is Words and len(node.words) == 1:
        return node.words[0]
    return ""
