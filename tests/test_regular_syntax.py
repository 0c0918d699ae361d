"""Every construct of both regex flavours, and every refusal by name."""

from __future__ import annotations

import re

import pytest

from plait.constrained.interface import ConstraintError
from plait.constrained.regular.languages import Languages

PYTHON = [
    ("", [""], ["a"]),
    ("colou?r", ["color", "colour"], ["colr", "xcolor", "color "]),
    ("a.c", ["abc", "a😀c", "a\rc"], ["a\nc", "ac", "abbc"]),
    ("(?s)a.c", ["a\nc"], ["ac"]),
    (r"\d+", ["12", "٣4"], ["", "1a"]),
    (r"(?a)\d+", ["12"], ["٣4"]),
    (r"^abc$", ["abc"], ["xabc", "abc\n"]),
    (r"\Aab\Z", ["ab"], ["ab\n"]),
    (r"a$\n", ["a\n"], ["a"]),
    (r"(?m)(^a$\n?)+", ["a", "a\na", "a\na\n"], ["aa", "\na"]),
    (r"(?x) a b # ab\n c", ["ab"], ["abc", "a b"]),
    ("(?x) a\\ [ ]b  # end\n c", ["a  bc"], ["abc"]),
    (r"(?i)straße", ["STRAßE", "StraẞE"], ["strasse"]),
    (r"(?i)[^k]", ["a"], ["K", "k", "\u212a"]),
    (r"(?i:ab)c", ["ABc", "abc"], ["abC"]),
    (r"(?i)a(?-i:b)", ["Ab"], ["AB"]),
    (r"[]a]+", ["]a]"], ["b"]),
    (r"[^]a]", ["b"], ["]", "a"]),
    (r"[a\-z]+", ["-az"], ["b"]),
    (r"[\b]", ["\b"], ["b"]),
    (r"[\1\12]+", ["\x01\n"], ["1"]),
    (r"\N{SNOWMAN}", ["☃"], ["N"]),
    (r"[\N{SNOWMAN}a]", ["☃", "a"], ["N"]),
    (r"x{,2}", ["", "xx"], ["xxx"]),
    (r"x{}", ["x{}"], ["x"]),
    (r"x{a}", ["x{a}"], ["x"]),
    (r"(?P<year>\d{4})-(?P<month>\d\d)", ["2024-01"], ["2024-1"]),
    (r"a(?#note)b", ["ab"], ["a"]),
    (r"(?:a|ab)(?:c|bcd)", ["ac", "abc", "abcd", "abbcd"], ["abd"]),
    (r"(?!foo)\w+", ["bar", "fo"], ["foo", "foobar"]),
    (r"^(?=.*\d)(?=.*[a-z]).{4,6}$", ["abc1", "1aaaaa"], ["abcd", "a1", "a123456"]),
    (r"((?!a)\w)", ["b"], ["a"]),
    (r"((?!ab|ba).)*", ["", "aa", "b"], ["aab", "ba"]),
    (r"a(?=b)\w+", ["ab", "abc"], ["ac", "a"]),
    (r"foo(?!bar).*", ["foo", "fooba"], ["foobar", "foobarx"]),
    (r"(?!a(?!b)).*", ["ab", "b", ""], ["a", "ac"]),
    (r"(?=(?:..)*$)a*", ["", "aa", "aaaa"], ["a", "aaa"]),
    (r"(?m)(?=a$)a\nb", ["a\nb"], ["a\n"]),
    (r"\x00\xff\u20ac\U0001F600", ["\x00ÿ€😀"], [""]),
    (r"(a*)*", ["", "aaa"], ["b"]),
    (r"(?:a?b??)*?c", ["c", "abac"], ["ab"]),
    (r"\bfoo\b.*", ["foo", "foo a"], ["fooa"]),
    (r".*\Bb", ["ab"], ["b", " b"]),
    (r"(?a).*é\bx", ["éx"], ["ax"]),
    (r".*(?<=a)b", ["ab", "xab"], ["b", "bb"]),
    (r".*(?<![\\a])b", ["b", "xb"], ["ab", "\\b"]),
    (r"(?<!a)b", ["b"], ["ab"]),
    (r"\p{Lu}\P{L}", ["É1"], ["é1", "ÉÉ"]),
    (r"(a{1,3}b){2,500}", ["abab", "aaabab"], ["ab", "aaaabab"]),
    (r"\w{1,1000}", ["é" * 1000], ["", "a" * 1001]),
    (r"(?:a|aa){1,3}", ["aaaaaa", "a"], ["a" * 7, ""]),
]
ECMA = [
    ("", ["", "anything"], []),
    ("ab", ["ab", "xaby", "\nab\n"], ["a", "ba"]),
    ("^ab", ["ab", "abx"], ["xab"]),
    ("ab$", ["ab", "xab"], ["abx", "ab\n"]),
    ("^a|b$", ["ax", "xb", "ab"], ["xa", "bx", "xax"]),
    ("^(a|b)$", ["a", "b"], ["ab", ""]),
    ("(^|,)x(,|$)", ["x", "a,x", "x,b", "a,x,b"], ["ax", "xb", "a,xb"]),
    ("(^a)?b$", ["ab", "b", "xb"], ["a"]),
    ("^$", [""], ["a", "\n"]),
    ("a^b", [], ["ab", "a^b"]),
    ("x*", ["", "y"], []),
    (r"^\d+$", ["12"], ["٣"]),
    (r"^\w$", ["_", "a"], ["é"]),
    (r"^\s$", [" ", "\u00a0", "\ufeff", "\u2028", "\u3000", "\v"], ["\u0085", "\x1c"]),
    (r"^\S\D\W$", ["ab-"], ["a1-"]),
    ("^.$", ["a", "😀", "\u0085"], ["\n", "\r", "\u2028", "\u2029"]),
    (r"^\cJ\cj\x41\u0042\u{1F600}\ud83d\ude00\0$", ["\n\nAB😀😀\0"], []),
    (r"^[\uD83D\uDE00-\uD83D\uDE02]$", ["😀", "😁"], ["a"]),
    (r"^[\u{1F600}-\u{1F602}\cI\b\-\0]+$", ["😁\t\b-\0"], ["a"]),
    (r"^\ud83d$", [], ["?", ""]),
    (r"^\p{L}+\p{Letter}\p{Lu}\p{gc=Ll}\p{General_Category=Nd}$", ["éaÀà٣"], ["1aÀà٣"]),
    (r"^\P{L}[^\p{L}][\P{L}]$", ["123"], ["a23"]),
    (r"^\p{Script=Greek}\p{sc=Grek}\p{IsGreek}\p{Greek}$", ["αβγΩ"], ["abgO"]),
    (r"^\p{Script=Cyrillic}\p{Han}\p{Latin}$", ["Ж日é"], ["日Жé"]),
    (r"^\p{ASCII}\p{Any}\p{Alphabetic}\pL$", ["a\n日a"], ["éaaa"]),
    (r"^\p{IsDigit}\p{Upper}\p{punct}$", ["1A!"], ["aA!"]),
    (r"^\.\*\+\?\(\)\[\]\{\}\|\/\^\$\\$", [".*+?()[]{}|/^$\\"], []),
    (r"^\-\_\@\"\'\ \#\é$", ["-_@\"' #é"], []),
    ("^{x}a{$", ["{x}a{"], []),
    ("^a]}$", ["a]}"], []),
    (r"^[\w-.]+$", ["a-."], ["+"]),
    (r"^[a-\d]+$", ["a-1"], ["b"]),
    ("^[]$", [], ["", "a"]),
    ("^[^]$", ["a", "\n"], [""]),
    ("^[[:alpha:]_[:^digit:]]$", ["a", "_", "-"], ["1"]),
    (r"^[[\]]+$", ["[]"], ["a"]),
    (r"\Aab\Z", ["ab"], ["xab", "abx", "ab\n"]),
    (r"^ab\z", ["ab"], ["abx"]),
    ("(?i)^ab", ["AB", "aBc"], ["xAB"]),
    (r"(?i)^[a-c]\w$", ["Ab", "CK"], ["d1"]),
    ("^(?i:a)b$", ["Ab"], ["aB"]),
    ("^(?s:.)(?-s:.)$", ["\na"], ["\n\n"]),
    ("^(?P<n>a)(?<m>b)$", ["ab"], []),
    ("^a(?#note)b$", ["ab"], []),
    ("^a+?b*?c??d{1,2}?$", ["ad", "aabbcdd"], ["d"]),
    ("^(?!-)[a-z-]+$", ["a-"], ["-a"]),
    ("^(?=.*a)(?=.*b).{2,3}$", ["ab", "xba"], ["aa", "abxx"]),
    ("^((?!foo).)*$", ["bar", "fo"], ["afoob"]),
    (r"\bfoo\b", ["foo", "a foo b"], ["food", "éfood"]),
    (r"^a\Bb", ["ab"], ["a"]),
    (r"^\B$", [""], []),
    ("(?<=a)b", ["ab", "xxab"], ["b", "bb"]),
    ("(?<!a|^)b", ["bb", "xb"], ["b", "ab"]),
    ("(?<=^|,)x$", ["x", "a,x"], ["ax"]),
    ("^(?:a{2,3}){2}$", ["aaaa", "aaaaaa"], ["aaa", "a" * 7]),
    ("^a{3,}$", ["aaa", "aaaaa"], ["aa"]),
    ("^a{0}b$", ["b"], ["ab"]),
]


@pytest.mark.parametrize("pattern, yes, no", PYTHON)
def test_python(pattern: str, yes: list[str], no: list[str]) -> None:
    language = Languages().regex(pattern)
    for text, expected in [*((text, True) for text in yes), *((text, False) for text in no)]:
        assert language.matches(text) == expected, text
        if r"\p" not in pattern:
            assert (re.fullmatch(pattern, text) is not None) == expected, text


@pytest.mark.parametrize("pattern, yes, no", ECMA)
def test_ecma(pattern: str, yes: list[str], no: list[str]) -> None:
    languages = Languages()
    language = languages.regex(pattern, "ecma")
    assert [text for text in yes if not language.matches(text)] == []
    assert [text for text in no if language.matches(text)] == []
    assert (language is languages.EMPTY) == (not yes)


@pytest.mark.parametrize(
    "pattern, message",
    [
        (r"(a)\1", "a back-reference at position 3, which is not supported; spell out what the group may be"),
        (r"(?P<n>a)(?P=n)", "a back-reference to a named group at position 8"),
        ("a(?>b)", "an atomic group at position 1, which is not supported; write (?:...)"),
        ("ab++", "a possessive quantifier at position 2, which is not supported; drop the '+'"),
        ("(a)(?(1)b|c)", "a conditional group at position 3"),
        ("(?<=ab)c", "a lookbehind that is not just one character at position 0"),
        ("(?<!ab)c", "match those characters instead of looking back"),
        (r"\p{Nonsense}", r"the Unicode property \p{Nonsense} at position 0"),
        (r"\P{Greek}", "the negation of the Unicode property Greek at position 0"),
        ("(a", "the regex is not valid: missing )"),
        ("a**", "the regex is not valid: multiple repeat at position 2"),
        ("[b-a]", "the regex is not valid: bad character range b-a"),
        (r"\y", r"the regex is not valid: bad escape \y"),
        ("(" * 3000 + ")" * 3000, "nested too deeply"),
        ("a{" + "9" * 5000 + "}", "a number in it is too large"),
        (r"\p{" + "is" * 5000 + "}", "the Unicode property"),
        ("a" * 1_000_001, "at most 1,000,000 are accepted"),
    ],
)
def test_python_refusals(pattern: str, message: str) -> None:
    with pytest.raises(ConstraintError) as error:
        Languages().regex(pattern)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "pattern, message",
    [
        (r"(a)\1", "a back-reference at position 3, which is not supported; spell out what the group may be"),
        (r"(?<n>a)\k<n>", "a back-reference to a named group at position 7"),
        ("a(?>b)", "an atomic group at position 1, which is not supported; write (?:...)"),
        ("ab*+", "a possessive quantifier at position 2, which is not supported; drop the '+'"),
        ("(?(1)b|c)", "a conditional group at position 0"),
        ("(?<=ab)c", "a lookbehind that is not just one character at position 0"),
        (r"\p{Nonsense=x}", r"the Unicode property \p{Nonsense=x} at position 0"),
        (r"[^\p{Greek}]", "the negation of the Unicode property Greek at position 2"),
        ("x{,5}", "the repeat {,5} at position 1, which is not supported; write {0,5}"),
        (r"\h", r"the escape \h, which ECMA-262 does not know at position 0"),
        (r"[\a]", r"the escape \a, which ECMA-262 does not know at position 1"),
        (r"\xZZ", r"the escape \x, which"),
        (r"\012", r"the escape \0, which"),
        ("(a", "a missing ), for the ( that opens at position 0"),
        ("a)", "unbalanced parenthesis at position 1"),
        ("[a", "a class without its closing ] at position 0"),
        ("*a", "nothing to repeat at position 0"),
        ("^*", "nothing to repeat at position 1"),
        ("a|+", "nothing to repeat at position 2"),
        ("a{2}{3}", "multiple repeat at position 4; put the inner repeat in a group"),
        ("a{1," + "9" * 5000 + "}", "a repeat whose bound has more than 18 digits at position 1"),
        (r"\p{" + "is" * 5000 + "}", "the Unicode property"),
        ("a{3,2}", "the minimum of a repeat is above its maximum at position 1"),
        ("[b-a]", "the reversed range b-a at position 1"),
        ("a\\", "a backslash at the end at position 1"),
        ("[\\", "a backslash at the end at position 1"),
        (r"\p{L", r"a \p{ without its } at position 0"),
        (r"\u{110000}", "a code point above 10FFFF at position 0"),
        ("(?#a", "an unterminated comment at position 0"),
        ("a(?i)b", "flags that are not at the start at position 1; write (?i:...)"),
        ("(?<n>a)(?<n>b)", "the group name 'n' is used twice at position 7"),
        ("(?L:a)", "the locale flag at position 0"),
        ("(?%a)", "the group (?% at position 0"),
        ("(" * 101 + ")" * 101, "nested too deeply: at most 100 groups may stand inside one another"),
        ("a" * 1_000_001, "at most 1,000,000 are accepted"),
    ],
)
def test_ecma_refusals(pattern: str, message: str) -> None:
    with pytest.raises(ConstraintError) as error:
        Languages().regex(pattern, "ecma")
    assert message in str(error.value)


def test_alternation_of_literals_is_a_trie() -> None:
    languages = Languages()
    words = [f"w{number * 7919}" for number in range(1000)]
    assert languages.regex("|".join(words)) is languages.literals(words)
    assert len(languages.regex("(?:" + "|".join(words) + ")x").edges()[0][2].edges()) == 10


def test_same_language_same_object() -> None:
    languages = Languages()
    for a, b in [
        ("ab|ac", "ac|ab"),
        ("a|b|c", "[a-c]"),
        ("(?:a*)*", "a*"),
        ("(?:a+)?", "a*"),
        ("a{2}{1}".replace("}{", "}(?:){"), "a{2}"),
        ("(?:a{2,3}){2}", "a{4,6}"),
        ("(?:)a()", "a"),
        ("a|a", "a"),
        ("(?i)k", "[kK\u212a]"),
    ]:
        assert languages.regex(a) is languages.regex(b), (a, b)
    assert languages.regex("^a{2,9}", "ecma") is languages.regex("^a{2}", "ecma")
    assert languages.regex("a{2,9}$", "ecma") is languages.regex("a{2}$", "ecma")
    assert languages.regex(".*", "ecma") is languages.ANY
    assert languages.regex("^.*$", "ecma") is not languages.ANY  # a line break


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(?i)[\W\n\x61]", r"(?i)\W", r"(?i)[a-zß-ÿ]", "(?i)[^a-z]", "(?i)k", "(?i)ſ", "(?ai)[a-z]", "(?i)ǆ"),
        *("(?i)[Ⓐ-Ⓩ]", "(?i)[h-j]", "(?i)σ", r"(?i)[^\s\x41]", "(?i)\u0345", r"(?i)[^\u0345]", "(?ai)[^K]"),
    ],
)
def test_case_is_folded_as_python_does(pattern: str) -> None:
    language, compiled = Languages().regex(pattern), re.compile(pattern)
    members = {code for low, high, _ in language.edges() for code in range(low, min(high, 0x2FFFF) + 1)}
    expected = {c for c in range(0x30000) if not 0xD800 <= c < 0xE000 and compiled.fullmatch(chr(c))}
    assert members == expected
