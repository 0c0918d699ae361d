"""The code in README.md and docs/language.md runs, and the reference has every public name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend

import plait
from plait.lang.sampling import ALIASES, NOT_AVAILABLE, OPTION_NAMES

ROOT = Path(__file__).parent.parent
LANGUAGE = ROOT / "docs" / "language.md"
#: A fake model does not know when to stop; the other warnings are faults of a page.
pytestmark = pytest.mark.filterwarnings("ignore:.* was cut at max_tokens:plait.PlaitWarning")
PAGES = [ROOT / "README.md", LANGUAGE]


class StandIn(FakeBackend):
    """What ``Runtime(...)`` and ``connect(...)`` make in a snippet."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    fake = StandIn()
    monkeypatch.setattr(plait, "Runtime", StandIn)
    monkeypatch.setattr(plait, "connect", StandIn)
    plait.set_default_backend(fake)
    yield fake
    plait.set_default_backend(None)
    fake.close()


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line, code) of each python block."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, backend: FakeBackend) -> None:
    names: dict[str, Any] = {"__name__": "snippets"}
    assert len(blocks(page)) >= 2
    for line, code in blocks(page):
        exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), names)
    backend.until(lambda: backend.open_strands == 0)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in re.findall("^#.*$", text, re.M)
    }
    for path, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if path:
            assert "://" in path or (page.parent / path).exists(), path
        else:
            assert anchor in headings, anchor


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_nothing_is_said_twice(page: Path) -> None:
    """A paragraph that stands in a page twice is an edit that went wrong."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 60]
    headings = re.findall("^#.*$", text, re.MULTILINE)
    assert [line for line in {*long, *headings} if (long + headings).count(line) > 1] == []


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_reference_has_every_name() -> None:
    code = " ".join(re.findall(r"`([^`\n]+)`", LANGUAGE.read_text()))
    words = set(re.findall(r"\w+", code)) | set(re.findall(r"\w+", "".join(code for _, code in blocks(LANGUAGE))))
    names = {*plait.__all__, "Runtime", "connect"} - {"__version__"}
    names |= OPTION_NAMES | set(ALIASES) | (set(NOT_AVAILABLE) & {"use_thread"})
    names |= set(inspect.signature(plait.gen).parameters) | set(plait.constraints.__all__) | public(plait.Constraint)
    names |= public(plait.State) | public(plait.ForkGroup)
    names |= {"run", "stream", "arun", "run_batch", "bind", "num_threads", "progress_bar", "generator_style"}
    names |= {field.name for field in dataclasses.fields(plait.Result)}
    names |= {name for name in vars(plait.errors) if isinstance(getattr(plait.errors, name), type)}
    assert names - words == set()
