"""GBNF and EBNF: what is read, and errors with their place."""

from __future__ import annotations

import pytest
from grammar_kit import LANGUAGES, accepts, of_grammar, short_texts, start_of

from plait.constrained.grammar import detect
from plait.constrained.interface import ConstraintError
from plait.constrained.pushdown.rules import Lexeme, Rules


@pytest.mark.parametrize(
    ("grammar", "valid", "invalid"),
    [
        ('root ::= "" | "(" root ")" | "[" root "]" | root root\n', ["", "()[]", "([()])()"], ["(", ")(", "(]"]),
        (
            'root ::= "[" item ("," item){1,3} "]"\nitem ::= [0-9]{1,2}\n',
            ["[1,22]", "[1,2,3,44]"],
            ["[1]", "[1,2,3,4,5]", "[111,2]"],
        ),
        (
            """
            # comment
            root ::= expr   # trailing
            expr ::= expr "+" term
               | expr "-" term | term
            term ::= term "*" factor | factor
            factor ::= [0-9]+ | "(" expr ")"
            """,
            ["1+2*(3-4)", "12"],
            ["1+", "", "(1"],
        ),
        (r'root ::= "\x41\u00e9\U0001F600\n\t\\\"" [\]a\-c]', ['Aé😀\n\t\\"]', 'Aé😀\n\t\\"-'], ['Aé😀\n\t\\"b']),
        ('root ::= [^a-c"]{2}', ["éz", "日本"], ["ab", "z", 'z"']),
        ("root ::= . .?", ["é", "😀x", "\n"], ["", "abc"]),
        ("root ::= 'single' | /re[gG]ex{2,}\\/(?i:x)/", ["single", "reGexx/X"], ["regex/x"]),
        ('root ::= my-rule.v2 "x"*\nmy-rule.v2 ::= "r"', ["r", "rxx"], ["x"]),
        ('root ::= a\na ::= "x"{2} | "y"{,2} | "z"{3,}', ["xx", "", "yy", "zzzz"], ["x", "yyy", "zz"]),
        ('root ::= ("a" ("b" | "")){2,3} "."', ["aba.", "aaa.", "ababab."], ["ab.", "aaaa."]),
        ('root ::= ("(" root ")"){0,2} "x"', ["x", "(x)x", "((x)(x)x)x"], ["(x)(x)(x)x"]),
        ('root ::=\n  "a" |\n  "b"\n', ["a", "b"], ["ab"]),
    ],
)
def test_texts(grammar: str, valid: list[str], invalid: list[str]) -> None:
    made = of_grammar(grammar)
    for text in valid:
        assert accepts(made, text), text
    for text in invalid:
        assert not accepts(made, text), text


def test_a_regular_grammar_is_one_lexeme() -> None:
    rules = Rules()
    start = start_of(
        'root ::= sign? digits frac?\nsign ::= "-"\ndigits ::= digits digit | digit\ndigit ::= [0-9]\n'
        'frac ::= "." more\nmore ::= digit rest\nrest ::= more | ""\n',
        rules,
    )
    ((item,),) = rules.productions(start)
    assert isinstance(item, Lexeme)
    assert item.language.matches("-12.50") and not item.language.matches("12.")


def test_large_repeats_are_not_unrolled() -> None:
    made = of_grammar('root ::= ("<" root ">" | "x"){3,100000}')
    assert accepts(made, "xx<xxx>" * 50)
    assert not accepts(made, "xx")
    assert len(made.rules) < 1000


def test_repeats_in_a_row_are_one() -> None:
    assert short_texts(of_grammar('root ::= "a"' + "?" * 10_000), 3) == {"", "a"}
    for marks, fewest in (("??", 0), ("+?", 0), ("?+", 0), ("++", 1), ("*+", 0)):
        made = of_grammar(f'root ::= "a"{marks} root "b" | "c"')
        assert accepts(made, "cb") == (fewest == 0) and accepts(made, "acb")
        assert accepts(made, "aacb") == (marks != "??")


def test_the_start_rule() -> None:
    made = of_grammar('a ::= "x" b\nb ::= "y"', start="b")
    assert accepts(made, "y") and not accepts(made, "xy")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ("root ::= foo", r"line 1, column 10: rule 'foo' is not defined"),
        ('root ::= "a" | foo\nfo ::= "c"', r"line 1, column 16: .* did you mean 'fo'"),
        ('root ::= "a\n', r"line 1, column 10: the string that begins here has no closing"),
        ('root ::= "a"\nroot ::= "b"', r"line 2, column 1: rule 'root' is defined a second time \(first in line 1\)"),
        ('x ::= "a"', r"there is no rule 'root' to start with \(there are: x\)"),
        ("root ::= root", "rule root produces no text"),
        ('root ::= root "a"', "rule root produces no text"),
        ('root ::= ("a"', r"column 10: the group that begins here has no closing \)"),
        ('root ::= "a")', r"column 13: a \) without its \("),
        ("root ::= [a", r"column 10: the class that begins here has no closing \]"),
        ("root ::= [z-a]", "the range z-a is the wrong way round"),
        ('root ::= "a"\n\n  b ::= "a" (= "b")', r"line 3, column 13: lookahead assertions"),
        ('root ::= "a"{3,2}', "at least 3 and at most 2"),
        ("root ::= *", "nothing stands before '\\*'"),
        ('root = "a"', "write root ::= "),
        ("root ::= <[123]>", "token ids"),
        ("root ::= Token(1)", r"Token\(\.\.\.\) is not supported"),
        ('root ::= "\\q"', r"\\q is no escape"),
        ('root ::= "\\u12"', r"\\u needs 4 hexadecimal digits"),
        ('root ::= "\\ud800"', "no character"),
        ("root ::= /[/", "has no closing /"),
        ("root ::= /(a)\\1/", r"line 1, column 10: /\(a\)\\1/: "),
        ('root ::= "a" ;', "rules do not end in ;"),
        ('root ::= "a"{99999999}', "a repeat of more than"),
        ("root ::= " + "(" * 200 + '"a"' + ")" * 200, "nested deeper than 100"),
        ('root ::= "a"' + "{2}" * 9, "line 1, column 37: more than 8 repeats of one another"),
        ("hello", "begins with no rule"),
    ],
)
def test_errors_point(grammar: str, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        of_grammar(grammar)


def test_what_produces_nothing_is_left_out() -> None:
    made = of_grammar('root ::= "a" | "b" never | (never)? "c"\nnever ::= "x" never')
    assert accepts(made, "a") and accepts(made, "c")
    assert made.step(made.start, b"b") < 0 and made.step(made.start, b"x") < 0


def test_detection() -> None:
    assert detect("# c\n// d\nroot ::= x") == "ebnf"
    assert detect('?start: "a"') == "lark"
    assert detect("%import common.WS\nstart: WS") == "lark"
    with pytest.raises(ConstraintError, match="not known"):
        of_grammar("root ::= x", syntax="bnf")


def test_none_of_many_words_gets_a_language_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    literal = LANGUAGES.literal
    monkeypatch.setattr(LANGUAGES, "literal", lambda text: (made.append(text), literal(text))[1])
    words = [f"w{at:03}" for at in range(500)]
    rules = Rules()
    start_of('root ::= "(" root ")" | x | ' + " | ".join(f'"{w}"' for w in words) + '\nx ::= "y" | ("z" | "zz")', rules)
    assert len(made) < 3
    machine = of_grammar("root ::= x | [0-9]\nx ::= " + " | ".join(f'("{w}" "a")' for w in words) + ' | "7"')
    assert len(made) < 5
    assert accepts(machine, "w499a") and accepts(machine, "7") and not accepts(machine, "w499")


def test_strings_hold_the_other_quote_and_escapes() -> None:
    machine = of_grammar("""root ::= "it's \\"q\\" \\\\" '"' '\\'x"y' """)
    assert accepts(machine, """it's "q" \\"'x"y""")
