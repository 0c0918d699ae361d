"""Grammars that come with Plait, by name: texts in ``grammars/NAME.gbnf`` (package data), and formats."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from ..interface import ConstraintError

GRAMMARS = ("arithmetic", "json", "python_expression", "sql_select", "url", "xml")
#: names of :mod:`..regular.formats`
FORMATS = {"date": "date", "date_time": "date-time", "email": "email", "time": "time", "uuid": "uuid"}


def known() -> list[str]:
    return sorted([*GRAMMARS, *FORMATS])


@lru_cache(maxsize=len(GRAMMARS))
def source(name: str) -> str:
    """The GBNF text of a ready grammar. Raises ConstraintError if there is none."""
    if name not in GRAMMARS:
        raise ConstraintError(f"there is no ready grammar {name!r} (there are: {', '.join(known())})")
    return resources.files(__package__).joinpath("grammars", f"{name}.gbnf").read_text("utf-8")
