"""Small constraint cases with texts to accept and to reject: for every engine alike.

Cases in the style of public bug reports are rewritten, with other names and values. Labels are checked against
``re`` and ``jsonschema`` by test_constraint_backends.py; ``policy`` marks texts that are valid and refused on purpose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """``policy``: among ``reject``, texts that the language has but a stated policy of this project leaves out."""

    id: str
    spec: dict[str, Any]
    accept: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    refuse: bool = False


def regex(id: str, pattern: str, accept: str = "", reject: str = "", **more: Any) -> Case:
    """Texts apart by spaces; ``_`` stands for the empty text, ``~`` for a space, ``↵`` for a line end."""
    return Case(id, {"regex": pattern}, _texts(accept), _texts(reject), **more)


def _texts(given: str) -> tuple[str, ...]:
    return tuple("" if text == "_" else text.replace("~", " ").replace("↵", "\n") for text in given.split(" ") if text)


def grammar(id: str, text: str, accept: str, reject: str) -> Case:
    return Case(id, {"grammar": text, "syntax": "gbnf"}, _texts(accept), _texts(reject))


REGEXES = [
    regex("literal", r"plait", "plait", "plai plaits _"),
    regex("grouped repeat", r"#(?:[0-9a-f]{3}){1,2}", "#a0b #a0b1c2", "#a0 #a0b1 #a0b1c2d"),
    regex("optional fraction", r"-?\d+(\.\d+)?", "-1 3.25 0", "1. . -"),
    regex("escape then class", r"\[(?:[^\]\\]|\\.)*\]", r"[] [a\]b] [\\]", r"[ [\]"),
    regex("alternation by first match", r"(list|listen)(ed|ing)?", "list listen listed listening", "lis listenede"),
    regex("lazy quantifier", r"<.+?>", "<a> <a>b>", "<> <a"),
    regex("long count", r"[a-z]{1,2000}", "a " + "wq" * 900, "_ A " + "w" * 2001),
    regex("counted group", r"(?:ab|c){3}", "ababab abcc ccc", "abab cccc abc"),
    regex("unicode range", r"[à-ÿ]{2}", "éà çñ", "é e\u0301 ab"),
    regex("astral", r"[😀-🙏]+", "😀 😀🙏", "🚀 _"),
    regex("negated class", r"[^a-c\n]+", "xyz é日 😀", "a xa ↵"),
    regex("dot leaves line ends out", r"a.b", "axb aéb a.b", "a↵b ab"),
    regex("dotall", r"(?s)a.b", "a↵b axb", "ab"),
    regex("ignore case", r"(?i)true|no", "TRUE tRue NO", "tru yes"),
    regex("scoped flag", r"a(?i:b)c", "abc aBc", "Abc abC"),
    regex("anchors at the edges", r"^ab$", "ab", "abc ↵ab"),
    regex("unicode digits", r"\d{2}", "42 ४२", "4 ab"),
    regex("unicode words", r"\w+", "abc Größe x_1", "a-b é!"),
    regex("word boundary", r"\bcat\b x", "cat~x", "catx cat"),
    regex("lookahead", r"(?!00)\d{2}", "01 10 99", "00 0"),
    regex("lookahead in a loop", r"(?:(?!end)[a-z])*", "_ abc en", "end blend"),
    regex("line end in an alternative", "(red\nred|blue)", "red↵red blue", r"red red\nred red~red"),
    regex("empty alternative", r"a(b|)c", "abc ac", "abbc a"),
    regex("class of escapes", r"[\]\-\\^]+", r"]- \ ^", "a _"),
    regex("back-reference", r"(a|b)\1", refuse=True),
    regex("bare quantifier", r"+a", refuse=True),
    regex("open group", r"(ab", refuse=True),
]

CHOICES = [
    Case(
        "choices", {"choices": ["October", "Oct", "a.c", "x|y", "naïve"]}, ("Oct", "a.c", "x|y", "naïve"), ("abc", "x")
    ),
    Case("a literal", {"literal": 'say "hi"\n{x}'}, ('say "hi"\n{x}',), ("say", 'say "hi"\\n{x}')),
]

SCHEMAS = [
    Case(
        row["id"],
        {"json_schema": row["schema"], "options": {"whitespace": "single", "undeclared": True}},
        tuple(row.get("accept", ())),
        tuple(row.get("reject", ())),
        tuple(row.get("policy", ())),
        row.get("refuse", False),
    )
    for row in json.loads(Path(__file__).with_name("schema_cases.json").read_text("utf-8"))
]

GRAMMARS = [
    grammar("nested brackets", 'root ::= "" | "(" root ")" root', "_ () (())()", "( )( ())"),
    grammar("left recursion", 'root ::= root "+" [0-9] | [0-9]', "1 1+2+3", "+1 1+ _"),
    grammar("ambiguity", 'root ::= "a" | root root', "a aaaa", "_ b"),
    grammar("counted", 'root ::= "[" n ("," n){1,2} "]"\nn ::= [0-9]{1,2}', "[1,22] [1,2,3]", "[1] [1,2,3,4] [111,2]"),
    grammar("Cyrillic", 'root ::= [а-я]+ "!"?', "да нет!", "no ! да!!"),
]

CASES = [*REGEXES, *CHOICES, *SCHEMAS, *GRAMMARS]
