"""Identifiers, anchors, references and dynamic scopes. The suite's cases run in test_schema_reader."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from node_validator import valid

from plait.constrained.interface import ConstraintError
from plait.constrained.schema.drafts import bundled, metaschema
from plait.constrained.schema.errors import SchemaError
from plait.constrained.schema.node import Node
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.schema.uri import resolve


def target(schema: dict[str, Any], documents: dict[str, Any] | None = None) -> Node:
    """What the root's $ref means."""
    ref = read(schema, documents=documents).ref
    assert ref is not None
    return ref()


#: RFC 3986, 5.4.1 and 5.4.2, base http://a/b/c/d;p?q
EXAMPLES = """g:h g:h|g http://a/b/c/g|./g http://a/b/c/g|g/ http://a/b/c/g/|/g http://a/g|//g http://g
?y http://a/b/c/d;p?y|g?y http://a/b/c/g?y|#s http://a/b/c/d;p?q#s|g#s http://a/b/c/g#s|g?y#s http://a/b/c/g?y#s
;x http://a/b/c/;x|g;x http://a/b/c/g;x|g;x?y#s http://a/b/c/g;x?y#s|. http://a/b/c/|./ http://a/b/c/|.. http://a/b/
../ http://a/b/|../g http://a/b/g|../.. http://a/|../../ http://a/|../../g http://a/g|../../../g http://a/g
../../../../g http://a/g|/./g http://a/g|/../g http://a/g|g. http://a/b/c/g.|.g http://a/b/c/.g|g.. http://a/b/c/g..
..g http://a/b/c/..g|./../g http://a/b/g|./g/. http://a/b/c/g/|g/./h http://a/b/c/g/h|g/../h http://a/b/c/h
g;x=1/./y http://a/b/c/g;x=1/y|g;x=1/../y http://a/b/c/y|g?y/./x http://a/b/c/g?y/./x|g#s/../x http://a/b/c/g#s/../x"""


@pytest.mark.parametrize("example", EXAMPLES.replace("\n", "|").split("|"))
def test_rfc_3986_examples(example: str) -> None:
    reference, wanted = example.split(" ")
    assert resolve("http://a/b/c/d;p?q", reference) == wanted


def test_uris_that_urllib_leaves_alone() -> None:
    assert resolve("http://a/b/c/d;p?q", "") == "http://a/b/c/d;p?q"
    assert resolve("urn:example:a:b", "#x") == "urn:example:a:b#x"
    assert resolve("urn:example:a/b", "c") == "urn:example:a/c"
    assert resolve("tag:x,2020:/a/b", "../c") == "tag:x,2020:/c"
    assert resolve("http://a", "b") == "http://a/b"
    assert resolve("", "a/b.json#c") == "a/b.json#c"
    assert resolve("a/b.json", "c.json") == "a/c.json"


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/a~1b", "#/$defs/a%2Fb~0%25", "#/$defs/%C3%A9", "#/x/y/0", "#/allOf/1", "#/$defs/", "#/$defs/%22q%22"],
)
def test_json_pointers_in_fragments(pointer: str) -> None:
    found = {"type": "null"}
    names = {"#/$defs/a~1b": "a/b", "#/$defs/a%2Fb~0%25": "a/b~%", "#/$defs/%C3%A9": "é", "#/$defs/": ""}
    schema = {
        "$ref": pointer,
        "x": {"y": [found]},
        "allOf": [True, found],
        "$defs": {names.get(pointer, '"q"'): found},
    }
    if pointer == "#/$defs/a%2Fb~0%25":
        with pytest.raises(SchemaError, match="leads nowhere"):  # a decoded slash still separates
            target(schema)
    else:
        assert target(schema).types == {"null"}


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("#/$defs/Persn", r"leads nowhere in this schema; #/\$defs has no 'Persn' \(it has 'Person'\)"),
        ("#/allOf/01", "leads nowhere"),
        ("#/allOf/9", "leads nowhere"),
        ("#/allOf/" + "9" * 5000, "leads nowhere"),  # more digits than int() takes
        ("#/allOf/-1", "leads nowhere"),
        ("#/title/x", "leads nowhere"),
        ("#/title", "leads to 'T', which is not a schema"),
        ("#/$defs/%ff", "percent-encoded UTF-8"),
        ("#$defs/Person", r"has no anchor '\$defs/Person'; write '#/\$defs/Person'"),
        ("#person", "has no anchor 'person'"),
        (
            "other.json#/x",
            r"no schema is known as 'other\.json'; nothing is fetched: give it as documents={'other\.json'",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_says_where_it_went(ref: str, message: str) -> None:
    schema = {"title": "T", "allOf": [True], "$defs": {"Person": True}, "properties": {"a": {"$ref": ref}}}
    found = read(schema).properties["a"].ref
    assert found is not None
    with pytest.raises(SchemaError, match=rf"'\$ref' at #/properties/a: .*{message}"):
        found()


def test_an_unknown_document_is_named_with_its_full_uri_and_the_nearest_known() -> None:
    schema = {"$id": "http://example.com/schemas/root", "$ref": "item", "$defs": {"i": {"$id": "items"}}}
    message = r"'http://example.com/schemas/item' \(from 'item'\).*known: 'http://example.com/schemas/items'"
    with pytest.raises(SchemaError, match=message):
        target(schema)


def test_documents_are_found_by_uri_by_their_id_and_relative_to_the_root() -> None:
    documents = {
        "http://example.com/a.json": {"$id": "http://example.com/elsewhere/b.json", "$defs": {"x": {"const": 1}}},
        "c.json": '{"$ref": "http://example.com/elsewhere/b.json#/$defs/x"}',
        "http://example.com/d": {"$defs": {"inner": {"$id": "urn:x:inner", "$anchor": "here", "const": 2}}},
    }
    root = "http://example.com/root.json"
    for ref, value in [
        ("a.json#/$defs/x", 1),
        ("elsewhere/b.json#/$defs/x", 1),
        ("c.json", 1),
        ("urn:x:inner", 2),
        ("urn:x:inner#here", 2),
        ("d#/$defs/inner", 2),
    ]:
        node = read({"$id": root, "$ref": ref}, documents=documents)
        assert valid(node, value) and not valid(node, 3), ref


def test_pointers_of_other_documents_name_them() -> None:
    node = target(
        {"$ref": "http://x/y#/$defs/a"}, {"http://x/y": {"$defs": {"a": {"items": {}, "not": {"type": "null"}}}}}
    )
    assert node.pointer == "http://x/y#/$defs/a"
    assert node.not_ is not None and node.not_.pointer == "http://x/y#/$defs/a/not"


def test_an_id_in_enum_const_or_an_unknown_keyword_is_no_identifier() -> None:
    schema = {
        "$id": "http://example.com/root",
        "allOf": [{"enum": [{"$id": "thing", "type": "null"}]}, {"const": {"$id": "thing"}}],
        "unknown": {"deep": {"$id": "thing", "type": "null"}},
        "$defs": {"real": {"$id": "thing", "type": "string"}},
        "$ref": "thing",
    }
    assert target(schema).types == {"string"}
    del schema["$defs"]
    with pytest.raises(SchemaError, match=r"no schema is known as 'http://example.com/thing'"):
        target(schema)


def test_a_property_named_id_or_ref_is_a_property() -> None:
    node = read(
        {"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}, "id": {"$anchor": "x"}}, "$ref": "#x"}
    )
    assert valid(node, {"$id": "a", "$ref": "b"}) and not valid(node, {"$ref": 1})


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_location_independent_identifiers_of_old_drafts(draft: str) -> None:
    key = "id" if draft == "draft-04" else "$id"
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        key: "http://example.com/root",
        "allOf": [
            {"$ref": "#foo"},
            {"$ref": "http://example.com/nested.json#bar"},
            {"$ref": "http://example.com/x#baz"},
        ],
        "definitions": {
            "A": {key: "#foo", "type": "integer"},
            "B": {key: "nested.json", "definitions": {"C": {key: "#bar", "minimum": 1}}},
            "D": {key: "http://example.com/x#baz", "maximum": 3},
        },
    }
    node = read(schema)
    assert [valid(node, one) for one in (0, 1, 3, 4, "a")] == [False, True, True, False, False]


def test_other_drafts_spelling_of_an_identifier_is_still_what_references_mean() -> None:
    by_id = {"id": "http://example.com/old", "$ref": "http://example.com/old#/$defs/a", "$defs": {"a": {"const": 1}}}
    assert target(by_id).values == (1,)
    nested = {"$defs": {"a": {"id": "a.json", "$ref": "#/$defs/b"}, "b": {"const": 2}}, "$ref": "a.json"}
    assert valid(read(nested), 2) and not valid(read(nested), 1)


def test_a_generated_id_in_every_property_does_not_cut_off_the_definitions() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"b": {"type": "integer"}},
        "properties": {"a": {"id": "/properties/a", "properties": {"b": {"$ref": "#/definitions/b"}}}},
    }
    assert valid(read(schema), {"a": {"b": 1}}) and not valid(read(schema), {"a": {"b": "x"}})


def test_a_sibling_id_of_ref_is_hidden_up_to_draft_7() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "http://example.com/base/",
        "definitions": {
            "foo": {"$id": "http://example.com/foo.json", "type": "string"},
            "base": {"$id": "foo.json", "type": "number"},
        },
        "allOf": [{"$id": "http://example.com/", "$ref": "foo.json"}],
    }
    assert valid(read(schema), 1) and not valid(read(schema), "a")


def test_a_nested_resource_may_be_in_another_draft() -> None:
    schema = {
        "$defs": {
            "old": {
                "$id": "http://example.com/old",
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"s": {"type": "string"}},
                "properties": {"x": {"$ref": "#/definitions/s", "maxLength": 1}},
                "prefixItems": [{"type": "null"}],
            }
        },
        "$ref": "http://example.com/old",
        "prefixItems": [{"type": "string"}],
    }
    node = read(schema)
    assert valid(node, {"x": "long"}) and not valid(node, {"x": 1})
    assert valid(node, ["a"]) and not valid(node, [None])


# ---------------------------------------------------------------- recursion and dynamic scope


def test_recursion_comes_back_to_the_same_node() -> None:
    root = read({"$id": "urn:uuid:1", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "urn:uuid:1#/properties/a"}}})
    a, b = root.properties["a"], root.properties["b"]
    assert a.ref is not None and b.ref is not None
    assert a.ref() is root and b.ref() is a
    assert root.resource == "" and root.within(("x",)) == ("x",)


TREE = {
    "$id": "http://example.com/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
STRICT = {
    "$id": "http://example.com/strict-tree",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
}


def test_dynamic_ref_means_the_outermost_dynamic_anchor() -> None:
    node = read(STRICT, documents={"http://example.com/tree": TREE})
    typo = {"children": [{"daat": 1}]}
    assert valid(node, {"children": [{"data": 1}]}) and not valid(node, typo)
    assert valid(read(TREE), typo)
    assert node.resource == "http://example.com/strict-tree"
    assert node.within(()) == ("http://example.com/strict-tree",) == node.within(node.within(()))


def test_dynamic_ref_without_a_bookend_is_a_ref() -> None:
    for anchor in ({"$anchor": "node"}, {}):
        tree = {key: one for key, one in TREE.items() if key != "$dynamicAnchor"} | anchor
        if not anchor:
            tree["properties"] = {"children": {"items": {"$dynamicRef": "#"}}}
        node = read(STRICT, documents={"http://example.com/tree": tree})
        assert valid(node, {"children": [{"daat": 1}]})


def test_recursive_ref_of_2019_09() -> None:
    def tree(anchor: bool) -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$id": "http://example.com/tree",
            "$recursiveAnchor": anchor,
            "properties": {"data": True, "children": {"items": {"$recursiveRef": "#"}}},
        }

    def strict(anchor: bool) -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$id": "http://example.com/strict",
            "$recursiveAnchor": anchor,
            "$ref": "tree",
            "unevaluatedProperties": False,
        }

    typo = {"children": [{"daat": 1}]}
    for inner in (True, False):
        for outer in (True, False):
            node = read(strict(outer), documents={"http://example.com/tree": tree(inner)})
            assert valid(node, {"children": [{"data": 1}]})
            assert valid(node, typo) == (not (inner and outer)), (inner, outer)


# ---------------------------------------------------------------- metaschemas

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"minLength": 1}}},
    {"type": "objekt"},
    {"minLength": -1},
    {"properties": {"a": {"properties": {"b": {"enum": 1}}}}},
    {"required": ["a"]},
    {"allOf": []},
    {"items": {"not": {"multipleOf": -2}}},
    {"additionalProperties": {"type": "null"}, "uniqueItems": 1},
]


@pytest.mark.parametrize("uri", [uri for uri in bundled() if uri.endswith("schema")])
def test_metaschemas_are_known_and_judge_schemas_as_jsonschema_does(uri: str) -> None:
    document = metaschema(bundled()[uri])
    judge = jsonschema.validators.validator_for(document)(document)
    by_reference = read({"$ref": uri + ("#" if "draft-0" in uri else "")}, options=SchemaOptions(format="annotate"))
    itself = read(document, options=SchemaOptions(format="annotate"))
    for schema in [*SCHEMAS, document, *([True, False] if "draft-04" not in uri else [])]:
        wanted = judge.is_valid(schema)
        assert valid(by_reference, schema) == valid(itself, schema) == wanted, schema


def test_metaschemas_by_the_other_scheme() -> None:
    assert valid(read({"$ref": "https://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger"}), 1)
    assert not valid(read({"$ref": "http://json-schema.org/draft/2020-12/schema"}), {"type": 1})


def test_every_bundled_metaschema_has_its_own_uri() -> None:
    for uri, name in bundled().items():
        document = metaschema(name)
        assert document.get("$id", document.get("id")).rstrip("#") == uri


def test_documents_that_are_not_json_are_refused_when_they_are_needed() -> None:
    node = read({"$ref": "bad.json", "type": "string"}, documents={"bad.json": "{", "other": {"x": object()}})
    assert node.types == {"string"} and node.ref is not None
    with pytest.raises(ConstraintError, match="not JSON"):
        node.ref()
