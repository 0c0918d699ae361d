"""Drafts, vocabularies, and where schemas stand inside schemas.

::

    $schema --> Dialect(draft, vocabularies) --> which keywords are read, which name an identifier, what $ref hides
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

D3, D4, D6, D7, D2019, D2020 = range(6)
DRAFT_NAMES = ("3", "4", "6", "7", "2019-09", "2020-12")

#: groups of keywords that a metaschema's $vocabulary switches; "core" is always on
VOCABULARIES = frozenset({"applicator", "unevaluated", "validation", "format", "format-assertion"})


class Dialect(NamedTuple):
    """``vocabularies``: those of :data:`VOCABULARIES` that are on. ``known``: ``$schema`` named a dialect we know."""

    draft: int
    vocabularies: frozenset[str]
    known: bool = True

    @property
    def identifier(self) -> str:
        return "id" if self.draft <= D4 else "$id"


def plain(draft: int) -> Dialect:
    """The draft as its own metaschema has it: format is asserted as the options say."""
    return _PLAIN[draft]


_PLAIN = tuple(Dialect(draft, frozenset({"applicator", "unevaluated", "validation", "format"})) for draft in range(6))

_DRAFT_URIS = {
    "json-schema.org/draft-03/schema": D3,
    "json-schema.org/draft-03/hyper-schema": D3,
    "json-schema.org/draft-04/schema": D4,
    "json-schema.org/draft-04/hyper-schema": D4,
    "json-schema.org/draft-05/schema": D4,  # draft 5 changed no keyword; its metaschema is draft 4's
    "json-schema.org/draft-05/hyper-schema": D4,
    "json-schema.org/draft-06/schema": D6,
    "json-schema.org/draft-06/hyper-schema": D6,
    "json-schema.org/draft-07/schema": D7,
    "json-schema.org/draft-07/hyper-schema": D7,
    "json-schema.org/draft/2019-09/schema": D2019,
    "json-schema.org/draft/2019-09/hyper-schema": D2019,
    "json-schema.org/draft/2020-12/schema": D2020,
    "json-schema.org/draft/2020-12/hyper-schema": D2020,
    "json-schema.org/schema": D2020,
}


def draft_of_uri(uri: str) -> int | None:
    """The draft that a ``$schema`` value names, by whichever spelling (http or https, with or without ``#``)."""
    return _DRAFT_URIS.get(uri.strip().removeprefix("https://").removeprefix("http://").rstrip("#/"))


def vocabulary(uri: str) -> tuple[int, str] | None:
    """A vocabulary's URI -> (draft, group), e.g. (D2020, "validation"); None for one that is not of the drafts."""
    for draft in (D2019, D2020):
        head = f"https://json-schema.org/draft/{DRAFT_NAMES[draft]}/vocab/"
        if uri.startswith(head):
            name = uri[len(head) :]
            return draft, "format" if name == "format-annotation" else name
    return None


# ---------------------------------------------------------------- metaschemas


@cache
def bundled() -> dict[str, str]:
    """URI (without fragment) -> name of the file in ``metaschemas/`` that holds the document."""
    made = {f"http://json-schema.org/draft-0{n}/schema": f"draft{n}.json" for n in (3, 4, 6, 7)}
    parts = {
        "2019-09": ("applicator", "content", "core", "format", "meta-data", "validation"),
        "2020-12": (
            *("applicator", "content", "core", "format-annotation", "format-assertion"),
            *("meta-data", "unevaluated", "validation"),
        ),
    }
    for draft, names in parts.items():
        made[f"https://json-schema.org/draft/{draft}/schema"] = f"{draft}.schema.json"
        for name in names:
            made[f"https://json-schema.org/draft/{draft}/meta/{name}"] = f"{draft}.{name}.json"
    return made


@cache
def metaschema(name: str) -> Any:
    """The parsed document. It is shared: nobody changes it."""
    return json.loads((Path(__file__).parent / "metaschemas" / name).read_text("utf-8"))


# ---------------------------------------------------------------- where schemas stand

ONE, MANY, MAP = "one", "many", "map"
#: keyword -> how its value holds schemas. ``items`` and ``dependencies`` hold either kind of value.
PLACES: dict[str, str] = {
    **dict.fromkeys(
        (
            *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
            *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
        ),
        ONE,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), MANY),
    **dict.fromkeys(
        ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"), MAP
    ),
}
