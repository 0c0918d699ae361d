"""Which names of ``format`` are asserted: those whose language is known. Any other name is an annotation."""

from __future__ import annotations

_STANDARD = frozenset(
    (
        *("date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
        *("uri", "uri-reference", "iri", "iri-reference", "uri-template", "uuid", "json-pointer"),
        *("relative-json-pointer", "regex"),
    )
)


def asserted(name: str) -> bool:
    return name in _STANDARD
