"""Drafts 4, 6 and 2019-09, of which no cases are vendored: the suite's schemas moved there, jsonschema as judge."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft3Validator, Draft4Validator, Draft6Validator, Draft201909Validator
from node_validator import valid
from referencing import Registry
from referencing.jsonschema import specification_with
from schema_kit import Written

from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read

SUITE = json.loads(gzip.decompress((Path(__file__).parent / "json_schema_suite" / "cases.json.gz").read_bytes()))
REMOTES = {f"http://localhost:1234/{name}": schema for name, schema in SUITE["remotes"].items()}
JUDGES: dict[str, Any] = {
    "http://json-schema.org/draft-04/schema#": Draft4Validator,
    "http://json-schema.org/draft-06/schema#": Draft6Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
}
#: groups where the judge and the reader part, and why
EXPLAINED = {
    # numeric in draft 4: asserted here, since it can mean only one thing
    "exclusiveMaximum",
    "exclusiveMinimum",
    "optional/bignum",
    # draft 4's integer leaves out 1.0, of which the instance's text would have to be known
    "type",
    "optional/float-overflow",
    # dependencies is asserted in every draft
    "dependencies",
    "optional/dependencies-compatibility",
    # 2019-09 says nowhere that contains evaluates items; jsonschema lets it
    "unevaluatedItems",
    # jsonschema 4.26 does not let a non-boolean additionalProperties evaluate in 2019-09; 9.3.2.3 there does
    "unevaluatedProperties",
    # a remote schema in 2020-12 is read as what it says it is
    "dynamicRef",
    # the pattern's dialect, and formats: not the reader's
    "optional/ecmascript-regex",
    "format",
    "vocabulary",
}


def moved(value: Any, uri: str) -> Any:
    """The schema in another draft: its $schema, and the spelling of identifiers."""
    if isinstance(value, list):
        return [moved(one, uri) for one in value]
    if not isinstance(value, dict):
        return value
    old = "draft-04" in uri
    return {
        "id" if old and key == "$id" else key: uri if key == "$schema" and isinstance(one, str) else moved(one, uri)
        for key, one in value.items()
    }


def groups(uri: str) -> Iterator[tuple[str, Any, list[Any]]]:
    for group in SUITE["groups"]:
        if group["suite"] in EXPLAINED or "format" in group["suite"]:
            continue
        if not (isinstance(group["schema"], bool) and "draft-04" in uri) and "\\p{" not in json.dumps(group["schema"]):
            yield group["suite"], moved(group["schema"], uri), [test["data"] for test in group["tests"]]


@pytest.mark.parametrize("uri", list(JUDGES))
def test_the_suites_schemas_in_other_drafts(uri: str) -> None:
    draft = {"04": "4", "06": "6", "09": "2019-09"}[uri.removesuffix("/schema").removesuffix("/schema#")[-2:]]
    specification = specification_with(uri)
    registry: Any = Registry().with_resources(
        [(name, specification.create_resource(schema)) for name, schema in REMOTES.items()]
    )
    judged = 0
    wrong = []
    for suite, schema, instances in groups(uri):
        judge = JUDGES[uri](schema, registry=registry)
        root = read(schema, documents=REMOTES, options=SchemaOptions(draft=draft, format="annotate"))
        for instance in instances:
            try:
                wanted = judge.is_valid(instance)
            except Exception:
                continue  # a spelling that this draft does not have, or a reference that only newer drafts resolve
            judged += 1
            if valid(root, instance) != wanted:
                wrong.append((suite, schema, instance, wanted))
    assert wrong == []
    assert judged > 1_000


THREE: list[dict[str, Any]] = [
    {"properties": {"a": {"required": True, "type": "string"}, "b": {"required": False}}},
    {"type": ["string", {"properties": {"a": {"type": "integer"}}}]},
    {"type": [{"enum": [1]}, {"type": "null"}]},
    {"type": ["any", "string"]},
    {"type": "any"},
    {"disallow": "string"},
    {"disallow": ["integer", {"properties": {"a": {"disallow": "string"}}}]},
    {"disallow": "any"},
    {"divisibleBy": 0.5},
    {"extends": {"maxLength": 1}},
    {"extends": [{"maxLength": 1}, {"minimum": 1, "exclusiveMinimum": True}]},
    {"dependencies": {"a": "b", "b": ["c"], "c": {"properties": {"d": {"required": True}}}}},
    {"items": [{"type": "string"}], "additionalItems": False},
    {"multipleOf": 100, "minProperties": 9, "allOf": [{"type": "null"}], "const": 7},
    {"$ref": "#/properties/x", "properties": {"x": {"type": "string"}}, "divisibleBy": 7},
]


@pytest.mark.parametrize("schema", THREE, ids=[str(one)[:50] for one in THREE])
def test_draft_3(schema: dict[str, Any]) -> None:
    schema = {"$schema": "http://json-schema.org/draft-03/schema#", **schema}
    judge = Draft3Validator(schema)
    root = read(schema)
    instances: list[Any] = [
        None,
        True,
        0,
        1,
        2,
        0.5,
        0.3,
        "",
        "a",
        "ab",
        [],
        ["a"],
        ["a", 1],
        [1],
        {},
        {"a": "s"},
        {"a": 1},
    ]
    instances += [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3, "d": 4}, {"b": 1, "c": 1}]
    for instance in instances:
        assert valid(root, instance) == judge.is_valid(instance), instance


def test_formats_of_draft_3_have_names_and_meanings_of_their_own() -> None:
    def written(name: str, **options: Any) -> Written:
        return Written(
            {"$schema": "http://json-schema.org/draft-03/schema#", "type": "string", "format": name}, **options
        )

    assert written("time").writes("08:30:06") and not written("time").writes("08:30:06Z")
    assert not written("time").writes("8:30 AM") and not written("time").writes("24:30:06")
    assert written("host-name").writes("www.example.com") and not written("host-name").writes("-a")
    assert written("ip-address").writes("192.168.0.1") and not written("ip-address").writes("256.256.256.256")
    assert written("ip-address", format="annotate").writes("256.256.256.256")
    later = Written({"$schema": "http://json-schema.org/draft-04/schema#", "type": "string", "format": "host-name"})
    assert later.writes("-a")  # there it is as unknown as any other name
