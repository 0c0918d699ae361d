"""Matchers and masks over small vocabularies, held against brute force over every token."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import build, compile_spec, load
from plait.constrained.interface import ConstraintError, Matcher
from plait.constrained.jump import first_crossing, settled_prefix
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown import native_library
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.vocabulary import Vocabulary

EOS, EOS2 = 0, 3

PIECES = (
    *("a", "b", "ab", "abc", "bc", "c", "{", "}", '"', '":', ":", ",", "name", '{"', '"a'),
    *("1", "12", "123", "\n", "é", "e", "x", "true", "tru"),
)
TOKENS: list[bytes | None] = [
    None,  # EOS
    *[piece.encode() for piece in PIECES[:2]],
    None,  # EOS2
    *[piece.encode() for piece in PIECES[2:]],
    b"\xf0\x9f\x98",  # three of an emoji's four bytes
    b"\x98\x80",
    b"a",  # the same bytes as an earlier id
    b" ",
    b"",
]


def vocabulary(tokens: list[bytes | None] = TOKENS, *, all_bytes: bool = True) -> Vocabulary:
    texts = [*tokens, *(bytes([b]) for b in range(256))] if all_bytes else list(tokens)
    made = Vocabulary(texts, size=len(texts) + 7, eos_ids=(EOS, EOS2), encode=lambda data: made.longest_tokens(data))
    return made


VOCABULARY = vocabulary()


def constraint(pattern: str, over: Vocabulary = VOCABULARY, lexicon: Lexicon | None = None) -> PushdownConstraint:
    compile_spec("regex", pattern)
    return build({"regex": pattern}, over, pattern, lexicon)


def bits(mask: np.ndarray) -> set[int]:
    assert mask.dtype == np.uint32
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def allowed(matcher: Matcher, over: Vocabulary = VOCABULARY) -> set[int]:
    """By trying every id on its own."""
    found = set()
    for token in range(over.size):
        probe = matcher.fork()
        if probe.advance(token):
            found.add(token)
    return found


PATTERNS = [
    r"abc",
    r"a*",
    r"(ab|abc)*c?",
    r"[a-c]{1,3}",
    r'\{"name": "[^"\n]*"\}',
    r"\d{1,4}(\.\d+)?",
    r"(?s).*",
    r".{0,3}",
    r"😀|é",
    r"true|false|tru",
    r"(?!ab)[abc]+",
]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_equal_brute_force(pattern: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(native_library, "available", lambda: False)
    made = constraint(pattern)
    rng = random.Random(1)
    for _ in range(6):
        matcher = made.matcher()
        for _ in range(6):
            mask = matcher.mask()
            assert mask.shape == (VOCABULARY.mask_words,)
            assert not mask.flags.writeable
            assert bits(mask) == allowed(matcher)
            assert bits(mask) & {EOS, EOS2} == ({EOS, EOS2} if matcher.accepting and not ended(matcher) else set())
            assert mask.any() or matcher.finished
            if not mask.any():
                break
            assert matcher.advance(rng.choice(sorted(bits(mask))))


def ended(matcher: Matcher) -> bool:
    """EOS was taken: nothing may follow, not even EOS again."""
    return matcher.finished and not bits(matcher.mask())


def test_special_padded_and_empty_ids_are_never_allowed_as_text() -> None:
    matcher = constraint(r"(?s).*").matcher()
    got = bits(matcher.mask())
    texts = {token for token in range(VOCABULARY.size) if VOCABULARY.bytes(token)}
    # a byte that cannot begin a character is not valid UTF-8 and so in no language
    assert got <= texts | {EOS, EOS2}
    assert {EOS, EOS2} <= got
    for token in (len(VOCABULARY.tokens) - 1, TOKENS.index(b"")):
        assert not matcher.advance(token)
    assert not matcher.advance(VOCABULARY.size)
    assert not matcher.advance(-1)


def test_eos_finishes_and_is_allowed_only_when_accepting() -> None:
    matcher = constraint("ab?").matcher()
    assert not matcher.advance(EOS)
    assert matcher.advance_bytes(b"a")
    assert matcher.accepting and not matcher.finished
    other = matcher.fork()
    assert matcher.advance(EOS) and matcher.finished and matcher.accepting
    assert not matcher.mask().any()
    assert not matcher.advance(EOS2)
    assert other.advance(EOS2) and other.finished
    matcher.rollback(1)
    assert not matcher.finished and matcher.advance_bytes(b"b") and matcher.finished


def test_refused_moves_do_not_move() -> None:
    matcher = constraint("abc").matcher()
    before = matcher.config
    assert not matcher.advance(TOKENS.index(b"bc"))
    assert not matcher.advance_bytes(b"abd")
    assert matcher.config == before
    with pytest.raises(ValueError, match="roll back 1"):
        matcher.rollback(1)
    assert matcher.advance_bytes(b"")
    matcher.rollback(1)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PATTERNS), st.data())
def test_rollback_and_fork_are_exact(pattern: str, data: st.DataObject) -> None:
    matcher = constraint(pattern).matcher()
    states = [matcher.config]
    for _ in range(data.draw(st.integers(0, 12))):
        if len(states) > 1 and data.draw(st.booleans()):
            back = data.draw(st.integers(0, len(states) - 1))
            fork = matcher.fork()
            matcher.rollback(back)
            assert fork.config == states[-1]
            del states[len(states) - back :]
        else:
            choices = sorted(bits(matcher.mask()))
            if not choices:
                break
            assert matcher.advance(data.draw(st.sampled_from(choices)))
            states.append(matcher.config)
        assert matcher.config == states[-1]


def test_forced_stops_at_choices_and_where_it_may_end() -> None:
    matcher = constraint(r'\{"name": "(x|y)"\}').matcher()
    assert matcher.forced() == b'{"name": "'
    assert matcher.advance_bytes(b'{"name": "')
    assert matcher.forced() == b""
    assert matcher.advance_bytes(b"x")
    assert matcher.forced() == b'"}'
    assert matcher.advance_bytes(b'"}')
    assert matcher.finished and matcher.forced() == b""
    assert constraint("ab(cd)?").matcher().forced() == b"ab"
    assert constraint("é|è").matcher().forced() == b"\xc3"
    assert constraint("a{300}").matcher().forced() == b"a" * 300
    assert constraint("").matcher().finished


def test_bytes_without_a_token_leave_the_language() -> None:
    over = vocabulary([None, b"a", b"b", None, b"ab", b"\xc3\xa9"], all_bytes=False)
    matcher = constraint("a(b|c)|é|cb", over).matcher()
    assert bits(matcher.mask()) == {1, 4}
    assert matcher.forced() == b"ab"
    with pytest.raises(ConstraintError, match="vocabulary"):
        load(compile_spec("regex", "c+a"), over, "c+a")


def test_the_mask_cache_is_bounded_and_shared_without_copies() -> None:
    lexicon = Lexicon(VOCABULARY)
    cache = lexicon.masks = MaskCache(max_bytes=5 * VOCABULARY.mask_words * 4)
    first, second = constraint("(a|bc){1,40}", lexicon=lexicon), constraint("a*b", lexicon=lexicon)
    assert first.matcher().mask() is first.matcher().mask()
    matcher = first.matcher()
    for _ in range(20):
        matcher.mask()
        assert matcher.advance_bytes(b"bc")
    assert cache.nbytes <= cache.max_bytes
    kept = second.matcher().mask()
    assert second.matcher().mask() is kept
    for _ in range(20):
        matcher.rollback(1)
        matcher.mask()
    assert np.array_equal(second.matcher().mask(), kept)
    assert 0 < cache.nbytes <= cache.max_bytes


# ---------------------------------------------------------------- jump-forward


def crossing_by_brute_force(matcher: Matcher, run: bytes, start: int, over: Vocabulary) -> bool:
    rest = run[start:]
    return any(
        len(data) > len(rest) and data.startswith(rest) and matcher.allows(run + data[len(rest) :])
        for data in over.tokens
    )


@pytest.mark.parametrize(
    "pattern",
    [
        r'\{"name": "[^"]*", "a": (1|2)\}',
        r'\{"name": "\d+"\}',
        "abc(a|b)",
        "ab(c)?",
        "abc",
        "true|trux",
        "😀a|😁b",
        "é1{3}[12]",
        "abca(bc)*",
    ],
)
def test_settled_tokens_are_canonical_and_never_crossed(pattern: str) -> None:
    made = constraint(pattern)
    rng = random.Random(3)
    held_somewhere = 0
    for _ in range(12):
        matcher = made.matcher()
        for _ in range(12):
            run = matcher.forced()
            ids, held = settled_prefix(matcher, VOCABULARY, run)
            assert (ids, held) == settled_prefix(matcher.fork(), VOCABULARY, run)
            settled = VOCABULARY.decode(ids)
            assert settled + held == run
            assert VOCABULARY.encode(run)[: len(ids)] == ids
            if run:
                edge = first_crossing(matcher, VOCABULARY.trie, run)
                for start in range(len(run)):
                    crosses = crossing_by_brute_force(matcher, run, start, VOCABULARY)
                    assert not crosses if start < edge else (crosses or start > edge)
                assert len(settled) <= edge
            held_somewhere += bool(held)
            for token in ids:
                assert token in bits(matcher.mask())
                assert matcher.advance(token)
            # every token that is a prefix of the held bytes stays allowed, and so does one that covers them
            mask = bits(matcher.mask())
            for end in range(1, len(held) + 1):
                token = VOCABULARY.id_of.get(held[:end])
                assert token is None or token in mask
            if not mask:
                break
            assert matcher.advance(rng.choice(sorted(mask)))
    assert held_somewhere or pattern in ("abc", "abc(a|b)", "é1{3}[12]", '\\{"name": "\\d+"\\}', "true|trux")


def test_a_run_that_ends_the_text_settles_whole() -> None:
    matcher = constraint("abc").matcher()
    assert settled_prefix(matcher, VOCABULARY, b"abc") == ([TOKENS.index(b"abc")], b"")


def test_a_longer_token_across_the_edge_holds_the_last_tokens_back() -> None:
    matcher = constraint('\\{"[a-z]+').matcher()
    ids, held = settled_prefix(matcher, VOCABULARY, matcher.forced())
    assert matcher.forced() == b'{"'
    # `"a` may start at the quote, so the token `{"`, which covers the quote, must wait
    assert (ids, held) == ([], b'{"')
    assert settled_prefix(matcher, VOCABULARY, b"") == ([], b"")
    with pytest.raises(ValueError, match="not allowed"):
        settled_prefix(matcher, VOCABULARY, b"x")


# ---------------------------------------------------------------- public reports, as right behaviour


def test_every_prefix_of_a_forced_text_stays_allowed() -> None:
    """guidance-ai/llguidance#263: not only the longest token that fits."""
    over = vocabulary([None, b"t", b"to", None, b"tober", b"tob", b"tok"])
    matcher = constraint("(October|August)", over).matcher()
    assert matcher.advance_bytes(b"Oc")
    assert matcher.forced() == b"tober"
    assert {over.id_of[b"t"], over.id_of[b"to"], over.id_of[b"tob"], over.id_of[b"tober"]} <= bits(matcher.mask())
    assert over.id_of[b"tok"] not in bits(matcher.mask())


def test_forced_bytes_may_stop_inside_a_character() -> None:
    """sgl-project/sglang#549: alternatives that share their leading UTF-8 bytes."""
    first, second = "领", "颈"  # e9 a2 86 and e9 a2 88
    tokens: list[bytes | None] = [None, first.encode(), first.encode()[:2], None, second.encode()]
    over = vocabulary(tokens)
    matcher = constraint(f'"({first}|{second})"', over).matcher()
    run = matcher.forced()
    assert run == b'"\xe9\xa2'
    ids, held = settled_prefix(matcher, over, run)
    # the whole-character tokens may start at 0xe9, so only the quote is settled
    assert (over.decode(ids), held) == (b'"', b"\xe9\xa2")
    assert matcher.advance(ids[0])
    assert bits(matcher.mask()) == {1, 2, 4, over.id_of[b"\xe9"]}
    assert matcher.advance(2) and matcher.forced() == b""
    assert matcher.advance(over.id_of[b"\x88"]) and matcher.forced() == b'"'
