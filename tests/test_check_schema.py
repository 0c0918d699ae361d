"""``plait check-schema``: what it prints, its exit status, and the picture of a regex."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from plait.constrained import picture
from plait.constrained.grammar import ready
from plait.constrained.interface import ConstraintError
from plait.constrained.regular import formats
from plait.constrained.regular.languages import Languages
from plait.constrained.report import regex_report, schema_report
from plait.constrained.schema.dispatch import KEYWORDS
from plait.runtime.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "constraints.md"

ORDER = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 10},
        "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
        "note": {"type": "string"},
    },
    "required": ["number", "tags"],
}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["check-schema", *arguments])
    return int(caught.value.code or 0)


def file(folder: Path, content: Any, name: str = "schema.json") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_supported_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file(tmp_path, ORDER)) == 0
    said = capsys.readouterr().out
    assert said.startswith("supported\ndraft 2020-12, 5 schemas, 2 deep\n")
    sample = re.search(r"a shortest text: (.*)", said)
    assert sample is not None
    value = json.loads(sample[1])
    jsonschema.validate(value, ORDER)
    assert re.search(r"\d+ bytes, \d+ % of them forced; \d+ states and \d+ rules reached", said)


def test_what_is_not_supported_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"properties": {"a": {"pattern": r"(x)\1"}, "b": {"type": "string", "minimum": 3}}}
    assert run(file(tmp_path, bad)) == 1
    said = capsys.readouterr().out
    assert said.startswith("not supported\n")
    assert "problem: 'pattern' at #/properties/a: the pattern" in said
    assert "strict=False would drop: 'pattern' at #/properties/a" in said
    assert "note: 'minimum' at #/properties/b: speaks of numbers" in said
    assert run(file(tmp_path, bad), "--options", '{"strict": false}') == 0


def test_nothing_satisfies_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file(tmp_path, {"type": "string", "minLength": 2, "maxLength": 1})) == 1
    assert "no JSON value satisfies this schema" in capsys.readouterr().out


def test_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file(tmp_path, ORDER), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["supported"] is True
    assert report["problems"] == []
    assert report["keywords"]["type"] == 5
    estimate = report["estimate"]
    assert estimate["sample_bytes"] == len(estimate["sample"])
    assert 0 < estimate["forced_share"] < 1
    assert run(file(tmp_path, {"$ref": "#/nowhere"}), "--json") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["keyword"], problem["pointer"]) == ("$ref", "#")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.json"], "cannot read nowhere.json"),
        (["{file}", "--dot", "x.dot"], "a picture is drawn of a regex"),
        (["{file}", "--options", "{"], "--options is not JSON"),
        (["{file}", "--options", "[1]"], "--options must be a JSON object"),
        (["{file}", "--regex", "--dot", "/nowhere/x.dot"], "cannot write /nowhere/x.dot"),
        (["/"], "cannot read /"),
        (["{file}", "--options", '{"draft": "1"}'], "draft '1' is not known"),
    ],
)
def test_bad_input_ends_with_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part.replace("{file}", file(tmp_path, {})) for part in arguments]
    assert run(*given) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{'a': 1}", "", '{"a":', "{} {}", '{"maximum": NaN}', "type: object"])
def test_text_that_is_no_json_cannot_be_read(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"]):
        assert run(file(tmp_path, text), *more) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(f"plait: error: {tmp_path / 'schema.json'} is not JSON: ")
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("text", ["[1]", '"x"', "null", '{"a": 1, "a": 2}', "[" * 4000 + "]" * 4000])
def test_json_that_is_no_schema_is_not_supported(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file(tmp_path, text)) == 1
    assert "problem: " in capsys.readouterr().out


def test_a_number_of_many_digits_is_json(tmp_path: Path) -> None:
    assert run(file(tmp_path, '{"maximum": 1' + "0" * 5000 + "}")) in (0, 1)


def test_a_regex_and_its_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.dot"
    assert run(file(tmp_path, r"https?://[a-z]+", "r.txt"), "--regex", "--dot", str(target)) == 0
    assert "a shortest text: http://a" in capsys.readouterr().out
    drawn = target.read_text()
    assert drawn.startswith("digraph regex {")
    assert '[label="http"]' in drawn
    assert run(file(tmp_path, r"(a)\1", "r.txt"), "--regex") == 1
    assert "back-reference" in capsys.readouterr().out


def test_svg_needs_graphviz(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("dot"):
        assert picture.svg(picture.dot(Languages().regex("ab*", "python"))).count("<svg") == 1
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(file(tmp_path, "ab", "r.txt"), "--regex", "--svg", str(tmp_path / "x.svg")) == 2
    assert "needs graphviz' program dot" in capsys.readouterr().err


def edges(pattern: str) -> list[str]:
    return re.findall(r"(\d+ -> \d+ \[label=.*\]);", picture.dot(Languages().regex(pattern, "python")))


def test_one_way_chains_are_one_edge() -> None:
    assert edges("abc[0-9]d") == ['0 -> 1 [label="abc[0-9]d"]']
    loops = ['1 -> 1 [label="bc"]', '1 -> 1 [label="de"]']
    assert sorted(edges("a(bc|de)*f")) == ['0 -> 1 [label="a"]', *loops, '1 -> 2 [label="f"]']


@pytest.mark.parametrize(
    ("pattern", "label"),
    [
        ("[a-cx]", "[a-cx]"),
        ("[^a]", "[^a]"),
        (r"(?s).", "any"),
        ('"', '\\"'),
        (" ", "␣"),
        (r"\n", r"\\n"),
        ("[é]", "é"),
    ],
)
def test_names_of_classes(pattern: str, label: str) -> None:
    assert edges(pattern) == [f'0 -> 1 [label="{label}"]']


def test_a_picture_has_a_bound() -> None:
    drawn = picture.dot(Languages().regex("[ab]{1,5000}", "python"), 20)
    assert drawn.count("doublecircle") == 19
    assert drawn.count("dashed") == 1


def test_reports() -> None:
    assert regex_report("a{3,5}b").estimate.sample == "aaab"  # type: ignore[union-attr]
    with pytest.raises(ConstraintError, match="whitespace"):
        schema_report({}, {"whitespace": "wide"})
    report = schema_report({"$ref": "http://x/y"}, documents={"http://x/y": {"const": "é"}})
    assert report.estimate is not None
    assert report.estimate.sample == '"é"'


def test_the_page_names_everything() -> None:
    page = PAGE.read_text("utf-8")
    words = set(re.findall(r"[$\w]+(?:-[\w]+)*", page))
    missing = {keyword.name for keyword in KEYWORDS} - words - {"$recursiveAnchor"}
    assert not missing, missing
    assert set(formats.known()) <= words
    assert set(ready.known()) <= words
