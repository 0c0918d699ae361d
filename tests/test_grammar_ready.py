"""Ready grammars: samples are read by the readers of the standard library, and usual texts are accepted."""

from __future__ import annotations

import ast
import json
import random
import sqlite3
import urllib.parse
import warnings
import xml.etree.ElementTree as ElementTree

import pytest
from grammar_kit import accepts, draw, of_spec

from plait.constrained.grammar import ready
from plait.constrained.interface import ConstraintError

TEXTS: dict[str, tuple[list[str], list[str]]] = {
    "arithmetic": (["1 + 2*(3-x)", "-2^3", "f(1, 2)/0.5"], ["1 +", "(1", "01"]),
    "date": (["2024-02-29"], ["2023-02-29"]),
    "date_time": (["2024-02-29T12:00:00Z"], ["2024-02-29"]),
    "email": (["a.b@example.com"], ["a@b@c"]),
    "json": (
        ['{"a": [1, -2.5e3, null, "\\u00e9\\ud83d\\ude00"]}', "true", '{\n  "a": {}\n}'],
        ['"\\ud800"', "{a}", "[1,]"],
    ),
    "python_expression": (
        [
            "a if b else c",
            "[x for x in range(10) if x % 2]",
            'f(1, *a, k=2)["x"][1:2, ::3]',
            "lambda x: x + 1",
            "{**a, 'b': 1}",
        ],
        ["a =", "for", "f(k=1, 2)", "lambda: pass", "None = 1"],
    ),
    "sql_select": (
        [
            "SELECT * FROM t",
            "select a.b, count(*) AS n from t as a left join u on a.id = u.id where n > 3 and b like 'x%' group by a.b "
            "having count(*) > 1 order by n desc limit 10 offset 5;",
            "SELECT x FROM (SELECT y FROM z) AS q WHERE x IN (1, 2) AND y IS NOT NULL UNION ALL SELECT 1 FROM w",
        ],
        ["SELECT", "SELECT a FROM FROM", "DELETE FROM t", "SELECT a; DROP TABLE t"],
    ),
    "time": (["12:00:00+01:00"], ["25:00:00Z"]),
    "url": (["https://example.com:8080/a/b?c=d#e", "http://127.0.0.1"], ["ftp://x", "https://", "http://a b"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08"]),
    "xml": (['<a b="1"><c/>text &amp; more<!-- x --></a>', "<a/>"], ["<a>", "<a b=1/>", "text", "<a>&</a>"]),
}


def test_every_grammar_is_tested() -> None:
    assert sorted(TEXTS) == ready.known()
    with pytest.raises(ConstraintError, match="there is no ready grammar 'yaml'"):
        of_spec({"ready": "yaml"})


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_usual_texts(name: str) -> None:
    made = of_spec({"ready": name})
    for text in TEXTS[name][0]:
        assert accepts(made, text), text
    for text in TEXTS[name][1]:
        assert not accepts(made, text), text


def samples(name: str, count: int) -> list[str]:
    rng = random.Random(name)
    made = of_spec({"ready": name})
    return [draw(made, rng, rng.choice([5, 20, 60])) for _ in range(count)]


def test_json_samples() -> None:
    for text in samples("json", 60):
        json.loads(text)


def test_python_samples() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # 1 is 1, ""()
        for text in samples("python_expression", 60):
            ast.parse(text, mode="eval")


def test_sql_samples() -> None:
    with sqlite3.connect(":memory:") as database:
        for text in samples("sql_select", 60):
            try:
                database.execute("EXPLAIN " + text)
            except sqlite3.OperationalError as error:
                assert "syntax error" not in str(error) and "unrecognized" not in str(error), text


def test_xml_samples() -> None:
    for text in samples("xml", 60):
        try:
            ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            assert "mismatched tag" in str(error) or "duplicate attribute" in str(error), text


def test_url_samples() -> None:
    for text in samples("url", 60):
        parts = urllib.parse.urlsplit(text)
        assert parts.scheme in ("http", "https") and parts.hostname
        assert parts.port is None or 0 < parts.port < 65536
