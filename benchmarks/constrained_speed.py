"""What constraints cost and save on the real model, and whether its outputs end and validate.

    python benchmarks/constrained_speed.py [--only mask,jump,finish] [--cases DIR] [--repeats 5] [--texts 13]
        [--model PATH]

mask    time per sampled token with a schema's mask and without, for the same ids: what the model drew under the mask is
        drawn again without one (the sampler's work is done, its answer replaced). The core in this process, no
        jump-forward, batch 1 and 8; medians of alternating repeats.
jump    forward passes of a JSON gen with fixed keys, with jump-forward (and the drafts beside it) and for the same ids
        without; and seconds of the same ids with drafts and without.
finish  50 schemas of the cases (seeded; maxLength 200 and maxItems 5 wherever a string, a key or an array may come that
        nothing bounds, in undeclared and untyped values too) x 4 chats that show one instance, temperature 1,
        max_tokens 2048, through Runtime: how many end by themselves, how many are wrapped up before max_tokens, how
        many are cut, and whether they validate; once as gen does by default, once with undeclared keys and at most one
        space after ":" and "," (the mode of maskbench_adapter.py). Needs --cases
        (maskbench_open.jsonl.gz and tool_schemas_open.jsonl.gz, not part of this repository) and jsonschema.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the core's process has it, before torch is imported

from plait.constrained.compiler import compile_spec, load
from plait.constrained.interface import Constraint, Matcher
from plait.runtime import Runtime
from plait.runtime import wire as w
from plait.runtime.core import compute
from plait.runtime.core.budget import Budget
from plait.runtime.core.core import Core
from plait.runtime.core.settings import CoreSettings
from plait.runtime.models.card import read_card
from plait.runtime.models.load import load_model
from plait.runtime.store import resolve
from plait.runtime.tokenizer import load_tokenizer

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string", "maxLength": 12},
        "customer_name": {"type": "string", "maxLength": 20},
        "delivery_address": {
            "type": "object",
            "properties": {
                "street": {"type": "string", "maxLength": 20},
                "postal_code": {"type": "string", "pattern": "^[0-9]{5}$"},
                "country": {"enum": ["Norway", "Sweden", "Denmark"]},
            },
            "required": ["street", "postal_code", "country"],
            "additionalProperties": False,
        },
        "due_date": {"type": "string", "format": "date"},
        "total_amount": {"type": "number", "minimum": 0, "maximum": 9999},
        "currency": {"enum": ["EUR", "NOK", "SEK", "DKK"]},
        "paid_in_full": {"type": "boolean"},
    },
    "additionalProperties": False,
}
INVOICE["required"] = list(INVOICE["properties"])
PROMPT = "The invoice of Kari Nordmann, Storgata 1, 01550 Norway, number A-1042, over 129.50 NOK, as JSON:\n"
#: what the system says, and the user
TASKS = (
    ("You answer with JSON.", "Schema: {schema}\nExample: {example}\nGive another example as JSON."),
    (
        "You write JSON documents that match a schema.",
        "Write one JSON document of this schema, as compact JSON, like the example.\n{schema}\n{example}",
    ),
    ("You are a helpful AI assistant.", "Answer with JSON like this: {example}"),
    ("You extract data as JSON.", "Extract the data of this text as JSON.\nSchema: {schema}\nText: {example}"),
)
#: characters of the schema and of the instance in a prompt
SHOWN_SCHEMA, SHOWN_EXAMPLE = 800, 600
#: where the schema of a value that nothing else speaks of stands
_FREE = {"$ref": "#/$defs/free_value"}


class WithoutJumps:
    """The same masks, but nothing is ever forced: every token is sampled."""

    def __init__(self, constraint: Constraint) -> None:
        self.key = constraint.key
        self.nbytes = constraint.nbytes
        self._constraint = constraint

    def matcher(self) -> Matcher:
        matcher: Any = self._constraint.matcher()

        class Patient(type(matcher)):  # type: ignore[misc]
            __slots__ = ()

            def forced(self) -> bytes:
                return b""

            def fork(self) -> Patient:
                return Patient(self._constraint, self._at)

        return Patient(matcher._constraint, matcher._at)


class Bench:
    """The core in this process; ``prescribed``: seed -> the ids that its gen shall draw, whatever it drew."""

    def __init__(self, model_name: str | None, mode: str) -> None:
        card = read_card(resolve(model_name))
        model = load_model(card, mode=mode)
        model.allocate(8192)
        self.vocabulary = load_tokenizer(card).vocabulary
        self.core = Core(model, self.vocabulary, CoreSettings(kv_tokens=8192))
        self.sid = 0
        self.prescribed: dict[int, tuple[int, ...]] = {}
        self._sample = compute.sample
        compute.sample = self._drawn  # type: ignore[assignment]

    def _drawn(self, table: Any, rows: Any) -> Any:
        found = self._sample(table, rows)
        for index, row in enumerate(rows):
            ids = self.prescribed.get(row.params.seed)
            if ids is not None:
                found[index] = compute.Sampled(ids[row.position])
        return found

    def define(self, key: str, schema: dict[str, Any], jumps: bool, whitespace: str = "single") -> None:
        payload = compile_spec("spec", json.dumps({"json_schema": schema, "options": {"whitespace": whitespace}}))
        self.core.receive(w.ToCore((w.Define(key, payload),)))
        if not jumps:
            self.core.state.constraints[key].built = WithoutJumps(load(payload, self.vocabulary, key))

    def drafts(self, on: bool) -> None:
        now = self.core.state.settings
        full = (now.constraint_first_s, now.constraint_more_s, now.draft_s if on else 0.0)
        self.core.state.budget = Budget(full, (now.constraint_slice_s, now.constraint_slice_s, now.draft_s / 2))

    def run(
        self,
        prompt: tuple[int, ...],
        seeds: list[int],
        tokens: int,
        constraint: str | None,
        temperature: float = 1.0,
    ) -> dict[str, Any]:
        """ids by seed, seconds of the decode steps, and how many forward passes there were in all."""
        items: list[Any] = []
        of_sid: dict[int, int] = {}
        for seed in seeds:
            self.sid += 1
            of_sid[self.sid] = seed
            # a constrained text ends by itself, and is measured with room, as it was drawn; another must be stopped
            length = (len(self.prescribed.get(seed, ())) if constraint is None else 0) or tokens
            params = w.SampleParams(max_tokens=length, seed=seed, temperature=temperature)
            sample = w.Sample(2, params, constraint=constraint)
            items += [w.OpenStrand(self.sid), w.ExtendStrand(self.sid, (w.Append(1, prompt), sample))]
            items.append(w.CloseStrand(self.sid))
        self.core.receive(w.ToCore(tuple(items)))
        before = self.core.state.counters.steps
        ids: dict[int, tuple[int, ...]] = {}
        seconds, drawn = 0.0, 0
        while not self.core.idle:
            decoding = bool(self.core.state.running) and not self.core.state.waiting
            began = time.perf_counter()
            events = self.core.step()
            if decoding:
                seconds += time.perf_counter() - began
            for event in events:
                if isinstance(event, w.Ended):
                    ids[of_sid[event.sid]] = event.ids
                    drawn += len(event.ids)
        return {"ids": ids, "seconds": seconds, "passes": self.core.state.counters.steps - before, "drawn": drawn}


def mask_cost(bench: Bench, repeats: int) -> None:
    bench.define("masked", INVOICE, jumps=False)
    prompt = tuple(bench.vocabulary.encode(PROMPT.encode()))
    for batch in (1, 8):
        seeds = list(range(100 * batch, 100 * batch + batch))
        bench.prescribed.clear()
        first = bench.run(prompt, seeds, 400, "masked")  # fills the caches too
        bench.prescribed.update(first["ids"])
        times: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(repeats):
            for name, constraint in (("with", "masked"), ("without", None)):
                done = bench.run(prompt, seeds, 400, constraint)
                assert done["ids"] == first["ids"], "not the same ids"
                times[name].append(1e3 * done["seconds"] / done["drawn"])
        ratios = [a / b for a, b in zip(times["with"], times["without"])]
        print(
            f"mask, batch {batch}: {first['drawn']} ids, {statistics.median(times['with']):.2f} ms a token with the "
            f"mask, {statistics.median(times['without']):.2f} without: {statistics.median(ratios):.3f} x "
            f"(of {repeats} alternating repeats: {min(ratios):.3f} to {max(ratios):.3f}; must hold: <= 1.03)",
            flush=True,
        )
    bench.prescribed.clear()


def jumps_saved(bench: Bench, texts: int, repeats: int) -> None:
    """One greedy text and others at temperature 1, in each layout. Without jump-forward the same ids take one pass
    each, and one for the end of the text where that is drawn. Then the same ids with drafts and without, and the texts
    drawn anew without."""
    prompt = tuple(bench.vocabulary.encode(PROMPT.encode()))
    bench.run(prompt, [1], 8, None)  # the prompt is in the tree from now on
    for whitespace in ("single", "compact", "spaced", "auto"):
        bench.define(whitespace, INVOICE, jumps=True, whitespace=whitespace)
        passes: list[float] = []
        alone: list[float] = []
        seconds: list[float] = []
        rows, right, same = 0, 0, 0
        for seed in range(texts):
            temperature = 1.0 if seed else 0.0
            before = bench.core.stats()
            drafted = bench.run(prompt, [seed], 400, whitespace, temperature)
            after = bench.core.stats()
            rows += after.drafted_tokens - before.drafted_tokens
            right += after.accepted_tokens - before.accepted_tokens
            bench.drafts(False)
            without = bench.run(prompt, [seed], 400, whitespace, temperature)
            alone.append(without["passes"] / len(without["ids"][seed]))
            same += without["ids"] == drafted["ids"]
            bench.prescribed[seed] = drafted["ids"][seed]
            bench.drafts(True)
            passes.append(drafted["passes"] / bench.run(prompt, [seed], 0, None, temperature)["passes"])
            seconds.append(_drafts_cost(bench, prompt, seed, whitespace, repeats))
            bench.prescribed.clear()
            if not seed:
                print(f"    {bench.vocabulary.decode(drafted['ids'][seed]).decode('utf-8', 'replace')}")
        hot = sorted(passes[1:])
        print(
            f"jump, whitespace {whitespace}: {passes[0]:.2f} x the forward passes (greedy); {len(hot)} texts at "
            f"temperature 1: {statistics.mean(hot):.2f} in the mean, {hot[0]:.2f} to {hot[-1]:.2f} "
            "(must hold: <= 0.6)\n"
            f"    jump-forward alone: {alone[0]:.2f} x (greedy); {statistics.mean(alone[1:]):.2f} in the mean, "
            f"{min(alone[1:]):.2f} to {max(alone[1:]):.2f}\n"
            f"    drafts: {right} of {rows} rows were right; {statistics.median(seconds):.2f} x the seconds of the "
            f"same ids without drafts ({min(seconds):.2f} to {max(seconds):.2f}, medians of {repeats}); {same} of "
            f"{texts} texts are the same when drawn without",
            flush=True,
        )


def _drafts_cost(bench: Bench, prompt: tuple[int, ...], seed: int, whitespace: str, repeats: int) -> float:
    """Seconds with drafts over those without, for the ids that are prescribed."""
    ratios = []
    for _ in range(repeats):
        taken = []
        for on in (True, False):
            bench.drafts(on)
            taken.append(bench.run(prompt, [seed], 400, whitespace, 1.0 if seed else 0.0)["seconds"])
        ratios.append(taken[0] / taken[1])
    bench.drafts(True)
    return statistics.median(ratios)


# ---------------------------------------------------------------- do outputs end and validate


def bounded(schema: Any, undeclared: bool) -> Any:
    """``schema`` with maxLength 200 and maxItems 5 wherever a string, a key or an array may come and is not bounded.
    ``undeclared``: keys beside declared ones may come, and are bounded too."""
    made = _bounded(schema, undeclared)
    free = {"maxLength": 200, "maxItems": 5, "items": _FREE, "additionalProperties": _FREE}
    free["propertyNames"] = {"maxLength": 200}
    made["$defs"] = made.get("$defs", {}) | {"free_value": free}
    return made


def _bounded(schema: Any, undeclared: bool) -> Any:
    if schema is True or schema == {}:
        return _FREE
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _SCHEMAS_BY_NAME and isinstance(value, dict):
            made[name] = {key: _bounded(inner, undeclared) for key, inner in value.items()}
        elif name in _SCHEMAS and isinstance(value, list):
            made[name] = [_bounded(inner, undeclared) for inner in value]
        elif name in _SCHEMAS:
            made[name] = _bounded(value, undeclared)
        elif name not in ("$id", "id"):  # or _FREE would point into another resource
            made[name] = value
    if made.keys() & {"enum", "const"} or (
        made.keys() & {"$ref", "allOf", "anyOf", "oneOf", "not", "if"}
        and not made.keys() & {"type", "properties", "items"}
    ):
        return made
    types = made.get("type")
    allowed = [types] if isinstance(types, str) else types
    if allowed is None or "string" in allowed:
        made.setdefault("maxLength", max(200, made.get("minLength", 0)))
    if allowed is None or "array" in allowed:
        made.setdefault("maxItems", max(5, made.get("minItems", 0)))
        made.setdefault("items", _FREE)
    combined = made.keys() & {"allOf", "anyOf", "oneOf", "unevaluatedProperties"}
    if (
        (allowed is None or "object" in allowed)
        and "additionalProperties" not in made
        and not combined
        and (undeclared or not made.get("properties"))
    ):
        made["additionalProperties"] = _FREE
        made.setdefault("propertyNames", {"maxLength": 200})
    return made


_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = (
    "allOf",
    "anyOf",
    "oneOf",
    "prefixItems",
    "items",
    "additionalProperties",
    "additionalItems",
    "then",
    "else",
)


def chosen(cases: Path, count: int, seed: int, undeclared: bool, half: bool) -> list[tuple[str, Any, str]]:
    """(id, schema, an instance as compact JSON): a seeded list of the schemas of the cases, all of which compile.
    ``half``: as many real-world schemas as function calls, of which the cases have six times as many."""
    files = []
    for name in ("maskbench_open.jsonl.gz", "tool_schemas_open.jsonl.gz"):
        files.append(gzip.decompress((cases / name).read_bytes()).decode().splitlines())
    pools = files if half else [[line for lines in files for line in lines]]
    return [row for lines in pools for row in _drawn_from(lines, count // len(pools), seed, undeclared)]


def _drawn_from(lines: list[str], count: int, seed: int, undeclared: bool) -> list[tuple[str, Any, str]]:
    made: list[tuple[str, Any, str]] = []
    draw = random.Random(seed)
    draw.shuffle(lines)
    for line in lines:
        if len(made) == count:
            break
        row = json.loads(line)
        schema = bounded(row["schema"], undeclared)
        try:
            compile_spec("spec", json.dumps({"json_schema": schema}))
        except ValueError as error:
            print(f"    refused: {row['id']}: {error}")
            continue
        valid = next((test["data"] for test in row["tests"] if test["valid"]), {})
        made.append((row["id"], schema, json.dumps(valid, separators=(",", ":"), ensure_ascii=False)))
    return made


def finishes(
    model: str | None, mode: str, cases: Path, count: int, seed: int, max_tokens: int, undeclared: bool, half: bool
) -> None:
    import jsonschema

    import plait

    @plait.function
    def program(s: Any, system: str, user: str, schema: Any, seed: int) -> None:
        s += plait.system(system) + plait.user(user)
        how: Any = {"undeclared": True, "whitespace": "single"} if undeclared else {}
        s += plait.assistant(plait.gen("value", max_tokens, json_schema=schema, temperature=1.0, seed=seed, **how))

    schemas = chosen(cases, count, seed, undeclared, half)
    items = [
        {
            "system": system,
            "user": user.format(schema=json.dumps(schema)[:SHOWN_SCHEMA], example=example[:SHOWN_EXAMPLE]),
            "schema": schema,
            "seed": 4 * place + number,
        }
        for place, (_, schema, example) in enumerate(schemas)
        for number, (system, user) in enumerate(TASKS)
    ]
    began = time.perf_counter()
    reasons: Counter[str] = Counter()
    wrong: list[str] = []
    sampled = forced = partial = labelled = 0
    with Runtime(model, mode=mode) as runtime:  # type: ignore[arg-type]
        states = program.run_batch(items, backend=runtime, num_threads=32, generator_style=True)
        for place, (item, state) in enumerate(zip(items, states)):
            name, result = schemas[place // 4][0], state.result("value")
            if place % 10 == 9:
                print(f"    {place + 1} done: {dict(reasons)}, {len(wrong)} wrong", flush=True)
            if result.error is not None:
                reasons["failed"] += 1
                wrong.append(f"{name}: {result.error}")
                continue
            sampled += result.usage.sampled
            forced += result.usage.forced
            how = "cut" if result.partial else "wrapped up" if result.usage.wrapped else "by themselves"
            reasons[how] += 1
            labelled += (result.finish_reason == "length") == (how != "by themselves")
            if how != "by themselves":
                print(f"    {how}: {name}: {result.text[:60]!r} ... {result.text[-80:]!r}", flush=True)
            if result.partial:
                partial += result.value is not None
                continue
            schema = item["schema"]
            kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            try:
                kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(result.text))
            except (ValueError, jsonschema.ValidationError) as error:
                wrong.append(f"{name}: {str(error)[:200]}: {result.text[:200]!r}")
    total, seconds = len(items), time.perf_counter() - began
    title = ("undeclared keys, single spaces" if undeclared else "gen's defaults") + (
        ", half real-world" if half else ""
    )
    print(
        f"finish, {title}: {total} outputs, {100 * reasons['by themselves'] / total:.1f} % end by themselves (>= 95 %)"
    )
    print(f"finish: {dict(reasons)}; {labelled} say so by their finish_reason")
    print(f"finish: {len(wrong)} of those that are whole do not validate (0)")
    print(f"finish: {partial} of the {reasons['cut']} that were cut have a partial value")
    print(f"finish: {sampled} tokens sampled, {forced} forced, {seconds:.0f} s")
    for line in wrong:
        print(f"    {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="mask,jump,finish")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=13, help="of jump, for each layout")
    parser.add_argument("--model", help="any model (default: the default model)")
    parser.add_argument("--mode", default="exact", choices=["reference", "exact"])
    parser.add_argument("--schemas", type=int, default=50)
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0, help="of the list of schemas")
    parser.add_argument("--half", action="store_true", help="as many real-world schemas as function calls in the list")
    given = parser.parse_args()
    sections = given.only.split(",")
    if {"mask", "jump"} & set(sections):
        bench = Bench(given.model, given.mode)
        if "mask" in sections:
            mask_cost(bench, given.repeats)
        if "jump" in sections:
            jumps_saved(bench, given.texts, given.repeats)
    if "finish" in sections:
        if given.cases is None:
            parser.error("finish needs --cases")
        for undeclared in (False, True):
            how = {"undeclared": undeclared, "half": given.half}
            finishes(given.model, given.mode, given.cases, given.schemas, given.seed, given.max_tokens, **how)


if __name__ == "__main__":
    main()
