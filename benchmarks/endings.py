"""Where constrained texts end on the real model: 60 prompts for a number, a word, a name or a phrase, greedy.

    python benchmarks/endings.py [--model PATH] [--show]

Each prompt is continued three times: free, constrained as gen does by default (end="natural"), and constrained with
end="eos". The beginning is the longest beginning of the free text that the constraint accepts: what the model says
where nothing disturbs it.

right    the value that a reader expects; of the beginning, of the natural text, of the text with end="eos"
valid    the natural text matches its constraint as a whole
runaway  the text is longer than the beginning; where there is none, since the free text leaves the constraint before it
         is whole, or where the first tokens differ: max_tokens ended the text
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import plait

MAX_TOKENS = 40
INTEGER = r"[0-9]+"
WORD, NAME = r"[a-z]+", r"[A-Z][a-z]+"
PHRASE, FULL_NAME = r"[a-z]+( [a-z]+)*", r"[A-Z][a-z]+( [A-Z](\.|[a-z]+))*"  # with initials


@dataclass(frozen=True)
class Prompt:
    kind: str
    text: str
    regex: str
    right: tuple[str, ...]  # any of these, whatever the case


def _prompts() -> Iterator[Prompt]:
    for text, right in (
        ("The number of hours in a day is ", "24"),
        ("The number of days in a year is ", "365"),
        ("The number of minutes in an hour is ", "60"),
        ("The number of seconds in a minute is ", "60"),
        ("The number of days in a week is ", "7"),
        ("The number of months in a year is ", "12"),
        ("The number of letters in the English alphabet is ", "26"),
        ("2 + 3 = ", "5"),
        ("10 + 10 = ", "20"),
        ("7 + 1 = ", "8"),
        ("Question: How many legs does a spider have?\nAnswer: ", "8"),
        ("Question: How many wheels does a car have?\nAnswer: ", "4"),
        ("Anna is 34 years old. Her age is ", "34"),
        ('{"name": "Bob", "age": 27}\nBob\'s age: ', "27"),
        ("The meeting starts at 10 o'clock and takes 90 minutes. Minutes: ", "90"),
        ("World War II ended in the year ", "1945"),
        ("The first man walked on the moon in the year ", "1969"),
        ("The number of cents in a dollar is ", "100"),
        ("The number of players in a soccer team is ", "11"),
        ("The number of continents on Earth is ", "7"),
        ("The number of eggs in a dozen is ", "12"),
    ):
        yield Prompt("number", text, INTEGER, (right,))
    for text, *right in (
        ("The opposite of hot is", "cold"),
        ("The opposite of up is", "down"),
        ("The opposite of black is", "white"),
        ("The color of the sky on a clear day is", "blue"),
        ("The color of fresh snow is", "white"),
        ("The color of grass is", "green"),
        ("Roses are red, violets are", "blue"),
        ("A baby dog is called a", "puppy"),
        ("A baby cat is called a", "kitten"),
        ("Cows give us", "milk"),
        ("Bees make", "honey"),
        ("one, two, three,", "four"),
        ("monday, tuesday, wednesday,", "thursday"),
        ("The plural of mouse is", "mice"),
        ("Ice is frozen", "water"),
        ("Snow is", "white", "a"),
    ):
        yield Prompt("word", text, " " + WORD, tuple(right))
    for text, *right in (
        ("The capital of France is", "Paris"),
        ("The capital of Italy is", "Rome"),
        ("The capital of Japan is", "Tokyo"),
        ("The capital of Germany is", "Berlin"),
        ("The capital of Spain is", "Madrid"),
        ("Romeo and", "Juliet"),
        ("The Eiffel Tower stands in", "Paris"),
        ("The planet closest to the sun is", "Mercury"),
        ("The largest planet of the solar system is", "Jupiter"),
        ("January, February,", "March"),
        ("The language spoken in Germany is", "German"),
        ("The river that flows through Egypt is the", "Nile"),
    ):
        yield Prompt("name", text, " " + NAME, tuple(right))
    for text, *right in (
        ("The first president of the United States was", "George Washington"),
        ("Romeo and Juliet was written by", "William Shakespeare"),
        ("The city that never sleeps is", "New York", "New York City"),
        ("Mickey Mouse was created by", "Walt Disney"),
        ("The theory of relativity was developed by", "Albert Einstein"),
        ("The first man on the moon was", "Neil Armstrong"),
    ):
        yield Prompt("phrase", text, " " + FULL_NAME, tuple(right))
    for text, *right in (
        ("Question: What do bees make?\nAnswer:", "honey"),
        ("An apple a day keeps the", "doctor away"),
        ("The early bird catches", "the worm"),
        ("Better late than", "never"),
        ("Actions speak louder than", "words"),
    ):
        yield Prompt("phrase", text, " " + PHRASE, tuple(right))


PROMPTS = tuple(_prompts())


@plait.function
def _ask(s: Any, text: str, options: dict[str, Any]) -> None:
    s += text + plait.gen("x", MAX_TOKENS, temperature=0, **options)


def beginning(prompt: Prompt, free: str) -> str:
    """The longest beginning of ``free`` that the constraint accepts; "" if there is none."""
    whole = (free[:end] for end in range(len(free), 0, -1) if re.fullmatch(prompt.regex, free[:end]))
    return next(whole, "")


def is_right(prompt: Prompt, text: str) -> bool:
    return text.strip().lower() in {value.lower() for value in prompt.right}


def runs_away(free: Any, begun: str, result: Any) -> bool:
    if begun and result.tokens[:1] == free.tokens[:1]:
        return len(result.text) > len(begun)
    return bool(result.finish_reason == "length")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as plait.Runtime takes it; the default model if not given")
    parser.add_argument("--show", action="store_true", help="print every text")
    args = parser.parse_args()
    warnings.simplefilter("ignore", plait.PlaitWarning)
    ways: tuple[dict[str, str], ...] = ({}, {"end": "natural"}, {"end": "eos"})
    rows = [
        {"text": prompt.text, "options": {**way, "regex": prompt.regex} if way else {}}
        for prompt in PROMPTS
        for way in ways
    ]
    with plait.Runtime(args.model, kv_tokens=20_000) as runtime:
        results = [state.result("x") for state in _ask.run_batch(rows, backend=runtime)]
    console = Console()
    table = Table("prompts for a", "count", "right: beginning", "natural", "eos", "valid", "runaway: natural", "eos")
    kinds = list(dict.fromkeys(prompt.kind for prompt in PROMPTS))
    counts = {kind: [0] * 7 for kind in [*kinds, "all"]}
    for at, prompt in enumerate(PROMPTS):
        free, natural, eos = results[3 * at : 3 * at + 3]
        begun = beginning(prompt, free.text)
        found = (
            1,
            is_right(prompt, begun),
            is_right(prompt, natural.text),
            is_right(prompt, eos.text),
            re.fullmatch(prompt.regex, natural.text) is not None,
            runs_away(free, begun, natural),
            runs_away(free, begun, eos),
        )
        for kind in (prompt.kind, "all"):
            counts[kind] = [total + one for total, one in zip(counts[kind], found)]
        if args.show:
            console.print(
                f"{'RUNAWAY ' if found[5] else ''}{prompt.text!r}: free {free.text[:40]!r}, natural {natural.text!r}, "
                f"eos {eos.text!r}",
                markup=False,
                highlight=False,
            )
    for kind in [*kinds, "all"]:
        table.add_row(kind, *map(str, counts[kind]))
    console.print(table)


if __name__ == "__main__":
    main()
