"""URI references resolved by RFC 3986, section 5 (urllib leaves ``urn:`` and unknown schemes alone)."""

from __future__ import annotations

import re
from functools import lru_cache

#: RFC 3986, appendix B
_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def split(uri: str) -> tuple[str, str | None]:
    """The URI without its fragment, and the fragment (None if there is no ``#``)."""
    head, mark, fragment = uri.partition("#")
    return head, fragment if mark else None


_REMEMBERED = 512  # characters: texts that are longer come from whoever wants our memory, and are not kept


def resolve(base: str, reference: str) -> str:
    """The target URI of ``reference`` against ``base``, its fragment included. An empty base leaves it as it is."""
    short = len(base) + len(reference) <= _REMEMBERED
    return _resolve_once(base, reference) if short else _resolve(base, reference)


@lru_cache(maxsize=4096)
def _resolve_once(base: str, reference: str) -> str:
    return _resolve(base, reference)


def _resolve(base: str, reference: str) -> str:
    scheme, authority, path, query, fragment = _split(reference)
    if scheme is None and base:
        scheme, base_authority, base_path, base_query, _ = _split(base)
        if authority is None:
            authority = base_authority
            if not path:
                path = base_path
                query = base_query if query is None else query
            elif path[0] == "/":
                path = _without_dots(path)
            elif base_authority is not None and not base_path:
                path = _without_dots("/" + path)
            else:
                path = _without_dots(base_path[: base_path.rfind("/") + 1] + path)
        else:
            path = _without_dots(path)
    elif scheme is not None:
        path = _without_dots(path)
    made = f"{scheme}:" if scheme is not None else ""
    if authority is not None:
        made += f"//{authority}"
    made += path
    if query is not None:
        made += f"?{query}"
    return f"{made}#{fragment}" if fragment is not None else made


def _split(uri: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _PARTS.fullmatch(uri)
    assert found is not None  # the pattern takes every string
    scheme, authority, path, query, fragment = found.groups()
    return scheme, authority, path, query, fragment


def _without_dots(path: str) -> str:
    """RFC 3986, 5.2.4, segment by segment."""
    if "." not in path:
        return path
    segments = path.split("/")
    kept: list[str] = []
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment == ".":
            if last:
                kept.append("")
        elif segment == "..":
            if len(kept) > 1 or (kept and kept[0]):
                kept.pop()
            if last:
                kept.append("")
        else:
            kept.append(segment)
    made = "/".join(kept)
    return "/" + made if path[0] == "/" and not made.startswith("/") else made
