"""The prompts of shared/tools/peers/workload.py: cut from one long text, so that every system gets the same ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plait.runtime.tokenizer import Tokenizer

DEFAULT_TEXT = Path("/usr/share/common-licenses/GPL-3")  # part of every Debian and Ubuntu
TOPICS = [
    "volcanoes",
    "bicycles",
    "tea",
    "glaciers",
    "printing presses",
    "honey bees",
    "lighthouses",
    "chess",
    "violins",
    "satellites",
    "deserts",
    "bread",
    "coral reefs",
    "canals",
    "clocks",
    "paper",
]


@dataclass(frozen=True)
class Workload:
    single: list[list[int]]  # 4 prompts of about 31 tokens
    prefill: list[list[int]]  # 4 prompts of about 1,000 tokens
    many: list[list[int]]  # 16 prompts of about 64 tokens
    prefix: list[int]  # about 1,000 tokens
    shared: list[list[int]]  # 32 prompts: the prefix and about 24 tokens


def build(tokenizer: Tokenizer, text: Path = DEFAULT_TEXT) -> Workload:
    """Raises FileNotFoundError if ``text`` is not there: give any English text of 40 kB or more."""
    ids = encode(tokenizer, re.sub(r"\s+", " ", text.read_text("utf-8")))

    def cut(start: int, count: int) -> str:
        return b"".join(map(tokenizer.vocabulary.bytes, ids[start : start + count])).decode("utf-8", "ignore").strip()

    prefix = cut(4500, 1000)
    return Workload(
        single=[encode(tokenizer, cut(200 + 137 * k, 31)) for k in range(4)],
        prefill=[encode(tokenizer, cut(10 + 1050 * k, 1000)) for k in range(4)],
        many=[
            encode(tokenizer, f"Write a short and factual article about {topic}. " + cut(3000 + 97 * i, 54))
            for i, topic in enumerate(TOPICS)
        ],
        prefix=encode(tokenizer, prefix),
        shared=[
            encode(
                tokenizer,
                f"{prefix}\n\nQuestion {i}: explain in one sentence how the rule above applies to case number "
                f"{i * 37}. Answer:",
            )
            for i in range(32)
        ],
    )


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, special=False))
