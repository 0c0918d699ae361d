"""whitespace="auto": one of the layouts of json.dumps for the whole value, as the text itself begins.

What is written is held against json.dumps: every layout's dump of a value that the compact layout takes is taken, and
every text that random tokens lead to is a dump in one layout.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import numpy as np
import pytest
from layout_kit import LAYOUTS, dumps, is_dump
from pushdown_kit import MACHINES, MIXED, AnyMachine, bits, small_vocabulary
from random_schemas import RandomSchemas
from schema_kit import Written
from test_schema_random import Schemas, instance

from plait.constrained.compiler import build, compile_spec
from plait.constrained.interface import ConstraintError
from plait.constrained.jump import settled_prefix
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.native_library import available
from plait.constrained.pushdown.native_machine import NativeMachine
from plait.constrained.pushdown.rules import Rules
from plait.constrained.pushdown.stacks import Limits
from plait.constrained.schema import undecided
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary, single_bytes

TREE = {
    "$defs": {
        "tree": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 3},
                {"type": "object", "properties": {"kids": {"$ref": "#/$defs/tree"}, "name": {"enum": ["a", "b"]}}},
                {"enum": [1, 20, "x"]},
            ]
        }
    },
    "$ref": "#/$defs/tree",
}
UNIQUE = {
    "type": "array",
    "items": {"anyOf": [{"type": "array", "uniqueItems": True, "items": {"enum": [1, 2, [], [1]]}}, {"enum": [7, {}]}]},
    "uniqueItems": True,
}
PAIRS = {"type": "array", "items": {"type": "array", "items": {"enum": [1, 2]}, "not": {"uniqueItems": True}}}
COUNTED = {
    "type": "array",
    "items": {"type": "object", "minProperties": 2, "patternProperties": {"^[ab]$": {"enum": [1, [2], {}]}}},
    "contains": {"required": ["a"]},
}
SHAPES: list[Any] = [
    TREE,
    UNIQUE,
    PAIRS,
    COUNTED,
    True,
    {"type": ["array", "object"]},
    {"const": {"a": [1, {"b": []}]}},
]


def vocabulary() -> Vocabulary:
    """Tokens that run through the places where a layout is decided."""
    more = (
        "{\n",
        "[\n",
        "{\n\n",
        "[[",
        '[{"',
        "[[1",
        '{"',
        "{}",
        "[]",
        "[],",
        " [",
        " {",
        ' {"',
        "\n\n",
        "\n  ",
        '\n "',
    )
    more += (
        "  ",
        "   ",
        "    ",
        "        ",
        '  "',
        ' "',
        '": ',
        '":',
        ":[",
        '": [',
        ",\n",
        ", ",
        ',"',
        "1,",
        "1]",
        "1\n",
        "\n]",
    )
    more += (
        "\t",
        "\t\t",
        "\n\t",
        '\t"',
        "{\n\t",
        '{\n  "',
        "[\n    ",
        "}\n",
        "\n}",
        "],",
        "},\n  ",
        "]]",
        "}}",
        '"a"',
        '"a":',
    )
    tokens = [b"<eos>", *(bytes((value,)) for value in range(256)), *MIXED, *(text.encode() for text in more)]
    return small_vocabulary(tokens, eos=(0,))


VOCABULARY = vocabulary()


def machines(schema: Any, kinds: list[type[AnyMachine]] = MACHINES, **options: Any) -> list[AnyMachine]:
    lexicon, rules, given = Lexicon(VOCABULARY), Rules(), SchemaOptions(**options)
    start = compile_schema(read(schema, options=given), given, lexicon.languages, rules)
    return [kind(rules, start, lexicon.lexemes, VOCABULARY, MaskCache(), kind.__name__) for kind in kinds]


def random_text(schema: Any, seed: int, **options: Any) -> bytes | None:
    """A whole text that random tokens lead to, mostly such as end soon; every machine there is goes the same way."""
    draw = random.Random(seed)
    matchers = [PushdownConstraint(machine).matcher() for machine in machines(schema, **options)]
    text = b""
    while not matchers[0].finished:
        first, *others = matchers
        allowed = np.flatnonzero(bits(first.mask(), VOCABULARY)).tolist()
        for other in others:
            assert np.array_equal(first.mask(), other.mask()), text
            assert first.forced() == other.forced(), text
        if first.accepting and draw.random() < 0.4:
            return text
        if len(text) > 60:
            way_out = first.completion(10_000)
            assert way_out is not None
            data = b"".join(way_out.pieces) or VOCABULARY.tokens[draw.choice(allowed)]
        else:
            white = [one for one in allowed if (VOCABULARY.tokens[one] or b"x")[-1:] in b" \n\t:,[{"]
            data = VOCABULARY.tokens[draw.choice(white if white and draw.random() < 0.7 else allowed)]
        if not data:
            return text
        for matcher in matchers:
            assert matcher.advance_bytes(data), (text, data)
        text += data
        if len(text) > 400:
            return None
    return text


# ---------------------------------------------------------------- which texts


@pytest.mark.parametrize("schema", SHAPES, ids=str)
@pytest.mark.parametrize("any_order", [False, True])
def test_random_tokens_lead_to_a_dump_in_one_layout(schema: Any, any_order: bool) -> None:
    texts = {random_text(schema, seed, any_order=any_order) for seed in range(15)} - {None}
    assert len(texts) > (1 if "const" in str(schema) else 4)
    for text in texts:
        assert text is not None and is_dump(text.decode()), text


@pytest.mark.parametrize("seed", range(40))
def test_random_schemas_lead_to_a_dump_in_one_layout(seed: int) -> None:
    for schema in (Schemas(seed).root(2), RandomSchemas(seed).schema()):
        for at in range(4):
            try:
                text = random_text(schema, at, undeclared=bool(seed % 2))
            except ConstraintError:
                break
            assert text is None or is_dump(text.decode()), (schema, text)


@pytest.mark.parametrize("seed", range(60))
def test_every_dump_of_what_is_written_compact_is_written(seed: int) -> None:
    """And of nothing else; the machine and the recognizer of rules agree on each."""
    schema = Schemas(seed).root(2)
    draw = random.Random(seed)
    try:
        compact, auto = (Written(schema, whitespace=kind, any_order=True) for kind in ("compact", "auto"))
    except ConstraintError:
        return
    try:
        for _ in range(12):
            value = instance(draw, 3)
            right = compact.accepts(dumps(value)[0])
            for text in set(dumps(value)):
                assert auto.accepts(text) is right, (schema, text)
    except ConstraintError as error:
        assert "schemas" in str(error) or "ways" in str(error), error  # a limit of both


VALUES: list[Any] = [
    *([], {}, 1, "a", [[]], [{}], [[[1]]], [[], 1], [[], []], [[[]], [[1, 2]]], [{}, {"a": 1}], [[{"a": [1]}]]),
    *({"a": {}}, {"a": []}, {"a": [], "b": [1, [2, {"c": {"d": None}}]]}, {"a": {"b": {"c": {}}}}, [[1], [2]]),
    [[["a", {"b": 1}], []], {"c": [[]]}],
]


def test_free_json_in_every_layout() -> None:
    for schema in (True, {"type": ["array", "object", "integer", "string"]}):
        written = Written(schema, whitespace="auto")
        for value in VALUES:
            for text in dumps(value):
                assert written.accepts(text), text


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":1, "b":2}', '{"a": 1,"b": 2}', '{"a": [1,2]}', '{"a":[1, 2]}', "[[1,2], 3]", "[[], 1,2]", "[[1, 2],3]"),
        *('[[{"a":1}], 2]', '[[{"a": 1}],2]', '[{},{"a": 1}]', '[{}, {"a":1}]', '{"a":{"b": 1}}', '{"a" :1}', "[ 1]"),
        *('{ "a": 1}', "{}\n", " {}", "{ }", "[\n]", '{"a":  1}', '{\n"a": 1\n}', '{\n  "a":1\n}', '{\n  "a": 1}'),
        *('{\n  "a": 1\n }', '{\n  "a": [1]\n}', '{\n  "a": 1,\n    "b": 2\n}', "[\n  1, 2\n]", "[\n  1,\n2\n]"),
        *("[\n\t1,\n  2\n]", '{\n \t"a": 1\n}', '{\n         "a": 1\n}', "[\n\t\t1\n]", "[\n  [\n    1\n    ]\n]"),
        *(
            '{\r\n  "a": 1\r\n}',
            "[[\n1\n]]",
            "[[1,\n2]]",
            '{"a":\n1}',
            '{\n\n  "a": 1\n}',
            '{"a": 1}\n',
            "[\n  [],\n[]\n]",
        ),
    ],
)
def test_no_other_white_space(text: str) -> None:
    json.loads(text)
    assert not Written(True, whitespace="auto").accepts(text)


def test_each_value_of_a_composed_constraint_decides_on_its_own() -> None:
    part = {"json_schema": {"type": "array", "items": {"type": "integer"}}}
    for spec in (
        {"seq": [part, {"literal": "; "}, part]},
        {"repeat": part, "min": 2, "max": 2, "separator": {"literal": "; "}},
        {
            "grammar": 'start: two "; " two\ntwo: %json {"type": "array", "items": {"type": "integer"}}',
            "syntax": "lark",
        },
    ):
        constraint = build(spec, single_bytes(), "")
        for text in ("[1,2]; [1, 2]", "[\n  1\n]; [\n\t1,\n\t2\n]", "[]; [1,2]", "[1, 2]; [1,2,3]", "[1]; [\n    1\n]"):
            matcher = constraint.matcher()
            assert matcher.advance_bytes(text.encode()) and matcher.accepting, (spec, text)
        matcher = constraint.matcher()
        assert not matcher.advance_bytes(b"[1,2]; [1,2, 3]")


def test_old_values_are_kept() -> None:
    value = {"a": [1, {}]}
    for whitespace, taken in (("compact", 0), ("spaced", 1), (2, 3), (4, 5)):
        written = Written(True, whitespace=whitespace)
        assert [at for at, text in enumerate(dumps(value)) if written.accepts(text)] == [taken]
    assert Written(True, whitespace=0).accepts(json.dumps(value, indent=0))
    assert Written(True, whitespace="single").accepts('{"a": [1,{}]}')


# ---------------------------------------------------------------- nothing open once it is decided


@pytest.mark.parametrize("schema", [True, TREE, UNIQUE, COUNTED], ids=str)
def test_white_space_is_forced_once_it_is_decided(schema: Any) -> None:
    written = Written(schema, whitespace="auto")
    looked = 0
    for value in (
        *VALUES,
        [[1, 2], [2], 7],
        [{"a": 1, "b": [2]}, {"b": {}, "c": [1]}],
        {"kids": [{"kids": [1, "x"]}, 20]},
    ):
        for text in dumps(value):
            if not written.accepts(text):
                continue
            for run in list(re.finditer(r"(?<=[,:{\[])\s+", text))[1:]:  # strings hold none; the first one decides
                opened = text[run.start() - 1] in "{["  # it could be empty, which no white space would say
                for begun in range(run.start() + opened, run.end()):
                    assert written.forced(text[:begun]).startswith(text[begun : run.end()]), (text, begun)
                    looked += 1
            for run in re.finditer(r"(?<!\n)\n\s*[\]}]", text):  # a line break may be a comma; then all is said
                assert written.forced(text[: run.start() + 1]).startswith(run[0][1:]), text
                looked += 1
    assert looked > 50


def decided(text: str, at: int) -> bool:
    """The first white space of a text is over, or a colon or comma without any."""
    return re.search(r"[:,]\S|\s\S", text[:at]) is not None


def test_compact_has_nothing_open_either() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": [1, 2]}}, "required": ["a", "b"]}
    written = Written(schema, whitespace="auto", undeclared=False)
    assert written.forced() == "{"
    assert written.forced('{"') == 'a":'
    assert written.forced('{"a":1') == ',"b":[1,2]}'
    assert written.forced('{"a": ') == '1, "b": [1, 2]}'
    assert written.forced('{\n   "') == 'a": 1,\n   "b": [\n      1,\n      2\n   ]\n}'
    assert written.forced("{\n\t") == '"a": 1,\n\t"b": [\n\t\t1,\n\t\t2\n\t]\n}'
    assert written.forced("{\n        ") == json.dumps({"a": 1, "b": [1, 2]}, indent=8)[10:]


def test_an_opening_bracket_waits_for_the_token_that_decides() -> None:
    """Jump-forward puts no token edge where the model would have none."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a", "b"]}
    constraint = build({"json_schema": schema}, VOCABULARY, "")
    matcher = constraint.matcher()
    assert settled_prefix(matcher, VOCABULARY, matcher.forced()) == ([], b"{")
    allowed = {VOCABULARY.tokens[one] for one in np.flatnonzero(bits(matcher.mask(), VOCABULARY)).tolist()}
    assert {b"{", b"{\n", b'{"', b'{\n  "', b"{\n\t", b'{"a'} == allowed
    assert matcher.advance_bytes(b'{\n  "a": 1')
    assert matcher.advance_bytes(b",")
    ids, held = settled_prefix(matcher, VOCABULARY, matcher.forced())
    assert b"".join(VOCABULARY.bytes(one) for one in ids) + held == b'\n  "b": null\n}' and held == b""


# ---------------------------------------------------------------- what it costs


@pytest.mark.parametrize("schema", SHAPES, ids=str)
def test_the_check_opens_the_rules_of_one_layout(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = {}
    for whitespace in ("compact", "auto"):
        made: list[Rules] = []
        begin = Rules.__init__
        monkeypatch.setattr(Rules, "__init__", lambda self, begin=begin, made=made: (made.append(self), begin(self))[1])
        source = json.dumps({"json_schema": schema, "options": {"whitespace": whitespace, "undeclared": True}})
        compile_spec("spec", source)
        monkeypatch.undo()
        opened[whitespace] = sum(len(rules._known) for rules in made)
    assert opened["compact"] <= opened["auto"] <= opened["compact"] + 25


def test_what_cannot_be_kept_deep_inside_is_found() -> None:
    second = {"type": "array", "not": {"uniqueItems": True}, "contains": {"type": "integer"}}
    rows = {"type": "array", "items": {"type": "array", "prefixItems": [{"type": "integer"}, second]}}
    keys = {"type": "object", "properties": {"a": {"type": "null"}, "b": rows}}
    for schema, options in itertools.product((rows, keys), ({}, {"whitespace": "compact"}, {"whitespace": 2})):
        with pytest.raises(ConstraintError, match="two items are equal"):
            compile_spec("spec", json.dumps({"json_schema": schema, "options": options}))


def test_keys_are_looked_at_in_one_layout_at_a_time() -> None:
    names = [f"name{at}" for at in range(100)]
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
    for kind in MACHINES:
        (machine,) = machines(schema, [kind])
        opened = []
        rules = machine.rules
        for text in (b"", b"{", b"{\n", b"{\n    ", b'{\n    "'):
            machine.step(machine.start, text)
            opened.append(sum(len(productions) for productions in rules._known.values()))
        assert opened[-2] < opened[1] + 30, opened  # the white space looked at none
        assert opened[-1] >= opened[-2] + 90


def test_depth_is_bounded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits().depth == undecided.MAX_OPEN
    monkeypatch.setattr(undecided, "MAX_OPEN", 2_000)
    constraint = build({"json_schema": TREE}, single_bytes(), "")
    for text, levels in ((b"[", 2_001), (b'{"kids":', 20_001)):
        matcher = constraint.matcher()
        with pytest.raises(ConstraintError, match="levels deep"):
            assert matcher.advance_bytes(text * levels)
    matcher = constraint.matcher()
    assert matcher.advance_bytes(b"[" * 1_500 + b"1" + b"]" * 1_500) and matcher.finished
    matcher = constraint.matcher()
    assert matcher.advance_bytes(b"[" * 1_500 + b"1,1" + b"]" * 1_499 + b",1]") and matcher.finished


# ---------------------------------------------------------------- the way out


@pytest.mark.parametrize("schema", SHAPES, ids=str)
def test_the_way_out_is_as_short_as_in_the_layout_that_was_begun(schema: Any) -> None:
    auto = build({"json_schema": schema, "options": {"undeclared": True}}, single_bytes(), "")
    fixed = {
        name: build({"json_schema": schema, "options": {"undeclared": True, "whitespace": name}}, single_bytes(), "")
        for name in ("compact", "spaced", 1, 2, 8)
    }
    texts = {json.dumps(value, **how): how for value in VALUES[4::2] for how in LAYOUTS[:-1]}
    asked = 0
    for text, how in texts.items():
        name = how.get("indent", "compact" if how else "spaced")
        if name not in fixed:
            continue
        for end in range(asked % 3, len(text), 3):
            own, other = auto.matcher(), fixed[name].matcher()
            if not (own.advance_bytes(text[:end].encode()) and other.advance_bytes(text[:end].encode())):
                continue
            ways = [matcher.completion(1_000) for matcher in (own, other)]
            assert ways[0] is not None and ways[1] is not None
            shortest = b"".join(ways[0].pieces)
            length = [sum(map(len, way.pieces)) + way.beyond for way in ways if way is not None]
            assert length[0] <= length[1], (text[:end], ways)
            if decided(text, end):
                assert length[0] == length[1], (text[:end], ways)
            if not ways[0].beyond:
                assert own.advance_bytes(shortest) and own.accepting
                assert is_dump(text[:end] + shortest.decode())
            asked += 1
    assert asked > 20


@pytest.mark.skipif(not available(), reason="there is no native library")
def test_both_machines_are_compared() -> None:
    assert [Machine, NativeMachine] == MACHINES


@pytest.mark.parametrize("schema", [*SHAPES, {}], ids=str)
@pytest.mark.parametrize("whitespace", ["auto", 2, 8])
@pytest.mark.parametrize("text", [b"", b"{", b'{\n  "a": ', b"[\n  [\n    [\n      [\n        ", b"[[[["])
def test_the_way_out_looks_at_one_depth_of_a_layout(schema: Any, whitespace: str | int, text: bytes) -> None:
    """Every depth of indentation has rules of its own: without an end, in free JSON. A gen waits for this."""
    spec = {"json_schema": schema, "options": {"whitespace": whitespace}}
    constraint = build(spec, single_bytes(), "")
    assert isinstance(constraint, PushdownConstraint)
    matcher = constraint.matcher()
    if not matcher.advance_bytes(text):
        return
    before = len(constraint.machine.rules)
    way = matcher.completion(1000)
    assert way is not None and len(constraint.machine.rules) - before < 300
    assert matcher.advance_bytes(b"".join(way.pieces)) and (way.beyond or matcher.accepting)
