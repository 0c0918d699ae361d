"""Specifications: how forms combine, and errors that name the place."""

from __future__ import annotations

from typing import Any

import pytest
from grammar_kit import LANGUAGES, accepts, of_spec

from plait.constrained import spec
from plait.constrained.interface import ConstraintError
from plait.constrained.pushdown.rules import Lexeme, Rules

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("data", "valid", "invalid"),
    [
        ({"regex": "[ab]+"}, ["ab"], ["", "c"]),
        ({"literal": "a.b"}, ["a.b"], ["axb"]),
        ({"literal": ""}, [""], ["a"]),
        ({"choices": ["yes", "no", "yes!"]}, ["yes", "no", "yes!"], ["y", "yesno"]),
        ({"json_schema": OBJECT}, ['{"a":1}', '{"a": 1}', '{\n  "a": 1\n}'], ["{}", '{"a":  1}', '{"a":1.5}']),
        ({"json_schema": OBJECT, "options": {"whitespace": "compact"}}, ['{"a":1}'], ["{}", '{"a": 1}', '{"a":1.5}']),
        ({"json_schema": OBJECT, "options": {"whitespace": "single"}}, ['{"a":1}', '{"a": 1}'], ['{"a":  1}']),
        ({"json_schema": {"$ref": "x:y"}, "documents": {"x:y": {"const": 3}}}, ["3"], ["4"]),
        ({"grammar": 'root ::= "(" root? ")"'}, ["(())"], [""]),
        ({"grammar": 'a: "x"+', "syntax": "lark", "start": "a"}, ["xx"], [""]),
        ({"ready": "date"}, ["2024-02-29"], ["2024-02-30"]),
        ({"dtype": "int"}, ["-12", "0", "+7"], ["1.5", "1e5", "", "1" * 21]),
        ({"dtype": "float"}, ["-1.5", ".5", "3"], ["1e5", "1."]),
        ({"dtype": "bool"}, ["True", "False"], ["true"]),
        ({"dtype": "str"}, ['"a\\n"', '""'], ["a", '"']),
        (
            {"seq": [{"literal": "Answer: "}, {"any_of": [{"regex": "[0-9]+"}, {"literal": "unknown"}]}]},
            ["Answer: 42", "Answer: unknown"],
            ["Answer: ", "42"],
        ),
        ({"repeat": {"literal": "ab"}, "min": 1, "max": 2}, ["ab", "abab"], ["", "ababab"]),
        ({"repeat": {"literal": "a"}}, ["", "aaaa"], ["b"]),
        ({"repeat": {"literal": "a"}, "max": 0}, [""], ["a"]),
        ({"repeat": {"literal": "a"}, "min": 2, "separator": {"regex": ", ?"}}, ["a, a", "a,a,a"], ["a", "a,", ",a"]),
        ({"repeat": {"literal": "a"}, "max": 2, "separator": {"literal": ","}}, ["", "a", "a,a"], ["a,a,a"]),
        (
            {"repeat": {"json_schema": OBJECT}, "min": 1, "max": 3, "separator": {"literal": "\n"}},
            ['{"a":1}', '{"a":1}\n{"a":2}\n{"a":3}'],
            ["", '{"a":1}\n', '{"a":1}{"a":1}'],
        ),
        (
            {
                "repeat": {
                    "any_of": [
                        {"regex": "[a-z]*"},
                        {"seq": [{"literal": "<"}, {"json_schema": True}, {"literal": ">"}]},
                    ]
                }
            },
            ["", "abc", "a<1>b<[2]>"],
            ["<>", "<1"],
        ),
        (
            {"seq": [{"grammar": 'root ::= "a" root "b" | ""'}, {"grammar": 'root ::= "c" root "d" | "x"'}]},
            ["aabbccxdd", "x"],
            ["aabcx", "ab"],
        ),
    ],
)
def test_texts(data: Any, valid: list[str], invalid: list[str]) -> None:
    made = of_spec(data)
    for text in valid:
        assert accepts(made, text), text
    for text in invalid:
        assert not accepts(made, text), text


def test_regular_parts_are_one_lexeme() -> None:
    rules = Rules()
    data = {
        "seq": [
            {"literal": "x"},
            {
                "repeat": {"any_of": [{"regex": "a|b"}, {"choices": ["c", "dd"]}]},
                "max": 1000,
                "separator": {"literal": ","},
            },
            {"ready": "date"},
        ]
    }
    ((item,),) = rules.productions(spec.build(data, LANGUAGES, rules))
    assert isinstance(item, Lexeme)
    assert item.language.matches("xa,dd,b2024-01-01")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("x", "expected an object such as"),
        ({}, "give exactly one of regex, literal"),
        ({"regex": "a", "literal": "b"}, "there is 'regex' and 'literal'"),
        ({"regex": "a", "flags": "i"}, "'regex' has no field 'flags'"),
        ({"grammar": "a", "min": 1}, r"'grammar' has no field 'min' \(known: syntax, start\)"),
        ({"regex": 3}, "regex: expected a string, not 3"),
        ({"literal": "\ud800"}, "half of a surrogate pair"),
        ({"choices": []}, "choices: expected a list of at least one"),
        ({"choices": ["a", 1]}, r"choices\[1\]: expected a string"),
        ({"seq": [{"literal": "a"}, {"regex": "("}]}, r"seq\[1\]\.regex: "),
        (
            {"any_of": [{"seq": [{"repeat": {"dtype": "date"}}]}]},
            r"any_of\[0\]\.seq\[0\]\.repeat\.dtype: 'date' is not known",
        ),
        ({"repeat": {"literal": "a"}, "min": -1}, "min: expected a whole number from 0"),
        ({"repeat": {"literal": "a"}, "min": True}, "min: expected"),
        ({"repeat": {"literal": "a"}, "min": 3, "max": 2}, "max: 2 is below min, 3"),
        ({"repeat": {"literal": "a"}, "separator": 1}, "separator: expected an object"),
        ({"seq": [{"json_schema": {"type": "foo"}}]}, r"seq\[0\]\.json_schema: .*'type'"),
        ({"json_schema": {"type": "string", "enum": [1]}}, "no JSON value satisfies"),
        ({"json_schema": {}, "options": {"colour": 1}}, "colour"),
        ({"json_schema": {}, "options": 3}, "options: expected an object"),
        ({"seq": [{"grammar": "root ::= x"}]}, r"seq\[0\]\.grammar: EBNF, line 1, column 10: rule 'x' is not defined"),
        ({"grammar": "root ::= root"}, "rule root produces no text|it produces no text"),
        ({"regex": "[^\\s\\S]"}, "matches no text"),
        ({"grammar": 'root ::= "a"', "syntax": 1}, "syntax: expected a string"),
    ],
)
def test_errors_name_the_place(data: Any, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        of_spec(data)


def test_depth_is_bounded() -> None:
    data: Any = {"literal": "a"}
    for _ in range(200):
        data = {"repeat": data, "max": 2}
    with pytest.raises(ConstraintError, match="nested deeper than 100"):
        of_spec(data)


def test_undeclared_keys_come_where_they_are_asked_for_or_needed() -> None:
    open_object = {"type": "object", "properties": {"a": {"type": "null"}}}

    def writes(schema: object, text: str, **options: object) -> bool:
        return accepts(of_spec({"json_schema": schema, **({"options": options} if options else {})}), text)

    both, needed = '{"a":null,"b":1}', {**open_object, "minProperties": 2}
    assert writes(open_object, '{"a":null}') and not writes(open_object, both)
    assert writes(open_object, both, undeclared=True)
    assert writes({**open_object, "additionalProperties": True}, both)
    assert writes(needed, both), "nothing could be written without"
    assert writes({"type": "object"}, both), "nothing is declared"
    with pytest.raises(ConstraintError):
        of_spec({"json_schema": needed, "options": {"undeclared": False}})
