"""gen's constraints: what is sent, what is refused at the call, and what value the text becomes."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json
import pathlib
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import jsonschema
import msgspec
import pydantic
import pytest
from fake_backend import FakeBackend
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait import constraints as c
from plait.lang import schemas
from plait.lang.hints import Unknown, derive
from plait.lang.partial import parse_partial
from plait.lang.schemas import read_type
from plait.runtime.errors import GenerationError, InvalidConstraint, InvalidValue
from plait.runtime.protocol import MAX_CONSTRAINT_BYTES, Gen, Regex, Spec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Address(TypedDict):
    city: str
    zip: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Person:
    name: str
    age: Annotated[int, msgspec.Meta(ge=0, le=150)]
    color: Color = Color.RED
    tags: list[str] = field(default_factory=list)
    address: Address | None = None


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class User(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, pattern="^[a-z]+$")
    age: int = pydantic.Field(ge=0)
    friend: User | None = None


@dataclass
class Between:
    """As annotated_types has it."""

    ge: Any = None
    lt: Any = None


@dataclass
class Halved:
    n: Annotated[int, SimpleNamespace(func=lambda n: n % 2 == 0)]

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("odd")


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


class Strange:
    pass


class Struct(msgspec.Struct):
    a: int
    b: str = "x"


def saying(text: str) -> FakeBackend:
    return FakeBackend(answer=lambda prompt, op: text)


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    backend = FakeBackend()
    yield backend
    backend.close()


def one(text: str, max_tokens: int = 64, **arguments: Any) -> plait.Result:
    """The result of one gen whose model says ``text``."""
    backend = saying(text)

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x", max_tokens, **arguments)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", plait.PlaitWarning)
            result: plait.Result = program.run(backend=backend).result("x")
        return result
    finally:
        backend.close()


def sent(**arguments: Any) -> Regex | Spec:
    """The specification that a gen sends."""
    backend = saying("null")

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x", **arguments)

    program.run(backend=backend)
    found = backend.ops(Gen)[0].constraint
    backend.close()
    assert found is not None
    return found


def data(**arguments: Any) -> Any:
    spec = sent(**arguments)
    assert isinstance(spec, Spec)
    return json.loads(spec.source)


# ---------------------------------------------------------------- what is sent


def test_the_specifications() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert sent(regex="a+") == Regex("a+")
    assert sent(regex=r"\p{Lu}+") == Regex(r"\p{Lu}+")  # not Python's, but ours
    assert data(json_schema=schema) == {"json_schema": schema}
    assert list(data(json_schema=json.dumps(schema))["json_schema"]["properties"]) == ["b", "a"]
    assert data(json_schema=True) == {"json_schema": True}
    assert data(grammar='root ::= "a"') == {"grammar": 'root ::= "a"', "syntax": "auto"}
    grammar = data(grammar='s: "a"', syntax="lark", start="s")
    assert grammar == {"grammar": 's: "a"', "syntax": "lark", "start": "s"}
    assert data(constraint=c.lit("a") + "b") == {"seq": [{"literal": "a"}, {"literal": "b"}]}


def test_a_schema_given_as_text_travels_as_it_is_written() -> None:
    for options in ({}, {"strict": False, "documents": {"urn:x": {}}}):
        spec = sent(json_schema=' {"multipleOf": 0.1000000000000000000001} ', **options)
        assert isinstance(spec, Spec) and "0.1000000000000000000001" in spec.source
        assert list(json.loads(spec.source)) == ["json_schema", *(["options", "documents"] if options else [])]


def test_the_options_of_a_schema() -> None:
    found = data(
        json_schema={}, any_order=True, whitespace=2, strict=False, format="annotate", documents={"urn:x": {"const": 1}}
    )
    assert found["options"] == {"any_order": True, "strict": False, "whitespace": 2, "format": "annotate"}
    assert found["documents"] == {"urn:x": {"const": 1}}
    assert "options" not in data(json_schema={})


def test_the_backend_is_the_gen_s_or_the_run_s(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a", regex="a") + plait.gen("b", json_schema={}, constraint_backend="xgrammar") + plait.gen("c")

    program.run(backend=backend, constraint_backend="llguidance")
    a, b, free = (gen.constraint for gen in backend.ops(Gen))
    assert (a, free) == (Regex("a", "llguidance"), None) and b is not None and b.backend == "xgrammar"


def test_how_a_text_ends_is_the_gen_s_or_the_run_s_where_there_is_a_constraint(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a", regex="a+") + plait.gen("b", json_schema={}, end="natural") + plait.gen("c")

    program.run(backend=backend, end="eos")
    assert [gen.sampling.end for gen in backend.ops(Gen)] == ["eos", "natural", None]


def test_stop_regex(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a", stop_regex=r"\n\d") + plait.gen("b", stop_regex=["a", "b+"], regex="x")

    program.run(backend=backend)
    assert [gen.sampling.stop_regex for gen in backend.ops(Gen)] == [(r"\n\d",), ("a", "b+")]


# ---------------------------------------------------------------- what is refused at the call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"regex": "a", "json_schema": {}}, "regex or json_schema"),
        ({"schema": int, "grammar": "g"}, "schema or grammar"),
        ({"constraint": c.lit("a"), "dtype": int}, "constraint or dtype"),
        ({"any_order": True}, "any_order belongs to json_schema"),
        ({"regex": "a", "documents": {}}, "documents belongs to json_schema"),
        ({"json_schema": {}, "syntax": "lark"}, "syntax belongs to grammar"),
        ({"start": "root"}, "start belongs to grammar"),
        ({"json_schema": {}, "whitespace": "loose"}, "whitespace must be one of auto, single, compact, spaced"),
        ({"json_schema": {}, "whitespace": True}, "whitespace must be"),
        ({"json_schema": {}, "strict": 1}, "strict must be True or False"),
        ({"json_schema": {}, "format": True}, "format must be one of"),
        ({"json_schema": {}, "documents": []}, "documents must map"),
        ({"json_schema": {}, "documents": {"a": 1}}, r"documents\['a'\] must be a JSON Schema"),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"json_schema": "[1]"}, "must be a JSON Schema .* not a list"),
        ({"json_schema": 3}, "must be a JSON Schema"),
        ({"json_schema": {"const": {1, 2}}}, "cannot be written as JSON"),
        ({"json_schema": {"const": float("nan")}}, "cannot be written as JSON"),
        ({"json_schema": {"const": "x" * MAX_CONSTRAINT_BYTES}}, "at most"),
        ({"schema": {"type": "string"}}, "json_schema="),
        ({"schema": 3}, "no JSON Schema|cannot be read"),
        ({"grammar": " "}, "grammar must be a non-empty string"),
        ({"grammar": "g", "syntax": "bnf"}, "syntax must be one of auto, gbnf"),
        ({"constraint": "a"}, "plait.constraints"),
        ({"constraint_backend": "plait"}, "none is given"),
        ({"regex": "a", "constraint_backend": ""}, "constraint_backend must be a name"),
        ({"stop_regex": "a("}, r"stop_regex 'a\(' is not a regular expression"),
        ({"stop_regex": [3]}, "stop_regex must be a string or a list"),
        ({"choices": ["a"], "json_schema": {}}, "choices cannot be combined with json_schema"),
    ],
)
def test_a_fault_is_named_at_the_call(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidValue, InvalidConstraint), match=words):
        plait.gen("x", **arguments)


def test_what_is_meant_is_said_where_it_can_be_seen() -> None:
    with pytest.raises(InvalidConstraint, match="a type goes into schema="):
        plait.gen("x", json_schema=User)
    for wrapper in ({"name": "user", "schema": {"type": "object"}}, {"name": "f", "parameters": {"type": "object"}}):
        with pytest.raises(InvalidConstraint, match="one deeper"):
            plait.gen("x", json_schema=wrapper)
    plait.gen("x", json_schema={"name": "no schema at all"})
    with pytest.raises(InvalidValue, match=r"\.pattern"):
        plait.gen("x", regex=re.compile("a"))


# ---------------------------------------------------------------- values


def test_json_schema_gives_the_parsed_json() -> None:
    assert one('{"a": [1, 2.5, null]}', json_schema={}).value == {"a": [1, 2.5, None]}
    assert one("3", json_schema='{"type": "integer"}').value == 3


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (
            Person,
            '{"name": "Ada", "age": 36, "color": "blue", "tags": ["x"], "address": {"city": "London"}}',
            Person("Ada", 36, Color.BLUE, ["x"], {"city": "London"}),
        ),
        (Person, '{"name": "Ada", "age": 36}', Person("Ada", 36)),
        (Tree, '{"value": 1, "children": [{"value": 2}]}', Tree(1, [Tree(2)])),
        (Address, '{"city": "Rome"}', {"city": "Rome"}),
        (Color, '"blue"', Color.BLUE),
        (Level, "2", Level.HIGH),
        (Literal["a", 1, None], "1", 1),
        (Literal[Color.RED], '"red"', Color.RED),
        (list[Person], '[{"name": "A", "age": 1}]', [Person("A", 1)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (dict[Literal["a", "b"], bool], '{"b": true}', {"b": True}),
        (int | str | None, '"x"', "x"),
        (int | bool, "true", True),
        (float | int, "1", 1),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (tuple[int, ...], "[1, 2]", (1, 2)),
        (set[int], "[1, 2]", {1, 2}),
        (Point, "[1, 2]", Point(1, 2.0)),
        (Address | Person, '{"name": "B", "age": 2}', Person("B", 2)),
        (Annotated[str, msgspec.Meta(max_length=3)], '"abc"', "abc"),
        (UUID, '"12345678-1234-5678-1234-567812345678"', UUID("12345678-1234-5678-1234-567812345678")),
        (datetime.timedelta, '"P1DT2H"', datetime.timedelta(days=1, hours=2)),
        (Decimal, "1.10", Decimal("1.1")),
        (list[pathlib.PurePosixPath | None], '["/a"]', [pathlib.PurePosixPath("/a")]),
        (ipaddress.IPv4Network, '"10.0.0.0/8"', ipaddress.IPv4Network("10.0.0.0/8")),
        (User, '{"name": "ada", "age": 3}', User(name="ada", age=3)),
        (list[User], '[{"name": "ada", "age": 3, "friend": null}]', [User(name="ada", age=3)]),
        (pydantic.TypeAdapter(list[int]), "[1]", [1]),
        (Struct, '{"a": 1}', Struct(1)),
        (int, "3", 3),
        (str, '"x"', "x"),
        (None, "null", "null"),  # None is "not given": free text
    ],
    ids=str,
)
def test_schema_gives_a_value_of_the_type(schema: Any, text: str, value: Any) -> None:
    result = one(text, schema=schema)
    assert result.error is None and result.value == value and type(result.value) is type(value)
    if schema is not None:
        jsonschema.validate(json.loads(text), read_type(schema).schema)


def test_an_object_has_its_type_s_fields_and_no_others() -> None:
    for schema in (Person, Address, User, Struct):
        found = read_type(schema).schema
        where = found if "properties" in found else found["$defs"][found["$ref"].rsplit("/", 1)[1]]
        assert where["additionalProperties"] is False
        assert where["properties"]
    person = derive(Person)["$defs"]["Person"]
    assert person["required"] == ["name", "age"] and list(person["properties"])[:2] == ["name", "age"]
    assert person["properties"]["age"] == {"type": "integer", "minimum": 0, "maximum": 150}


def test_a_type_without_a_schema_is_refused_by_name() -> None:
    for bad in (complex, dict[int, str], list[complex], Literal[b"x"]):
        with pytest.raises(Unknown):
            derive(bad)
    with pytest.raises(InvalidConstraint, match="Strange"):
        plait.gen("x", schema=dataclasses.make_dataclass("Odd", [("z", Strange)]))

    @dataclass
    class Local:
        other: Missing  # type: ignore[name-defined]  # noqa: F821  # the point of the test

    with pytest.raises(InvalidConstraint, match="Local"):
        plait.gen("x", schema=Local)


def test_bounds_of_dates_times_and_durations() -> None:
    day, hour = datetime.date(2020, 1, 1), datetime.timedelta(hours=1)
    assert derive(Annotated[datetime.date | None, Between(ge=day, lt=day + 24 * hour)])["anyOf"][0] == {
        "type": "string",
        "format": "date",
        "formatMinimum": "2020-01-01",
        "formatExclusiveMaximum": "2020-01-02",
    }
    assert derive(Annotated[datetime.timedelta, Between(ge=hour)])["formatMinimum"] == "P0DT3600S"
    assert derive(Annotated[datetime.time, Between(lt=datetime.time(9))]) == {
        "type": "string",
        "format": "time-local",
        "formatExclusiveMaximum": "09:00:00",
    }
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(hour))
    assert derive(Annotated[datetime.datetime, Between(ge=moment)])["formatMinimum"] == "2020-01-01T00:00:00+01:00"
    assert derive(Annotated[datetime.datetime, msgspec.Meta(tz=False)])["format"] == "date-time-local"
    assert derive(Annotated[Decimal, Between(ge=Decimal("0.5"))]) == {"type": "number", "minimum": 0.5}
    with pytest.raises(Unknown, match="is no date"):
        derive(Annotated[datetime.date, Between(ge=moment)])
    with pytest.raises(ValueError, match="no duration"):
        read_type(datetime.timedelta).parse('"P"')


def test_what_a_type_asks_for_beyond_its_schema_is_noted() -> None:
    result = one('{"n": 4}', schema=Halved)
    assert result.value == Halved(4)
    assert result.notes == ("Halved: what Halved.__post_init__ asks for", "a predicate of int")
    assert one('{"number": 4}', schema=Even).notes == ("Even.number: the validator Even.even",)
    assert one("3", schema=int).notes == ()


def test_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    monkeypatch.setattr(schemas, "_read_once", lambda schema, hour: schemas._read(schema))  # nothing is remembered
    assert one('{"name": "Ada", "age": 36}', schema=Person).value == Person("Ada", 36)
    assert one('"PT36H"', schema=datetime.timedelta).value == datetime.timedelta(hours=36)
    with pytest.raises(InvalidConstraint, match="complex has no JSON Schema"):
        plait.gen("x", schema=complex)
    with pytest.raises(InvalidConstraint, match="needs pydantic"):
        plait.gen("x", schema=User)


def test_a_value_that_the_type_refuses_is_an_error_when_read() -> None:
    result = one('{"number": 3}', schema=Even)
    assert isinstance(result.error, GenerationError) and "odd" in str(result.error)
    assert isinstance(result.error.__cause__, pydantic.ValidationError)
    assert result.value is None and result.text == '{"number": 3}'


# ---------------------------------------------------------------- texts that were cut


def test_a_cut_value_is_what_is_there_so_far_and_flagged() -> None:
    text = '{"name": "Ada Lovelace", "age": 36}'
    for arguments in ({"json_schema": {}}, {"schema": Person}, {"schema": User}):
        result = one(text, 2, **arguments)
        assert (result.value, result.text) == ({"name": "Ada"}, '{"name": "Ada')
        assert result.partial and result.finish_reason == "length" and result.error is None
    assert one("[1, 2 3, 4]", 2, json_schema={}).value == [1]
    for dtype in (int, bool):
        assert one("- 1", 1, dtype=dtype).value is None
    assert one('"a b', 1, dtype=str).value == "a"
    assert one("nothing", 0, json_schema={}).value is None
    assert one("ab cd", 1, regex="ab cd").value == "ab"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        (" ", None),
        ("{", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": 1 , "b": [tr', {"a": 1, "b": [True]}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00e', {"a": "x"}),
        ('{"a": "x\\ud83d', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude00', {"a": "x😀"}),
        ('"', ""),
        ("[[1, [2, ", [[1, [2]]]),
        ("[nul", [None]),
        ("[-", []),
        ("fals", False),
        ("12", 12),
        ("1e", None),
        ("[1, oops", [1]),
        ("[1}", [1]),
        ("{1}", {}),
        ("[" * 100_000, None),
    ],
)
def test_partial_json(text: str, value: Any) -> None:
    assert parse_partial(text) == value


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
flat = leaves | st.lists(leaves, max_size=3) | st.dictionaries(st.text(max_size=3), leaves, max_size=3)
json_values = flat | st.lists(flat, max_size=3) | st.dictionaries(st.text(max_size=3), flat, max_size=3)


def begins(part: Any, whole: Any) -> bool:
    """``part`` is what a cut may leave of ``whole``."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(begins(a, b) for a, b in zip(part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and begins(value, whole[key]) for key, value in part.items())
    return part is None or bool(part == whole)


@given(json_values, st.booleans(), st.integers(0, 200))
def test_a_cut_anywhere_gives_a_beginning_of_the_value(value: Any, escaped: bool, at: int) -> None:
    text = json.dumps([value], ensure_ascii=escaped)
    assert parse_partial(text) == [value]
    assert begins(parse_partial(text[:at]), [value])


# ---------------------------------------------------------------- putting constraints together


def test_expressions_are_plain_data() -> None:
    digits = c.regex("[0-9]+")
    assert (digits | "none").data == {"any_of": [{"regex": "[0-9]+"}, {"literal": "none"}]}
    assert ("a" + digits + "b" + "c").data == {
        "seq": [{"literal": "a"}, {"regex": "[0-9]+"}, {"literal": "b"}, {"literal": "c"}]
    }
    assert ("x" | digits | "y").data["any_of"] == [{"literal": "x"}, {"regex": "[0-9]+"}, {"literal": "y"}]
    assert digits.optional().data == {"repeat": {"regex": "[0-9]+"}, "min": 0, "max": 1}
    assert digits.repeat(1, 5).data == {"repeat": {"regex": "[0-9]+"}, "min": 1, "max": 5}
    assert c.sep_by(digits, ",", 1).data == {
        "repeat": {"regex": "[0-9]+"},
        "min": 1,
        "max": None,
        "separator": {"literal": ","},
    }
    assert c.choice("a", "b") == c.choice(["a", "b"]) and c.choice("a", "b").data == {"choices": ["a", "b"]}
    assert c.choice("a", digits).data == {"any_of": [{"literal": "a"}, {"regex": "[0-9]+"}]}
    assert c.json().data == {"json_schema": True}
    assert c.json({"type": "null"}, whitespace="compact").data["options"] == {"whitespace": "compact"}
    assert c.json(Person).data["json_schema"] == derive(Person)
    assert c.ready("sql_select").data == {"ready": "sql_select"}
    assert c.grammar('root ::= "a"', syntax="gbnf").data["syntax"] == "gbnf"
    assert digits == c.regex("[0-9]+") and len({digits, c.regex("[0-9]+")}) == 1
    assert digits.data == {"regex": "[0-9]+"}, "an expression never changes"


@pytest.mark.parametrize(
    "make",
    [
        lambda: c.lit(3),
        lambda: c.lit("a").repeat(2, 1),
        lambda: c.lit("a").repeat(-1),
        lambda: c.lit("a") + 3,
        lambda: c.choice(),
        lambda: c.regex("("),
        lambda: c.ready(""),
        lambda: c.json({}, whitespace="x"),
        lambda: c.json("{"),
        lambda: c.grammar("", syntax="gbnf"),
        lambda: c.grammar("x", start=""),
    ],
)
def test_a_bad_part_is_refused_where_it_is_made(make: Any) -> None:
    with pytest.raises((InvalidValue, InvalidConstraint)):
        make()
