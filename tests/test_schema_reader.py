"""Keywords, drafts, values and limits of the schema reader. References: test_schema_reader_references."""

from __future__ import annotations

import copy
import gzip
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_validator import valid

from plait.constrained.interface import ConstraintError
from plait.constrained.schema.errors import Problem, SchemaError, Unsupported
from plait.constrained.schema.node import Node
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.schema.values import exact, json_key

SUITE = json.loads(gzip.decompress((Path(__file__).parent / "json_schema_suite" / "cases.json.gz").read_bytes()))
REMOTES = {f"http://localhost:1234/{name}": schema for name, schema in SUITE["remotes"].items()}
#: asserted by contentEncoding and contentMediaType, which are annotations here (and since draft 2019-09 everywhere);
#: or about the pattern's dialect, which node_validator leaves to Python
LEFT_OUT = ("optional/content", "optional/ecmascript-regex")

DRAFT = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def json_equal(a: Any, b: Any) -> bool:
    return json_key(a) == json_key(b)


def in_draft(draft: str, **schema: Any) -> Node:
    return read({"$schema": DRAFT[draft], **schema})


def test_cases_of_the_json_schema_test_suite_validate_by_their_nodes() -> None:
    wrong = []
    for group in SUITE["groups"]:
        if group["suite"] in LEFT_OUT or "format" in group["suite"] or "\\p{" in json.dumps(group["schema"]):
            continue
        options = SchemaOptions(draft=group["draft"], format="annotate")
        root = read(group["schema"], documents=REMOTES, options=options)
        for test in group["tests"]:
            if valid(root, test["data"]) != test["valid"]:
                wrong.append((group["draft"], group["suite"], group["description"], test["description"]))
    assert wrong == []


# ---------------------------------------------------------------- one form for every draft


def test_a_node_has_every_keyword_in_one_form() -> None:
    node = read(
        {
            "type": ["integer", "null"],
            "minimum": 1,
            "exclusiveMaximum": 2.5,
            "multipleOf": 0.1,
            "minLength": 2.0,
            "pattern": "^a",
            "prefixItems": [{"type": "string"}, True],
            "items": False,
            "minContains": 0,
            "contains": {"const": 1},
            "required": ["a", "b", "a"],
            "patternProperties": {"^x/~": {"minLength": 1}},
            "title": "said, not asserted",
        }
    )
    assert (node.types, node.integer) == (frozenset({"number", "null"}), True)
    assert (node.minimum, node.exclusive_maximum, node.multiple_of) == (1, Fraction(5, 2), Fraction(1, 10))
    assert (node.min_length, node.pattern) == (2, "^a")
    assert [one.always for one in node.prefix_items] == [None, True]
    assert node.items is not None and node.items.always is False
    assert node.contains is not None and node.contains.values == (1,) and node.contains_evaluates
    assert node.min_contains == 0 and node.required == ("a", "b")
    assert node.pattern_properties["^x/~"].pointer == "#/patternProperties/^x~1~0"


def test_integer_beside_number_says_nothing() -> None:
    node = read({"type": ["integer", "number"]})
    assert (node.types, node.integer) == (frozenset({"number"}), False)


@pytest.mark.parametrize("draft", ["4", "6", "7", "2019-09"])
def test_items_as_a_list_with_additional_items(draft: str) -> None:
    node = in_draft(draft, items=[{"type": "string"}], additionalItems=False)
    assert len(node.prefix_items) == 1 and node.items is not None and node.items.always is False
    assert in_draft(draft, items=[{"type": "string"}]).items is None
    assert in_draft(draft, items={"type": "string"}, additionalItems=False).items.types == {"string"}  # type: ignore[union-attr]


def test_older_spellings_in_2020_12_mean_what_they_meant() -> None:
    node = read({"items": [{"type": "string"}], "additionalItems": {"type": "null"}})
    assert valid(node, ["a", None]) and not valid(node, ["a", 1]) and not valid(node, [1])
    node = read({"minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": False})
    assert (node.minimum, node.exclusive_minimum, node.maximum, node.exclusive_maximum) == (None, 1, 3, None)
    node = read({"dependencies": {"a": ["b"], "c": {"required": ["d"]}, "e": "f"}})
    assert node.dependent_required == {"a": ("b",), "e": ("f",)} and node.dependent_schemas["c"].required == ("d",)
    assert valid(read({"$ref": "#/definitions/x", "definitions": {"x": {"const": 1}}}), 1.0)


def test_both_spellings_of_dependencies_hold() -> None:
    node = read(
        {
            "dependencies": {"a": ["b"], "x": {"required": ["y"]}},
            "dependentRequired": {"a": ["c"]},
            "dependentSchemas": {"x": {"required": ["z"]}},
        }
    )
    assert (
        valid(node, {"a": 1, "b": 1, "c": 1})
        and not valid(node, {"a": 1, "b": 1})
        and not valid(node, {"a": 1, "c": 1})
    )
    assert (
        valid(node, {"x": 1, "y": 1, "z": 1})
        and not valid(node, {"x": 1, "y": 1})
        and not valid(node, {"x": 1, "z": 1})
    )


def test_keywords_come_with_their_draft() -> None:
    later = {
        "const": ("6", {"const": 1}),
        "propertyNames": ("6", {"propertyNames": {"maxLength": 1}}),
        "if": ("7", {"if": {"type": "string"}, "then": {"maxLength": 1}}),
        "dependentRequired": ("2019-09", {"dependentRequired": {"a": ["b"]}}),
        "unevaluatedProperties": ("2019-09", {"unevaluatedProperties": False}),
        "prefixItems": ("2020-12", {"prefixItems": [{"type": "string"}]}),
    }
    instances = [2, "ab", {"ab": 1}, {"a": 1}, [1]]
    order = list(DRAFT)
    for name, (since, schema) in later.items():
        for draft in order:
            refuses = not all(valid(in_draft(draft, **schema), one) for one in instances)
            assert refuses == (order.index(draft) >= order.index(since)), (name, draft)


@pytest.mark.parametrize("draft", list(DRAFT))
def test_ref_hides_its_siblings_up_to_draft_7(draft: str) -> None:
    node = in_draft(
        draft, definitions={"a": {"type": "string"}}, properties={"x": {"$ref": "#/definitions/a", "maxLength": 1}}
    )
    assert valid(node, {"x": "long"}) == (draft in ("4", "6", "7"))
    assert not valid(node, {"x": 1})


def test_contains_evaluates_items_since_2020_12() -> None:
    for draft, evaluates in (("2019-09", False), ("2020-12", True)):
        node = in_draft(draft, contains={"const": 1}, unevaluatedItems=False)
        assert node.contains_evaluates == evaluates == valid(node, [1])


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        ("http://json-schema.org/draft-04/schema", "4"),
        ("https://json-schema.org/draft-07/schema", "7"),
        ("http://json-schema.org/draft-06/schema#", "6"),
        ("http://json-schema.org/draft-07/hyper-schema#", "7"),
        (" https://json-schema.org/draft/2019-09/schema# ", "2019-09"),
        ("http://json-schema.org/schema#", "2020-12"),
        ("http://example.com/mine", "6"),
    ],
)
def test_dollar_schema_in_every_spelling(uri: str, draft: str) -> None:
    node = read({"$schema": uri, "type": "object"}, options=SchemaOptions(draft="6"))
    from plait.constrained.schema.drafts import DRAFT_NAMES

    assert DRAFT_NAMES[node.source[1].dialect.draft] == draft


def test_format_is_asserted_for_known_names_only() -> None:
    assert read({"format": "date"}).format == "date"
    assert read({"format": "int32"}).format is None
    assert read({"format": "date"}, options=SchemaOptions(format="annotate")).format is None


def test_format_assertion_vocabulary_asserts_whatever_the_option_says() -> None:
    meta = {
        "$id": "http://example.com/meta",
        "$schema": DRAFT["2020-12"],
        "$vocabulary": {
            "https://json-schema.org/draft/2020-12/vocab/core": True,
            "https://json-schema.org/draft/2020-12/vocab/format-assertion": True,
        },
    }
    schema = {"$schema": "http://example.com/meta", "format": "date", "type": "string"}
    node = read(schema, documents={"http://example.com/meta": meta}, options=SchemaOptions(format="annotate"))
    assert node.format == "date"
    assert node.types is None, "the metaschema has no validation vocabulary"


def test_a_vocabulary_nobody_knows_is_refused_if_it_is_needed() -> None:
    meta = {"$schema": DRAFT["2020-12"], "$vocabulary": {"http://example.com/vocab/money": True}}
    with pytest.raises(SchemaError, match=r"needs the vocabulary 'http://example.com/vocab/money'"):
        read({"$schema": "http://example.com/meta"}, documents={"http://example.com/meta": meta})
    meta["$vocabulary"] = {"http://example.com/vocab/money": False}
    assert read({"$schema": "http://example.com/meta", "x": 1}, documents={"http://example.com/meta": meta})


def test_nullable_is_read_on_request_and_beside_type_only() -> None:
    schema = {"type": "string", "nullable": True}
    assert not valid(read(schema), None)
    assert valid(read(schema, options=SchemaOptions(openapi=True)), None)
    assert read({"nullable": True, "minLength": 1}, options=SchemaOptions(openapi=True)).types is None


# ---------------------------------------------------------------- laziness


def test_a_mistake_is_found_when_its_schema_is_looked_at_and_every_time() -> None:
    node = read({"properties": {"a": {"minLength": -1}}})
    child = node.properties["a"]
    assert child.pointer == "#/properties/a"
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"'minLength' at #/properties/a: .* not -1"):
            _ = child.min_length


def test_equal_schemas_in_one_place_are_one_node_and_nodes_pass_through_copy() -> None:
    root = read({"properties": {"a": {"$ref": "#"}}, "items": {"x": 1}, "additionalProperties": {}})
    assert root.properties["a"].ref is not None and root.properties["a"].ref() is root
    assert root.additional_properties is not None and root.additional_properties.always is True
    assert copy.copy(root).items is root.items
    with pytest.raises(AttributeError):
        _ = root.nothing  # type: ignore[attr-defined]


def test_nodes_made_by_hand_need_no_reader() -> None:
    node = Node("#", types=frozenset({"string"}), min_length=2)
    assert list(node.children()) == [] and valid(node, "ab") and not valid(node, "a")


# ---------------------------------------------------------------- wrong values

WRONG: list[tuple[Any, str]] = [
    ({"type": "objekt"}, r"'type' at #: 'objekt' is not a type of JSON; did you mean 'object'\?"),
    ({"type": "int"}, r"did you mean 'integer'\?"),
    ({"type": "any"}, "draft 3"),
    ({"type": []}, "'type' at #: is the name of a type or a list"),
    ({"type": [{"type": "string"}]}, "write anyOf"),
    ({"enum": "a"}, "'enum' at #: is a list of values, not 'a'"),
    ({"enum": {"a": 1}}, "not an object"),
    ({"const": float("nan")}, "'const' at #: nan is not a JSON value"),
    ({"minimum": "1"}, "write it without quotes"),
    ({"minimum": True}, "is a finite number, not true"),
    ({"maximum": float("inf")}, "is a finite number, not inf"),
    ({"exclusiveMinimum": True}, "without minimum"),
    ({"multipleOf": 0}, "is a number above 0, not 0"),
    ({"minLength": -1}, "the smallest is 0"),
    ({"maxLength": 1.5}, "is a whole number"),
    ({"maxItems": "3"}, "write it without quotes"),
    ({"pattern": 1}, "is a string, not 1"),
    ({"format": None}, "is a string, not null"),
    ({"uniqueItems": "true"}, "write it without quotes"),
    ({"items": "string"}, r"#/items: a schema is an object, true or false, not 'string'"),
    ({"prefixItems": {}}, "is a list of at least one schema, not an object"),
    ({"allOf": []}, "not an empty one"),
    ({"anyOf": {"type": "string"}}, "is a list of at least one schema"),
    ({"items": [True], "prefixItems": [True]}, "keep one|is a list beside prefixItems"),
    ({"properties": ["a"]}, "is an object .schemas by name., not a list"),
    ({"properties": {1: True}}, "a key that is not a string"),
    ({"required": "a"}, "is a list of names .strings., not 'a'"),
    ({"required": [1]}, "is a list of names"),
    ({"required": True}, "draft 3"),
    ({"dependentRequired": {"a": "b"}}, "is a list of names"),
    ({"dependencies": {"a": 1}}, r"#/dependencies/a: a schema is an object"),
    ({"minimum": 10**2000}, "not a number of very many digits"),
    ({"$defs": []}, "is an object"),
    ({"$anchor": 1}, "is a string, not 1"),
    ({"$ref": 1}, r"'\$ref' at #: is a string"),
    ({"$schema": 4}, "is the URI of a metaschema, not 4"),
    ({"$id": 4, "type": "string"}, "is a URI, not 4"),
    ("[1]", "a schema is an object, true or false, not a list"),
    (4, "a schema is an object, true or false, not 4"),
]


@pytest.mark.parametrize(("schema", "message"), WRONG, ids=[str(one[0])[:40] for one in WRONG])
def test_a_wrong_value_is_named_with_its_place_and_the_fix(schema: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        node = read(schema)
        _ = node.types
        for child in node.children():
            _ = child.types


def test_an_empty_enum_is_a_schema_that_nothing_satisfies() -> None:
    assert read({"enum": []}).values == ()
    assert read({"enum": [1, 2, True, 1.0], "const": 1}).values == (1,)
    assert read({"enum": [1, 2], "const": 3}).values == ()


# ---------------------------------------------------------------- text, numbers, equality


def test_json_text_is_read_exactly() -> None:
    node = read('{"minimum": 0.1, "maximum": 123456789012345678901234567890.5, "multipleOf": 1e-8, "enum": [1.10, 1]}')
    assert node.minimum == Fraction(1, 10) and node.multiple_of == Fraction(1, 10**8)
    assert node.maximum == Fraction(246913578024691357802469135781, 2)
    assert node.values == (Decimal("1.10"), 1)
    assert read({"minimum": 0.1, "multipleOf": 1e-8, "maximum": 1e300}).minimum == Fraction(1, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type": "string", "type": "null"}', "the key 'type' stands twice"),
        ('{"minimum": NaN}', "NaN is not JSON"),
        ('{"minimum": -Infinity}', "-Infinity is not JSON"),
        ('{"minimum": 1e999999999}', "digits beyond 1,000 places"),
        ('{"minimum": 1e99999999999999999999}', "digits beyond 1,000 places"),
        ('{"minimum": ' + "9" * 5000 + "}", "a number of 5,000 digits"),
        ('{"type": ', "not JSON: .* line 1, column"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_text_that_is_not_a_schema_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        read(text)


def test_half_a_surrogate_pair_is_json_though_nobody_can_write_it() -> None:
    assert read('{"enum": ["\\ud800", "a"], "description": "\\udfff"}').values == ("\ud800", "a")


def test_numbers_are_their_values() -> None:
    assert exact(1e16) == 10**16 and exact(1e23) == 10**23 and exact(-2.0) == -2
    assert exact(0.1) == Fraction(1, 10) and exact(Decimal("1E+2")) == 100
    assert exact(True) is None and exact("1") is None and exact(float("nan")) is None


def test_json_equality() -> None:
    assert json_equal(1, 1.0) and json_equal(0.1, Decimal("0.1")) and json_equal(0, -0.0)
    assert not json_equal(1, True) and not json_equal(0, False) and not json_equal(1, "1") and not json_equal([], {})
    assert json_equal({"a": 1, "b": [2.0]}, {"b": [2], "a": Decimal("1.0")})
    assert not json_equal([1, 2], [2, 1]) and not json_equal({"a": None}, {})
    assert not json_equal(["a"], "a") and not json_equal([True], ["b", True])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -0.0])
    | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b if not isinstance(a, (int, float)) else isinstance(b, (int, float)) and a == b


@given(JSON, JSON)
def test_equal_keys_mean_equal_values(a: Any, b: Any) -> None:
    assert json_equal(a, b) == same(a, b)
    assert hash(json_key(a)) == hash(json_key(json.loads(json.dumps(a))))


# ---------------------------------------------------------------- limits and options


def test_limits_are_named() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"items": deep}
    node: Node | None = read(deep)
    with pytest.raises(SchemaError, match=r"^JSON Schema: #/items/.{,200}: .*nested more than 256 levels deep"):
        while node is not None:
            node = node.items
    wide = read({"properties": {str(at): {"minLength": at} for at in range(50)}}, options=SchemaOptions(max_schemas=20))
    with pytest.raises(SchemaError, match="more than 20 schemas"):
        assert [one.min_length for one in wide.properties.values()]
    with pytest.raises(ConstraintError, match="bytes; at most 100 are read"):
        read({"const": "x" * 200}, options=SchemaOptions(max_bytes=100))
    loop: dict[str, Any] = {}
    loop["items"] = loop
    with pytest.raises(ConstraintError, match="contains itself; use"):
        read(loop)
    with pytest.raises(ConstraintError, match="is not JSON"):
        read({"const": object()})


def test_options_are_checked() -> None:
    for bad in (
        {"draft": "3"},
        {"format": "maybe"},
        {"whitespace": "wide"},
        {"whitespace": 99},
        {"strict": 1},
        {"x": 1},
    ):
        with pytest.raises(ConstraintError, match=next(iter(bad))):
            SchemaOptions.parse(bad)
    assert SchemaOptions.parse({"whitespace": 2, "draft": "7"}).whitespace == 2


def test_what_is_relaxed_is_recorded_once_and_strict_refuses() -> None:
    lenient = SchemaOptions(strict=False)
    for _ in range(2):
        lenient.unsupported("uniqueItems", "#/items", "under not")
    assert lenient.relaxed == [Problem("uniqueItems", "#/items", "under not")]
    with pytest.raises(Unsupported, match="'uniqueItems' at #/items: under not"):
        SchemaOptions().unsupported("uniqueItems", "#/items", "under not")
