"""The layouts in which whitespace=\"auto\" writes JSON, as json.dumps writes them."""

from __future__ import annotations

import json
import re
from typing import Any

#: how json.dumps is told of each layout
LAYOUTS: list[dict[str, Any]] = [
    {"separators": (",", ":")},
    {},
    *({"indent": n} for n in range(1, 9)),
    {"indent": "\t"},
]


def dumps(value: Any) -> list[str]:
    return [json.dumps(value, ensure_ascii=False, **how) for how in LAYOUTS]


def is_dump(text: str) -> bool:
    """Whether it is a whole JSON text in one of the layouts. Strings and numbers may be spelled in any way, and keys
    may repeat: each is taken for one of its own."""
    count = 0

    def named(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f'"{count}"' if match[0][0] == '"' else str(count)

    plain = re.sub(r'"(?:[^"\\]|\\.)*"|[-+.0-9a-zA-Z]+', named, text)
    try:
        return plain in dumps(json.loads(plain))
    except ValueError:
        return False
