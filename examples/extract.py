"""Typed records out of plain sentences: a dataclass says what the JSON looks like, and the value is one of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

import plait

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=20)]


@dataclass
class Person:
    name: Name
    age: Annotated[int, msgspec.Meta(ge=0, le=120)]
    city: Name
    status: Literal["working", "studying", "retired", "unknown"]


EXAMPLES = """\
Text: My name is Peter, I live in Oslo and I am 72 years old, retired since last year.
JSON: {"name": "Peter", "age": 72, "city": "Oslo", "status": "retired"}
Text: Maria turned 31 last week. She works in Madrid.
JSON: {"name": "Maria", "age": 31, "city": "Madrid", "status": "working"}
"""

SENTENCES = [
    "Anna is 27 and has always lived in Berlin.",
    "Tom, who is 64 years old, sells flowers in London.",
    "At 19, Lucia left home to study in Rome.",
]


@plait.function
def extract(s: plait.State, sentence: str) -> Person:
    s += EXAMPLES
    s += f"Text: {sentence}\nJSON: " + plait.gen("person", max_tokens=120, schema=Person, whitespace="spaced")
    person: Person = s["person"]
    return person


def main(backend: plait.Backend | None = None) -> None:
    states = extract.run_batch([(sentence,) for sentence in SENTENCES], backend=backend, temperature=0)
    for sentence, state in zip(SENTENCES, states):
        usage = state.result("person").usage
        print(f"{sentence}\n  {state.ret_value}   ({usage.sampled} tokens sampled, {usage.forced} forced)")


if __name__ == "__main__":
    main()
