"""What constraints of one vocabulary share."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from pushdown_kit import bits, json_rules, machine_of, mixed_vocabulary, small_vocabulary

from plait.constrained.charset import ALL
from plait.constrained.lexicon import Lexicon, lexicon_of, writable
from plait.constrained.pushdown.lexemes import LexemeTable
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.native_library import shared_bytes
from plait.constrained.pushdown.native_machine import NativeMachine
from plait.constrained.pushdown.rules import Lexeme

EVERY_BYTE = [bytes((value,)) for value in range(256)]


def vocabulary_without(missing: bytes) -> list[bytes]:
    return [data for data in EVERY_BYTE if data not in [bytes((value,)) for value in missing]]


def test_code_points_that_can_be_written() -> None:
    assert writable(small_vocabulary(EVERY_BYTE)) == ALL
    # bytes that UTF-8 never uses
    assert writable(small_vocabulary(vocabulary_without(b"\xc0\xc1\xf5\xff"))) == ALL
    assert writable(small_vocabulary([b"a", b"b", b"\xc3\xa9"])) == ((97, 98),)
    assert writable(small_vocabulary([b"a", b"\xc3", b"\xa9"])) == ((97, 97), (0xE9, 0xE9))


def test_every_code_point_is_writable_or_not() -> None:
    for missing in (b"\x80", b"\xbf\x90", b"\xe0\xed", b"\xf0z"):
        vocabulary = small_vocabulary(vocabulary_without(missing))
        ranges = writable(vocabulary)
        for code in [*range(0x900), *range(0x900, 0x110000, 997), 0xFFFF, 0x10FFFF, 0xD7FF, 0xE000]:
            if 0xD800 <= code <= 0xDFFF:
                continue
            spelled = not any(value in missing for value in chr(code).encode())
            known = any(low <= code <= high for low, high in ranges)
            assert known == spelled or (not known and code >= 0x10000)


def test_one_lexicon_while_it_lasts() -> None:
    vocabulary = mixed_vocabulary()
    lexicon = lexicon_of(vocabulary)
    assert lexicon_of(vocabulary) is lexicon
    assert lexicon_of(mixed_vocabulary()) is not lexicon
    lexicon.max_bytes = 0
    assert lexicon.full and lexicon_of(vocabulary) is not lexicon
    gone = weakref.ref(vocabulary)
    del vocabulary, lexicon
    gc.collect()
    assert gone() is None


def test_its_bytes_are_those_of_native_code_too() -> None:
    vocabulary = mixed_vocabulary()
    lexicon = Lexicon(vocabulary)
    before = lexicon.nbytes
    machine = machine_of(NativeMachine, lexicon, json_rules)
    for text in (b"", b'{"', b'{"name": "'):
        machine.mask(machine.step(machine.start, text))
    assert lexicon.nbytes - before >= shared_bytes(lexicon.lexemes) > 20 * vocabulary.trie.nodes


def test_masks_do_not_depend_on_what_was_compiled_before() -> None:
    vocabulary = mixed_vocabulary()
    shared = Lexicon(vocabulary)
    for at in range(3):
        machine = machine_of(Machine, shared, json_rules, f"{at}", shared.masks)
        fresh = machine_of(Machine, Lexicon(vocabulary), json_rules)
        for text in (b'{"na', b'{"name": "\xc3', b"[1", b'["\\u00'):
            here, there = machine.step(machine.start, text), fresh.step(fresh.start, text)
            assert np.array_equal(machine.mask(here), fresh.mask(there))
    assert shared.nbytes > 0


def test_lexeme_masks_are_bounded_and_made_again() -> None:
    vocabulary = mixed_vocabulary()
    lexicon = Lexicon(vocabulary)
    table = LexemeTable(lexicon.languages, vocabulary, max_mask_bytes=2000)
    char = lexicon.languages.chars(((97, 122),))
    states = [table.start(Lexeme(lexicon.languages.repeat(char, 0, high), True)) for high in range(1, 20)]
    first = [bits(table.mask(state).bits, vocabulary) for state in states]
    assert table._mask_bytes <= 2000
    for state, mask in zip(states, first, strict=True):
        assert np.array_equal(bits(table.mask(state).bits, vocabulary), mask)


def test_rows_outlive_growth() -> None:
    vocabulary = small_vocabulary(EVERY_BYTE)
    lexicon = Lexicon(vocabulary)
    table, languages = lexicon.lexemes, lexicon.languages
    state = first = table.start(Lexeme(languages.literal("x" * 3000)))
    generation = table.generation
    seen = [state]
    for _ in range(3000):
        assert table.only[state] in (-3, ord("x"))
        state = table.next(state, ord("x"))
        seen.append(state)
    assert table.generation > generation and table.accept[state] == 2
    table.fill(state)
    assert table.only[state] == -1
    at = first
    for want in seen[1:]:
        at = int(table.rows[at, ord("x")])
        assert at == want
