"""JSON out of plain sentences: a regex says what the record looks like, so every answer parses."""

from __future__ import annotations

import json
from typing import Any

import plait

# Bounded repeats: a small model that does not know when to stop is stopped by the regex.
NAME = r"[A-Z][a-z]{1,12}"
PERSON = rf'\{{"name": "{NAME}", "age": [1-9][0-9]?, "city": "{NAME}"\}}'

EXAMPLES = """\
Text: My name is Peter, I live in Oslo and I am 52 years old.
JSON: {"name": "Peter", "age": 52, "city": "Oslo"}
Text: Maria turned 31 last week. She moved to Madrid as a child.
JSON: {"name": "Maria", "age": 31, "city": "Madrid"}
"""

SENTENCES = [
    "Anna is 27 and has always lived in Berlin.",
    "Tom, who is 64 years old, sells flowers in London.",
    "At 19, Lucia left home to study in Rome.",
]


@plait.function
def extract(s: plait.State, sentence: str) -> Any:
    s += EXAMPLES
    s += f"Text: {sentence}\nJSON: " + plait.gen("person", max_tokens=96, regex=PERSON)
    return json.loads(s["person"])


def main(backend: plait.Backend | None = None) -> None:
    states = extract.run_batch([(sentence,) for sentence in SENTENCES], backend=backend, temperature=0)
    for sentence, state in zip(SENTENCES, states):
        print(f"{sentence}\n  {state.ret_value}")


if __name__ == "__main__":
    main()
