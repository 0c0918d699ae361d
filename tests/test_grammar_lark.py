"""The Lark subset: what is read, and errors with their place."""

from __future__ import annotations

import json

import pytest
from grammar_kit import LANGUAGES, accepts, of_grammar

from plait.constrained.interface import ConstraintError

CALC = """
    // comments of both kinds
    %import common.WS
    %import common (NUMBER, CNAME -> NAME)
    %ignore WS   # and here
    ?start: sum
    ?sum: product | sum "+" product -> add | sum "-" product -> sub
    ?product: atom
        | product "*" atom  -> mul
        | product "/" atom

    ?atom: NUMBER -> number
         | "-" atom
         | NAME
         | ("(" sum
           ")")
"""


@pytest.mark.parametrize(
    ("grammar", "valid", "invalid"),
    [
        (CALC, ["1+2", "1 + 2 * (3 - x)", " a ", "- - 3.5e1", "\n(1)"], ["1 +", "(", "1 2", ""]),
        ('start: "if"i ["x".."z"] ~ 2..3 /[a-c]+/i', ["iFxyA", "IFzzzabc", "ifxyc", "ifa"], ["ifx", "ifwxa"]),
        ('start: ["a"] "b"', ["ab", "b"], ["a"]),
        ('start: "a" ~ 3 | "b" ~ 1..2', ["aaa", "b", "bb"], ["aa", "bbb"]),
        ('start: list\nlist: item | list item\nitem: A | B\nA: "a"+\nB: A "b"', ["aab", "abaa"], ["b"]),
        ('start: A | B\nA: "list" | "listen"\nB: A "ed"', ["list", "listened", "listed"], ["listene"]),
        (
            'start: ab{2,3} T {2} ("x") {,1} "y" *\nab: "a" | "b"\nT: N { 1, }\nN: "1" | "2"',
            ["ab12", "aba121x"],
            ["a12", "ab1"],
        ),
        ("!start: _x\n_x: /\\/[a-z]\\/x/x", ["/q/x"], ["q"]),
        ('start: "\\u00e9\\n" "\\"" | ', ['é\n"', ""], ["é"]),
        ("%import common.ESCAPED_STRING -> S\nstart: S", ['"a\\"b"', '""'], ['"', '"\n"']),
        (
            "start: LINES\nLINES: /[a-z \\n]*/ & ~/(?s:.*)\\n\\n(?s:.*)/",
            ["", "a b\nc\n"],
            ["a\n\nb", "A"],
        ),
        (
            'start: N ("," N)*\nN: /[0-9]+/ & ~("0" | X) | "none"\nX: "1" ~ 2..3',
            ["12,1", "none,1111"],
            ["0", "1,11", "111"],
        ),
        ('start: a*\na: "(" a* ")"', ["", "()(())"], ["(", ")"]),
    ],
)
def test_texts(grammar: str, valid: list[str], invalid: list[str]) -> None:
    made = of_grammar(grammar)
    for text in valid:
        assert accepts(made, text), text
    for text in invalid:
        assert not accepts(made, text), text


def test_schemas_inside() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    made = of_grammar(f'start: "call " %json {json.dumps(schema)} ("," start)?')
    assert accepts(made, 'call {"a":1},call {"a":2}')
    assert not accepts(made, "call {}")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('start.2: "x"', r"line 1, column 6: priorities \(start\.n\) are not supported"),
        ('start{x}: "a"', "templates"),
        ('start: a{"x"}\na{x}: x', "templates"),
        ('start[capture]: "a"', "attributes"),
        ("%declare A\nstart: A", "%declare is not supported"),
        ('start: A\nA: A "x" | "y"', r"line 2, column 1: A refers to itself"),
        ('start: A\nA: B\nB: A | "x"', "refer to each other"),
        ('start: A\nA: b\nb: "x"', r"line 2, column 4: terminal A refers to the rule b"),
        ("%import common.FOO\nstart: FOO", r"line 1, column 16: common has no FOO"),
        ("%import python.NAME\nstart: NAME", "only %import common"),
        ('start: "a"..', "nothing that a rule can hold"),
        ('start: "b".."a"', "two characters in order"),
        ("start: /a/l", "regex flag 'l'"),
        ("start: /(/", r"line 1, column 8: /\(/: "),
        ('start: "a" & "b"', "& can only stand in a terminal"),
        ("start: ~/a/", "~ can only stand in a terminal"),
        ("start: A\nA: ~A", "A refers to itself"),
        ("start: <|end|>", "token ids"),
        ('start: a(\n"b"', r"line 1, column 9: the group that begins here has no closing \)"),
        ('start: "a"\nstart: "b"', "defined a second time"),
        ('start: %json {"type": "foo"}', r"line 1, column 8: %json: "),
        ('start: %json {"type"', "no JSON"),
        ("start: start", "the start produces no text"),
        ('root: "a"', "no rule 'start' to start with"),
        ('start: foo ~ "x"\nfoo: "a"', "write ~ n or ~ n..m"),
    ],
)
def test_errors_point(grammar: str, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        of_grammar(grammar)


def test_what_is_ignored_after_each_of_many_terminals_is_one_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    concat = LANGUAGES.concat
    monkeypatch.setattr(LANGUAGES, "concat", lambda *parts: (made.append(len(parts)), concat(*parts))[1])
    words = [f"w{at:03}" for at in range(500)]
    grammar = "%ignore / +/\nstart: word+ [NUMBER]\nNUMBER: /[0-9]+/\nword: " + " | ".join(f'"{w}"' for w in words)
    machine = of_grammar(grammar + ' | "x" "y"')
    for text in ["w000", " w499  w007 12 ", "w123w124", "x y w001"]:
        assert accepts(machine, text), text
    for text in ["w500", "w00 0", "12", "x w001"]:
        assert not accepts(machine, text), text
    assert len(made) < 20
