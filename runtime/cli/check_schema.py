"""``plait check-schema``: what is supported of a schema or a regex, and what it looks like."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from ...constrained.interface import ConstraintError
from ...constrained.report import Estimate, Report, regex_report, schema_report
from ..errors import RequestError


def check_schema(file: str, *, regex: bool, dot: str | None, svg: str | None, as_json: bool, options: str) -> None:
    """Exits with 0 if it is supported, with 1 if not. Raises RequestError (exit 2) for input that cannot be read."""
    source = _read(file)
    if (dot or svg) and not regex:
        raise RequestError("a picture is drawn of a regex: give --regex, or leave --dot and --svg out", "dot")
    try:
        given = json.loads(options)
    except json.JSONDecodeError as error:
        raise RequestError(f"--options is not JSON: {error}", "options") from None
    if not isinstance(given, dict):
        raise RequestError('--options must be a JSON object, such as {"strict": false}', "options")
    try:
        if regex:
            pattern = source.removesuffix("\n")
            report = regex_report(pattern)
            if report.supported:
                _draw(pattern, dot, svg)
        else:
            _must_be_json(source, file)
            report = schema_report(source, given)
    except ConstraintError as error:
        raise RequestError(str(error), "options") from error
    if as_json:
        print(json.dumps(report.plain(), ensure_ascii=False, indent=2))
    else:
        _print(report, "regex" if regex else "schema")
    if not report.supported:
        raise typer.Exit(1)


def _must_be_json(source: str, file: str) -> None:
    try:
        json.loads(source, parse_int=str, parse_float=str, parse_constant=_no_json)
    except RecursionError:
        return  # it may well be JSON; the report says what of it is too deep
    except ValueError as error:
        raise RequestError(f"{'standard input' if file == '-' else file} is not JSON: {error}", "file") from None


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {file}: {error}", "file") from error


def _draw(pattern: str, dot: str | None, svg: str | None) -> None:
    if not dot and not svg:
        return
    from ...constrained import picture
    from ...constrained.regular.languages import Languages

    text = picture.dot(Languages().regex(pattern, "python"))
    for target, content in ((dot, text), (svg, picture.svg(text) if svg else "")):
        if target:
            try:
                Path(target).write_text(content, "utf-8")
            except OSError as error:
                raise RequestError(f"cannot write {target}: {error}", "dot" if target == dot else "svg") from error
            print(f"written: {target}", file=sys.stderr)


def _print(report: Report, what: str) -> None:
    print("supported" if report.supported else "not supported")
    if report.draft:
        print(f"draft {report.draft}, {report.schemas} schemas, {report.depth} deep")
    for problem in report.problems:
        print(f"  problem: {problem}")
    for problem in report.relaxable:
        print(f"  strict=False would drop: {problem}")
    for problem in report.notes:
        print(f"  note: {problem}")
    if report.estimate is not None:
        _print_estimate(report.estimate)
    elif what == "schema" and report.relaxable:
        print("gen(json_schema=..., strict=False) takes it without these, and reports them")


def _print_estimate(estimate: Estimate) -> None:
    sample = estimate.sample if len(estimate.sample) <= 400 else estimate.sample[:399] + "…"
    print(f"compile and first mask: {estimate.compile_ms:.2f} ms here, over single bytes")
    print(f"a shortest text: {sample}")
    print(
        f"  {estimate.sample_bytes} bytes, {100 * estimate.forced_share:.0f} % of them forced; "
        f"{estimate.states} states and {estimate.rules} rules reached"
    )
