"""Does the layout of JSON cost a model its values? Fields extracted right in each layout, and the passes it takes.

    python benchmarks/extraction.py [--model MODEL] [--documents N] [--layouts compact,spaced,2,4,auto] [--show]

Six kinds of documents, two for each of three schemas (parts in parts, and lists); ``--documents`` of each kind. The
same chat prompts in every layout, greedily, many at a time. What must hold is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import plait

NAMES = [
    *("Ann", "Bob", "Carla", "Dmitri", "Elena", "Farid", "Grace", "Hugo", "Ines", "Jamal", "Karin", "Liam", "Maya"),
    *("Noah", "Olga", "Pedro", "Quentin", "Rosa", "Samir", "Tina", "Umar", "Vera", "Walter", "Yuki", "Zoe", "Igor"),
]
CITIES = [
    *(("Rome", "Italy"), ("Oslo", "Norway"), ("Paris", "France"), ("Lima", "Peru"), ("Cairo", "Egypt")),
    *(("Delhi", "India"), ("Tokyo", "Japan"), ("Berlin", "Germany"), ("Dublin", "Ireland"), ("Seoul", "Korea")),
]
LANGUAGES = ["French", "Arabic", "Spanish", "Hindi", "Polish", "Greek", "Turkish"]
PRODUCTS = ["lamp", "chair", "teapot", "kettle", "blanket", "mirror", "clock", "pillow", "vase"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
TITLES = [
    "Open Data Night",
    "Robot Fair",
    "Winter Jazz",
    "Garden Forum",
    "History of Bread",
    "Night of Maps",
    "Sea Talks",
]
HALLS = ["Town Hall", "Old Mill", "Green Room", "City Library", "North Pier"]

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


PERSON = _object(name=TEXT, age=NUMBER, home=_object(city=TEXT, country=TEXT), languages=_list(TEXT))
ORDER = _object(
    order=NUMBER, customer=TEXT, items=_list(_object(product=TEXT, count=NUMBER)), delivery=_object(city=TEXT, day=TEXT)
)
EVENT = _object(title=TEXT, place=_object(hall=TEXT, city=TEXT), day=TEXT, speakers=_list(TEXT), price=NUMBER)

ASKED = {
    "person": "name, age, home (an object with city and country) and languages (a list of names)",
    "order": "order (its number), customer, items (a list of objects with product and count) and delivery (an object "
    "with city and day)",
    "event": "title, place (an object with hall and city), day, speakers (a list of names) and price",
}
SCHEMAS = {"person": PERSON, "order": ORDER, "event": EVENT}


class Document(NamedTuple):
    kind: str
    schema: str
    text: str
    value: dict[str, Any]


def documents(number: int) -> Iterator[Document]:
    """``number`` of each kind."""
    for i in range(number):
        name, other = NAMES[i % len(NAMES)], NAMES[(5 * i + 3) % len(NAMES)]
        city, country = CITIES[(3 * i + i // 10) % len(CITIES)]
        first, second = LANGUAGES[i % 7], LANGUAGES[(i + 1 + i // 7) % 7]
        person = {"name": name, "age": 19 + (7 * i) % 60, "home": {"city": city, "country": country}}
        person["languages"] = [first, second] if first != second else [first]
        spoken = " and ".join(person["languages"])
        yield Document(
            "biography",
            "person",
            f"{name}, a {person['age']}-year-old gardener, lives in {city}, {country}, and speaks {spoken}.",
            person,
        )
        yield Document(
            "form",
            "person",
            f"Full name: {name}\nAge: {person['age']}\nCity: {city}\nCountry: {country}\n"
            f"Languages: {', '.join(person['languages'])}",
            person,
        )
        bought = [(PRODUCTS[i % 9], 2 + i % 4), (PRODUCTS[(i + 4) % 9], 1 + i % 3 + 2)]
        order = {"order": 1_000 + 37 * i, "customer": other, "items": [{"product": p, "count": n} for p, n in bought]}
        order["delivery"] = {"city": city, "day": DAYS[i % 6]}
        (one, ones), (two, twos) = bought
        yield Document(
            "letter",
            "order",
            f"Hello, this is {other}. About my order {order['order']}: I ordered {ones} of the {one} and {twos} of the "
            f"{two}. Please deliver everything to {city} on {DAYS[i % 6]}.",
            order,
        )
        yield Document(
            "receipt",
            "order",
            f"ORDER {order['order']}\nCustomer: {other}\n{ones} x {one}\n{twos} x {two}\n"
            f"Delivery: {city}, {DAYS[i % 6]}",
            order,
        )
        event = {"title": TITLES[i % 7], "place": {"hall": HALLS[i % 5], "city": city}, "day": DAYS[(i + 2) % 6]}
        event |= {"speakers": [name, other] if name != other else [name], "price": 5 + (3 * i) % 40}
        talking = " and ".join(event["speakers"])
        yield Document(
            "announcement",
            "event",
            f"Come to {event['title']} at the {HALLS[i % 5]} in {city} on {event['day']}! {talking} will speak. "
            f"Tickets cost {event['price']} euros.",
            event,
        )
        yield Document(
            "listing",
            "event",
            f"{event['day']} | {event['title']} | {HALLS[i % 5]}, {city} | speakers: {', '.join(event['speakers'])} | "
            f"{event['price']} EUR",
            event,
        )


def fields(value: Any, path: str = "") -> dict[str, Any]:
    """Each value that has no parts, by where it stands."""
    if isinstance(value, dict):
        return {at: part for name, inside in value.items() for at, part in fields(inside, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {at: part for i, inside in enumerate(value) for at, part in fields(inside, f"{path}[{i}]").items()}
    return {path: value}


def right(value: Any, wanted: Any) -> int:
    """How many fields of ``wanted`` are right in ``value``; case does not count."""
    found = fields(value)
    return sum(str(found.get(at)).lower() == str(part).lower() for at, part in fields(wanted).items())


def layout_of(text: str) -> str | None:
    """As which json.dumps would write it; None: as none. Strings and numbers may be spelled in any way."""
    count = 0

    def named(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f'"{count}"' if match[0][0] == '"' else str(count)

    plain = re.sub(r'"(?:[^"\\]|\\.)*"|[-+.0-9a-zA-Z]+', named, text)
    value = json.loads(plain)
    ways: dict[str, Any] = {"compact": {"separators": (",", ":")}, "spaced": {}}
    ways |= {str(columns): {"indent": columns} for columns in range(1, 9)} | {"tab": {"indent": "\t"}}
    return next((name for name, how in ways.items() if json.dumps(value, **how) == plain), None)


@plait.function
def extract(s: Any, document: Document, whitespace: Any) -> None:
    asked = ASKED[document.schema]
    s += plait.user(f"Extract the data as a JSON object with the keys {asked}.\nText: {document.text}")
    s += plait.assistant(
        plait.gen("data", max_tokens=160, temperature=0, json_schema=SCHEMAS[document.schema], whitespace=whitespace)
    )


class Row(NamedTuple):
    layout: str
    share: float
    passes: float
    mixed: int


def measure(layout: str, given: list[Document], show: bool) -> Row:
    whitespace = int(layout) if layout.isdigit() else layout
    began = time.monotonic()
    states = extract.run_batch([{"document": one, "whitespace": whitespace} for one in given], num_threads=48)
    asked = good = whole = tokens = passes = mixed = 0
    by_kind: Counter[str] = Counter()
    chosen: Counter[str] = Counter()
    for document, state in zip(given, states, strict=True):
        result = state.result("data")
        hits, count = right(result.value, document.value), len(fields(document.value))
        good, asked, whole = good + hits, asked + count, whole + (hits == count)
        by_kind[document.kind] += hits
        tokens += result.usage.sampled + result.usage.forced
        passes += result.usage.steps
        try:
            found = layout_of(result.text)
        except ValueError:
            found = "cut"
        mixed += found is None
        chosen[str(found)] += 1
        if show:
            print(f"{document.kind}: {hits} of {count}\n{result.text}\n")
    laid_out = ", ".join(f"{name} {count}" for name, count in chosen.most_common())
    print(
        f"{layout:8} {good:6} of {asked:<5} {100 * good / asked:6.1f} % {whole:6} {tokens / len(given):8.1f} "
        f"{passes / tokens:8.2f} {mixed:6} {time.monotonic() - began:7.0f} s   {laid_out}"
    )
    print(f"         {', '.join(f'{kind} {hits}' for kind, hits in by_kind.items())}", flush=True)
    return Row(layout, 100 * good / asked, passes / tokens, mixed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--documents", type=int, default=24, metavar="N", help="of each of the six kinds")
    parser.add_argument("--layouts", default="compact,spaced,2,4,auto")
    parser.add_argument("--kv-tokens", type=int, default=32_000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--show", action="store_true", help="print every text")
    options = parser.parse_args()
    given = list(documents(options.documents))
    with plait.Runtime(options.model, kv_tokens=options.kv_tokens, threads=options.threads) as runtime:
        plait.set_default_backend(runtime)
        print("layout     fields right           whole   tokens   passes  mixed      time   written as")
        rows = [measure(layout, given, options.show) for layout in options.layouts.split(",")]
    return held(rows)


def held(rows: list[Row]) -> int:
    """Prints what must hold of "auto"; 1 if something does not."""
    auto = next((row for row in rows if row.layout == "auto"), None)
    fixed = [row for row in rows if row.layout != "auto"]
    if auto is None or not fixed:
        return 0
    best = max(fixed, key=lambda row: row.share)
    checks = [
        (f"fields right, auto beside the best fixed layout ({best.layout})", auto.share - best.share, ">= -3 points"),
        ("forward passes per token of text", auto.passes, "<= 0.65"),
        ("texts in no layout, or in several", float(auto.mixed), "0"),
    ]
    holds = [auto.share >= best.share - 3, auto.passes <= 0.65, auto.mixed == 0]
    for (what, measured, wanted), well in zip(checks, holds, strict=True):
        print(f"{what}: {measured:+.2f} (must hold: {wanted}) {'yes' if well else 'NO'}")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
