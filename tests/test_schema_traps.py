"""What engines for JSON Schema get wrong: each line of research/constrained.md section 4 as a test."""

from __future__ import annotations

import json
from typing import Any

import pytest
from schema_kit import Written

from plait.constrained.interface import ConstraintError

ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^\\d{5}$"}},
}

#: schema, values it writes, values it does not
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "pattern is a search": ({"type": "string", "pattern": "b+"}, ["b", "abba", "xb"], ["", "a"]),
    "alternation stays inside its quotes": (
        {"type": "string", "pattern": "^a|b$"},
        ["ax", "xb", "a"],
        ["xa", "bx", "c"],
    ),
    "lengths are in characters": (
        {"type": "string", "minLength": 2, "maxLength": 3},
        ["éü", "日本語", "😀😀"],
        ["é", "😀", "abcd"],
    ),
    "a keyword without type": ({"maxLength": 2}, ["ab", 12345, [1, 2, 3], {"abc": 1}, None], ["abc"]),
    "minimum without type": ({"minimum": 5}, [5, "a", None, {}], [4, -1]),
    "required without type": ({"required": ["a"]}, [{"a": 1}, 3, "x", []], [{}, {"b": 1}]),
    "items without type": ({"items": {"type": "integer"}}, [[1], [], "a"], [["a"], [1, None]]),
    "siblings of $ref": (
        {"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string", "minLength": 2}}},
        ["ab"],
        ["a", "abc", 3],
    ),
    "siblings of anyOf": (
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "minimum": 3, "minLength": 2},
        [3, "ab"],
        [2, "a", None],
    ),
    "siblings of allOf": (
        {"allOf": [{"properties": {"a": {"type": "integer"}}}], "required": ["a"], "additionalProperties": False},
        [],
        [{"a": 1}, {}],
    ),
    "allOf merges": (
        {
            "type": "object",
            "allOf": [{"properties": {"a": {"minimum": 2}}, "required": ["a"]}, {"properties": {"a": {"maximum": 4}}}],
        },
        [{"a": 3}, {"a": 2, "b": None}],
        [{"a": 1}, {"a": 5}, {}],
    ),
    "oneOf is exclusive": (
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]},
        [-1, 11],
        [0, 5, 10, "a"],
    ),
    "oneOf of objects is exclusive": (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
        [{"a": 1}, {"b": 1}, {"b": 1, "c": 2}],
        [{}, {"a": 1, "b": 1}],
    ),
    "not": ({"type": ["string", "integer"], "not": {"enum": ["a", 1]}}, ["b", 2], ["a", 1]),
    "not of an object": (
        {"type": "object", "not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}},
        [{}, {"a": 1}, {"b": "x"}],
        [{"a": "x"}, {"a": "x", "b": 1}],
    ),
    "if, then and else": (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "b"]}, "x": {}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["x"]},
            "else": {"properties": {"x": False}},
        },
        [{"kind": "a", "x": 1}, {"kind": "b"}],
        [{"kind": "a"}, {"kind": "b", "x": 1}],
    ),
    "dependentRequired": (
        {"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}, "type": "object"},
        [{"a": 1, "b": 2}, {"b": 2}, {}],
        [{"a": 1}],
    ),
    "dependentSchemas": (
        {"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}},
        [{"a": 1, "b": 2}, {"b": "x"}, {}],
        [{"a": 1, "b": "x"}, {"a": 1}],
    ),
    "patternProperties over properties": (
        {"type": "object", "properties": {"ab": {"minimum": 2}}, "patternProperties": {"^a": {"type": "integer"}}},
        [{"ab": 2}, {"ac": 1}, {"b": "x"}],
        [{"ab": 1}, {"ab": 2.5}, {"ac": "x"}],
    ),
    "overlapping patternProperties": (
        {
            "patternProperties": {"a": {"minimum": 2}, "b": {"maximum": 5}},
            "additionalProperties": False,
            "type": "object",
        },
        [{"ab": 3}, {"a": 9}, {"b": 0}],
        [{"ab": 1}, {"ab": 6}, {"c": 1}],
    ),
    "additionalProperties beside patterns": (
        {
            "type": "object",
            "properties": {"a": {}},
            "patternProperties": {"^x": {}},
            "additionalProperties": {"type": "null"},
        },
        [{"a": 1, "x1": 2, "other": None}],
        [{"other": 1}],
    ),
    "propertyNames": ({"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}, {}], [{"abc": 1}]),
    "minProperties and maxProperties": (
        {"type": "object", "properties": {"a": {}}, "minProperties": 2, "maxProperties": 3},
        [{"a": 1, "b": 2}, {"x": 1, "y": 2, "z": 3}],
        [{}, {"a": 1}, {"a": 1, "b": 1, "c": 1, "d": 1}],
    ),
    "1.0 is no integer to write": ({"type": "integer"}, [1, -3, 0], [1.0, 1.5, -0.0]),
    "integer bounds": ({"type": "integer", "minimum": -5, "exclusiveMaximum": 120}, [-5, 0, 99, 119], [-6, 120, 1000]),
    "number bounds": (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        [0.5, 1, 1.5, 1e-7, 0.1],
        [0, -0.0, 1.6, 2, 1e1, -1],
    ),
    "multipleOf with decimals": ({"type": "number", "multipleOf": 0.1}, [0.3, 1.1, 2, 0], [0.35, 1.01]),
    "prefixItems without minItems": (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[], [1], [1, "a"]],
        [["a"], [1, 2], [1, "a", 3]],
    ),
    "maxItems 0": ({"type": "array", "maxItems": 0}, [[]], [[1]]),
    "minItems and maxItems": ({"type": "array", "minItems": 1, "maxItems": 2}, [[1], [1, "a"]], [[], [1, 2, 3]]),
    "contains": (
        {"type": "array", "contains": {"type": "string"}, "minContains": 2, "maxContains": 3},
        [["a", 1, "b"], ["a", "b", "c"]],
        [["a"], [1, 2], ["a", "b", "c", "d"]],
    ),
    "uniqueItems": (
        {"type": "array", "uniqueItems": True},
        [[1, 2], [1, True, "1"], [{"a": 1}, {"a": 2}], [[1], [2]]],
        [[1, 1], [1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[], []]],
    ),
    "enum of mixed types": (
        {"enum": [1, "a", None, [1, {"b": 2}], {"c": [3]}]},
        [1, "a", None, [1, {"b": 2}], {"c": [3]}],
        ["b", [1], {"c": [4]}, True],
    ),
    "const is not equal to its look-alike": ({"const": True}, [True], [1, "true"]),
    "unevaluatedProperties sees through allOf": (
        {
            "type": "object",
            "allOf": [{"properties": {"a": {}}}],
            "properties": {"b": {}},
            "unevaluatedProperties": False,
        },
        [{"a": 1}, {"b": 1}, {"b": 1, "a": 2}, {}],
        [{"c": 1}],
    ),
    "unevaluatedProperties sees the branch that holds": (
        {
            "type": "object",
            "oneOf": [
                {"properties": {"a": {"const": 1}}, "required": ["a"]},
                {"properties": {"b": {"const": 2}}, "required": ["b"]},
            ],
            "unevaluatedProperties": False,
        },
        [{"a": 1}, {"b": 2}],
        [{"a": 1, "b": 3}, {"a": 1, "c": 3}],
    ),
    "unevaluatedItems after contains": (
        {"type": "array", "prefixItems": [True], "contains": {"type": "string"}, "unevaluatedItems": False},
        [[1, "a"], ["a"], [1, "a", "b"]],
        [[1, 2, "a"], [1]],
    ),
    "recursion": (
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    "type": "object",
                    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}},
                    "required": ["v"],
                    "additionalProperties": False,
                }
            },
        },
        [{"v": 1}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}],
        [{"next": {"v": 1}}, {"v": 1, "next": {}}],
    ),
    "an unknown format is an annotation": ({"type": "string", "format": "shoe-size"}, ["anything"], []),
    "a known format is asserted": ({"format": "date"}, ["2024-02-29", 5], ["2023-02-29", "x"]),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    schema, held, refused = CASES[name]
    try:
        written = Written(schema)
    except ConstraintError:
        assert not held
        return
    for value in held:
        assert written.writes(value), value
    for value in refused:
        assert not written.writes(value), value


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"not": {}},
        {"enum": []},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "^a", "enum": ["b"]},
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {"type": "integer", "multipleOf": 10, "minimum": 11, "maximum": 19},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 1}], "minItems": 2, "uniqueItems": True},
        {"type": "array", "items": {"type": "integer"}, "contains": {"type": "string"}},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {
            "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}},
            "$ref": "#/$defs/n",
        },
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"oneOf": [True, True]},
        {"type": "string", "oneOf": [{"minLength": 1}, {"maxLength": 4}, {"pattern": "^"}], "maxLength": 4},
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_what_nothing_satisfies_is_refused(schema: Any) -> None:
    with pytest.raises(ConstraintError, match="no JSON value satisfies this schema"):
        Written(schema)


def test_optional_parts_that_nothing_satisfies_never_begin() -> None:
    written = Written(
        {
            "type": "object",
            "properties": {"a": {"not": {}}, "b": {"$ref": "#/$defs/n"}},
            "additionalProperties": False,
            "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1}},
        }
    )
    assert written.forced() == "{}"
    assert Written({"type": "array", "items": False}).forced() == "[]"
    assert (
        Written({"anyOf": [{"type": "array", "minItems": 1, "items": {"enum": []}}, {"const": "x"}]}).forced() == '"x"'
    )


def test_additional_keys_never_equal_listed_ones_however_spelled() -> None:
    written = Written({"type": "object", "properties": {"ab": {"type": "integer"}}})
    assert written.accepts('{"ab":1,"c":"x"}')
    for key in (r"ab", r"\u0061b", r"\u0061\u0062", r"a\u0062"):
        assert not written.accepts(f'{{"{key}":"x"}}'), key
        assert not written.accepts(f'{{"ab":1,"{key}":2}}'), key
    assert written.accepts(r'{"ab\n":"x"}')
    quoted = Written({"type": "object", "properties": {'a"\\/\n': {"type": "integer"}}})
    assert quoted.accepts(r'{"a\"\\/\n":1}')
    assert not quoted.accepts(r'{"a\"\\\/\u000a":"x"}')


def test_keys_do_not_repeat_where_that_would_change_the_value() -> None:
    listed = Written({"type": "object", "properties": {"a": {}, "b": {}}})
    assert not listed.accepts('{"a":1,"a":2}')
    assert not listed.accepts('{"a":1,"b":2,"a":2}')
    two = Written({"type": "object", "minProperties": 2})
    assert two.accepts('{"x":1,"y":2}')
    assert not two.accepts('{"x":1,"x":2}')
    assert not two.accepts(r'{"x":1,"\u0078":2}')
    violated = Written({"type": "object", "not": {"additionalProperties": {"type": "integer"}}})
    assert violated.accepts('{"x":"a"}') and violated.accepts('{"x":1,"y":"a"}') and violated.accepts('{"x":"a","y":1}')
    assert not violated.accepts('{"x":"a","x":1}')


def test_order_of_keys() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}, "c": {}}, "required": ["c", "d"]}
    declared, free = Written(schema), Written(schema, any_order=True)
    for text, kept in (
        ('{"b":1,"a":2,"c":3,"d":4}', True),
        ('{"d":4,"b":1,"c":3}', True),
        ('{"c":3,"d":1,"e":1}', True),
        ('{"a":2,"b":1,"c":3,"d":4}', False),
        ('{"e":1,"c":3,"d":4}', False),
    ):
        assert declared.accepts(text) is kept, text
        assert free.accepts(text), text
    for text in ('{"c":3}', '{"d":4}', '{"c":1,"d":1,"c":1}'):
        assert not declared.accepts(text) and not free.accepts(text), text
    assert Written({"const": {"b": 1, "a": 2}}).forced() == '{"b":'


def test_lists_of_allof_interleave() -> None:
    schema = {
        "allOf": [{"properties": {"a": {}, "b": {}}}, {"properties": {"x": {}, "b": {}, "y": {}}}],
        "type": "object",
    }
    written = Written(schema)
    assert all(
        written.accepts(text) for text in ('{"a":1,"x":1,"b":1,"y":1}', '{"x":1,"y":1,"a":1,"b":1}', '{"y":1,"b":1}')
    )
    assert not any(written.accepts(text) for text in ('{"b":1,"a":1}', '{"y":1,"x":1}', '{"a":1,"a":1}'))


def test_numbers_are_bounded_by_value_however_written() -> None:
    written = Written({"type": "number", "minimum": 1, "maximum": 20})
    assert all(written.accepts(text) for text in ("1", "20", "1.0", "20.000", "1e1", "1.5E+001", "2e0"))
    assert not any(
        written.accepts(text) for text in ("0", "21", "2e1.0", "3e1", "2.0001e1", "-1", "-0", "01", "1.", ".5", "+1")
    )
    assert Written({"type": "integer", "minimum": 0}).accepts("0")
    assert not Written({"type": "integer", "minimum": 0}).accepts("-0")


def test_enum_keeps_the_spelling_of_its_values() -> None:
    assert Written({"const": 2}).forced() == "2"
    assert Written({"const": 2.5}).forced() == "2.5"
    assert Written({"enum": ['a"b']}).accepts(r'"a\"b"')
    assert Written({"enum": ["é"]}).accepts('"é"')


def test_escapes_in_strings() -> None:
    written = Written({"type": "string", "maxLength": 2})
    assert all(written.accepts(text) for text in (r'"\n"', r'"\u00e9"', r'"\ud83d\ude00x"', r'"\"\\"', r'"\/"'))
    assert not any(
        written.accepts(text) for text in ('"a\n"', r'"\ud83d"', r'"\x41"', r'"abc"', '"\x01"', r'"\ud83d\ude00xy"')
    )


def test_whitespace_is_bounded() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
        "required": ["a"],
        "additionalProperties": False,
    }
    single, compact, spaced = (Written(schema, whitespace=kind) for kind in ("single", "compact", "spaced"))
    assert single.accepts('{"a":[1, 2,3]}') and single.accepts('{"a": [1,2]}')
    for text in (
        '{ "a":[1]}',
        '{"a" :[1]}',
        '{"a":  [1]}',
        '{"a":[1,  2]}',
        '{"a":[ 1]}',
        '{"a":[1]} ',
        ' {"a":[1]}',
        '{"a":\n[1]}',
    ):
        assert not single.accepts(text), text
    assert (
        compact.accepts('{"a":[1,2]}') and not compact.accepts('{"a": [1,2]}') and not compact.accepts('{"a":[1, 2]}')
    )
    assert spaced.accepts('{"a": [1, 2]}') and not spaced.accepts('{"a":[1, 2]}') and not spaced.accepts('{"a": [1,2]}')


@pytest.mark.parametrize("indent", [0, 2, 4])
def test_indentation_is_that_of_json_dumps(indent: int) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array"}, "b": {"type": "object"}, "c": {"enum": [[{"x": 1}, []]]}},
    }
    written = Written(schema, whitespace=indent)
    for value in (
        {},
        {"a": []},
        {"a": [1, [2, {}], {"k": []}], "b": {"x": {"y": None}}, "c": [{"x": 1}, []]},
        {"new": [1]},
    ):
        assert written.accepts(json.dumps(value, indent=indent)), value
        if value:
            assert not written.accepts(json.dumps(value)), value


def test_unique_items_by_value() -> None:
    written = Written({"type": "array", "items": {"type": ["string", "number", "object"]}, "uniqueItems": True})
    assert written.accepts(r'["a","b",1,1.5,{"a":1},{"a":2}]')
    assert not any(
        written.accepts(text)
        for text in (
            r'["a","\u0061"]',
            "[1,1.0]",
            "[10,1e1]",
            '[{"a":1,"b":2},{"b":2,"a":1.0}]',
            '[{"a":1},{"a":2,"a":1}]',
        )
    )
    letters = Written({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 3})
    assert letters.accepts('["b","c","a"]')
    assert letters.forced('["b","a",') == ""  # an optional space
    assert letters.forced('["b","a", ') == '"c"'
    held_back = Written(
        {
            "type": "array",
            "prefixItems": [{"type": "string", "pattern": "^(aa|b.*)$"}, {"const": "aa"}],
            "minItems": 2,
            "uniqueItems": True,
        }
    )
    assert held_back.accepts('["bx","aa"]')
    assert held_back.forced('["') == "b"  # "aa" would take the only value of the second item


def test_limits_are_named() -> None:
    nested: Any = {"type": "integer"}
    for _ in range(1000):
        nested = {"type": "array", "items": nested, "minItems": 1}
    with pytest.raises(ConstraintError, match="nested too deep"):
        Written(nested)
    required: Any = {"type": "integer"}
    for _ in range(90):
        required = {"type": "object", "properties": {"a": required}, "required": ["a"]}
    with pytest.raises(ConstraintError, match="required values stand inside one another"):
        Written(required)
    chain: Any = {"type": "integer"}
    for _ in range(120):
        chain = {"allOf": [chain]}
    with pytest.raises(ConstraintError, match="apply to one value in a chain"):
        Written(chain)
    cells = {"type": "object", "patternProperties": {letter: {"minimum": 1} for letter in "abcdefghijkl"}}
    with pytest.raises(ConstraintError, match="patternProperties that overlap"):
        Written(cells).forced()


def test_many_alternatives_stay_small() -> None:
    kinds = [
        {"properties": {"kind": {"const": f"k{at}"}, f"x{at}": {"type": "integer"}}, "required": ["kind", f"x{at}"]}
        for at in range(60)
    ]
    written = Written({"type": "object", "oneOf": kinds})
    assert written.writes({"kind": "k7", "x7": 1}) and not written.writes({"kind": "k7", "x8": 1})
    rules = [{"if": {"properties": {"t": {"const": f"v{at}"}}}, "then": {"required": [f"r{at}"]}} for at in range(20)]
    written = Written({"type": "object", "properties": {"t": {"type": "string"}}, "required": ["t"], "allOf": rules})
    assert (
        written.writes({"t": "v3", "r3": 1})
        and written.writes({"t": "other"})
        and not written.writes({"t": "v3", "r4": 1})
    )


def test_branches_told_apart_by_a_key_that_another_schema_requires() -> None:
    """Each branch once said which of the others it violates: minutes, or "too many", for schemas of real tools."""

    def kind(*names: str, **more: Any) -> Any:
        return {"properties": {"type": {"enum": list(names)}, "path": {"type": "string"}}, **more}

    nested = [
        {**kind(f"in{at}", f"out{at}"), "oneOf": [kind(f"in{at}"), {"properties": {"type": {"enum": [f"out{at}"]}}}]}
        for at in range(20)
    ]
    known = [f"{way}{at}" for at in range(20) for way in ("in", "out")]
    other = {"properties": {"type": {"not": {"enum": known}}, "free": {"type": "integer"}}}
    base = {"properties": {"name": {"type": "string"}, "type": {"type": "string"}}, "required": ["name", "type"]}
    for beside in ({"allOf": [base]}, {"$ref": "#/$defs/base"}, base):
        schema = {"type": "object", "oneOf": [other, {"oneOf": nested}], "$defs": {"base": base}, **beside}
        written = Written(schema, any_order=True)
        for value in ({"type": "in3", "path": "p"}, {"type": "out19"}, {"type": "more", "free": 1}, {"type": "x"}):
            assert written.writes({"name": "n", **value}), (beside, value)
        for value in ({"type": "in3", "path": 1}, {"type": "more", "free": "text"}, {"path": "p"}):
            assert not written.writes({"name": "n", **value}), (beside, value)
    # where nobody requires the key, the branches overlap: without it all of them hold
    overlapping = Written({"type": "object", "oneOf": [kind("a"), kind("b")], "properties": {"type": {}}})
    assert overlapping.writes({"type": "a"}) and not overlapping.writes({}) and not overlapping.writes({"path": "p"})
    # what one schema requires says nothing of another place where the same branches stand
    shared = {"oneOf": [kind("a"), kind("b")]}
    both = Written(
        {
            "properties": {
                "strict": {"$ref": "#/$defs/shared", "type": "object", "required": ["type"]},
                "loose": {"$ref": "#/$defs/shared", "type": "object"},
                "not": {"not": {"$ref": "#/$defs/shared"}, "type": "object", "required": ["path"]},
            },
            "required": ["strict", "loose", "not"],
            "$defs": {"shared": shared},
        }
    )
    good = {"strict": {"type": "a"}, "loose": {"type": "b"}, "not": {"path": "p"}}
    assert both.writes(good)
    for name, value in (("strict", {}), ("loose", {}), ("not", {"type": "a", "path": "p"})):
        assert not both.writes({**good, name: value}), name
    assert both.writes({**good, "not": {"type": "c", "path": "p"}})


def test_exclusions_that_depend_on_which_keys_came() -> None:
    """As pyproject.toml's project table: what is listed as dynamic must not be given. Once 2^n cases for that key."""
    fields = [f"field-{at}" for at in range(14)]

    def listed(name: str) -> Any:
        return {"required": ["dynamic"], "properties": {"dynamic": {"type": "array", "contains": {"const": name}}}}

    project = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in fields}
        | {"dynamic": {"type": "array", "items": {"enum": fields}}},
        "dependentSchemas": {name: {"not": listed(name)} for name in fields},
        "oneOf": [listed("field-0"), {"required": ["field-0"]}],
        "additionalProperties": False,
    }
    written = Written(project)
    given = dict.fromkeys(fields, "x")
    for value in (
        given,
        {**given, "dynamic": []},
        {"dynamic": ["field-0"]},
        {"field-3": "x", "dynamic": ["field-1", "field-0"]},
        {"field-0": "x", "field-9": "x", "dynamic": ["field-1", "field-8"]},
    ):
        assert written.writes(value), value
    for value in (
        {},
        {"dynamic": ["field-1"]},
        {"field-0": "x", "dynamic": ["field-0"]},
        {"field-3": "x", "dynamic": ["field-0", "field-3"]},
        {**given, "dynamic": ["field-13"]},
    ):
        assert not written.writes(value), value


def test_equal_items() -> None:
    equal = Written({"type": "array", "not": {"uniqueItems": True}})
    for value in ([1, 1], [1, 2, 1], [{"a": 1}, 2, {"a": 1}], ["a", "b", "a", "c"], [[], []]):
        assert equal.writes(value), value
    for value in ([], [1], [1, 2], [1, True], [{"a": 1}, {"a": 2}]):
        assert not equal.writes(value), value
    by_position = {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": ["integer", "boolean"]}}
    written = Written({"type": "array", "not": {"uniqueItems": True}, "maxItems": 4, **by_position})
    for value in (["a", 1, 1], ["a", 1, True, True], ["a", 1, 2, 1]):
        assert written.writes(value), value
    for value in (["a"], ["a", 1, 2], ["a", 1, 2, 3], ["a", 1, 1, 2, 3]):
        assert not written.writes(value), value
    with pytest.raises(ConstraintError, match="no JSON value"):
        Written({"type": "array", "not": {"uniqueItems": True}, "maxItems": 2, **by_position})


def test_strict_or_not() -> None:
    schema = {"type": "array", "contains": {"type": "integer"}, "not": {"uniqueItems": True}}
    with pytest.raises(ConstraintError, match="'uniqueItems' at #/not"):
        Written(schema).forced()
    relaxed = Written(schema, strict=False)
    assert relaxed.writes([1, 2])
    assert [problem.keyword for problem in relaxed.options.relaxed] == ["uniqueItems"]


def test_undeclared_keys_may_be_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "free": {"type": "object"}},
        "required": ["a"],
    }
    assert Written(schema).writes({"a": 1, "b": 2})
    closed = Written(schema, undeclared=False)
    assert closed.writes({"a": 1}) and closed.writes({"a": 1, "free": {"b": 2}})
    assert not closed.writes({"a": 1, "b": 2})
    assert Written({**schema, "additionalProperties": True}, undeclared=False).writes({"a": 1, "b": 2})
    patterns = Written({**schema, "patternProperties": {"^x": {"type": "null"}}}, undeclared=False)
    assert patterns.writes({"a": 1, "xy": None}) and not patterns.writes({"a": 1, "y": None})
    merged = Written({"allOf": [schema, {"properties": {"c": {"type": "null"}}}]}, undeclared=False)
    assert merged.writes({"a": 1, "c": None}) and not merged.writes({"a": 1, "d": None})
    with pytest.raises(ConstraintError):
        Written({**schema, "minProperties": 3}, undeclared=False)
