"""Random traffic: whatever happens around a strand, every slot is owned once and no output changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from core_kit import EOS, OTHER_EOS, Driver, greedy, hot, prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import compile_spec
from plait.runtime.core.strand import Status
from plait.runtime.wire import (
    AbortStrand,
    Append,
    CloseStrand,
    Define,
    Ended,
    ForkAt,
    Forked,
    OpFailed,
    Sample,
    SampleParams,
    Score,
    Scored,
    Started,
    Tokens,
)

PATTERN = r'\{"a": [0-9]{1,2}, "the": "[ab]{1,4}"\}'
#: stops that span tokens, so many that some match
PAIRS = tuple(bytes([a, b]) for a in range(0, 256, 3) for b in range(0, 256, 11))
CHOICES = ((65, 66, 67), (65, 66), (80,), (65, 70, 71))


@dataclass
class Script:
    """What the test knows of a strand: its ops, and after them its ids (by the plain model)."""

    parent: int | None = None
    ops: list[object] = field(default_factory=list)
    disturbed: bool = False  # aborted


def expected(driver: Driver, ids: list[int], op: Sample) -> list[int]:
    """The op's final ids: a stop cuts to whole tokens, what is left before it is encoded alone."""
    free = driver.model.expect(ids, op.params, op.choice)
    for count in range(1, len(free) + 1):
        text = driver.vocabulary.decode(free[:count])
        starts = [text.index(stop) for stop in op.params.stop if stop in text]
        if starts:
            kept = max(k for k in range(count) if len(driver.vocabulary.decode(free[:k])) <= min(starts))
            left = text[len(driver.vocabulary.decode(free[:kept])) : min(starts)]
            return [*free[:kept], *driver.vocabulary.encode(left)]
    return free


@st.composite
def samples(draw: st.DrawFn, op: int) -> Sample:
    params = SampleParams(
        max_tokens=draw(st.sampled_from((0, 1, 2, 5, 12))),
        seed=draw(st.integers(0, 3)),
        temperature=draw(st.sampled_from((0.0, 1.0))),
        repetition_penalty=draw(st.sampled_from((1.0, 1.3))),
        stop_ids=draw(st.sampled_from(((), tuple(range(60, 120))))),
        stop=draw(st.sampled_from(((), (b"e", b"\xc3"), PAIRS))),
    )
    return Sample(op, params, choice=draw(st.integers(0, 1)))


def score(op: int) -> Score:
    return Score(op, CHOICES, "unconditional_likelihood_normalized", 0.0, 1, (7,))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_traffic(data: st.DataObject) -> None:
    kv = data.draw(st.sampled_from((90, 150, 400, 4000)), label="kv")
    driver = Driver(
        kv_tokens=kv,
        step_tokens=data.draw(st.sampled_from((5, 40, 2048)), label="step_tokens"),
        mixed_tokens=data.draw(st.sampled_from((3, 512)), label="mixed_tokens"),
        max_running=data.draw(st.sampled_from((1, 3, 256)), label="max_running"),
        score_rows=data.draw(st.sampled_from((1, 256)), label="score_rows"),
        reserve_share=data.draw(st.sampled_from((0.0, 0.5, 1.0)), label="reserve_share"),
    )
    driver.send(Define("c", compile_spec("regex", PATTERN)))
    scripts: dict[int, Script] = {}
    next_sid, next_op = 1, 1
    for _ in range(data.draw(st.integers(5, 30), label="moves")):
        move = data.draw(
            st.sampled_from(("open", "extend", "fork", "step", "step", "abort", "close", "retract", "evict"))
        )
        live = [sid for sid, script in scripts.items() if sid in driver.core.state.strands]
        if move == "open":
            ops: tuple[object, ...] = (
                Append(next_op, prompt(data.draw(st.sampled_from((1, 20, 45))), data.draw(st.integers(0, 1)))),
                data.draw(st.one_of(samples(next_op + 1), st.just(score(next_op + 1)))),
            )
            next_op += 2
            driver.open(next_sid, *ops, priority=data.draw(st.integers(0, 1)))
            scripts[next_sid] = Script(ops=list(ops))
            next_sid += 1
        elif move in ("extend", "fork") and live:
            sid = data.draw(st.sampled_from(live))
            if any(isinstance(op, CloseStrand) for op in scripts[sid].ops):
                continue
            if move == "fork":
                children = tuple(range(next_sid, next_sid + data.draw(st.integers(1, 3))))
                next_sid += len(children)
                fork = ForkAt(next_op, children)
                driver.extend(sid, fork)
                scripts[sid].ops.append(fork)
                next_op += 1
                for child in children:
                    ops = (Append(next_op, prompt(child % 3, child)), data.draw(samples(next_op + 1)))
                    next_op += 2
                    driver.extend(child, *ops)
                    scripts[child] = Script(parent=sid, ops=list(ops))
            else:
                what = data.draw(st.sampled_from(("sample", "score", "constrained")))
                if what == "sample":
                    op: object = data.draw(samples(next_op))
                elif what == "score":
                    op = score(next_op)
                else:
                    op = Sample(next_op, hot(30, stop_ids=(EOS, OTHER_EOS)), constraint="c")
                next_op += 1
                driver.extend(sid, op)
                scripts[sid].ops.append(op)
        elif move == "abort" and live:
            sid = data.draw(st.sampled_from(live))
            scripts[sid].disturbed = True
            driver.send(AbortStrand(sid))
        elif move == "close" and live:
            sid = data.draw(st.sampled_from(live))
            driver.send(CloseStrand(sid))
            scripts[sid].ops.append(CloseStrand(sid))
        elif move == "retract":
            for strand in driver.core.state.running[-1:]:
                driver.core.state.retract(strand)
        elif move == "evict":
            driver.core.state.tree.evict(data.draw(st.integers(1, 200)))
        else:
            driver.step()
        driver.check()
    driver.run()
    finals = judge(driver, scripts)
    for sid in list(driver.core.state.strands):
        assert driver.core.state.strands[sid].status in (Status.IDLE, Status.BLOCKED)
        assert driver.core.state.strands[sid].seq.ids.tolist() == finals[sid]
        driver.send(AbortStrand(sid))
        driver.check()
    assert not len(driver.core.state.in_use()) and driver.core.state.tree.locked == 0
    assert driver.core.state.tree.cached + driver.core.state.pool.free == kv
    assert driver.core.idle


def judge(driver: Driver, scripts: dict[int, Script]) -> dict[int, list[int]]:
    """Every op is answered as the plain model says, at most once, in order; ids at the end of each strand."""
    at_fork: dict[int, list[int]] = {}
    finals: dict[int, list[int]] = {}
    for sid, script in scripts.items():  # parents come first
        if script.parent is not None and sid not in at_fork:
            assert not driver.of(sid), "an unborn child said something"
            finals[sid] = []
            continue
        ids = list(at_fork.get(sid, ()))
        for op in script.ops:
            if isinstance(op, Append):
                ids += op.ids
                continue
            if isinstance(op, CloseStrand):
                break
            answers = [e for e in driver.of(sid, op.op) if not isinstance(e, Started | Tokens)]  # type: ignore[attr-defined]  # all ops have op
            if not answers:
                assert script.disturbed or any(isinstance(e, OpFailed) for e in driver.of(sid)), (sid, op)
                break
            (answer,) = answers
            if isinstance(answer, OpFailed):
                assert answer.code in ("kv_exhausted", "aborted") or not ids, answer
                break
            if isinstance(answer, Ended) and answer.reason == "abort":
                assert script.disturbed
                break
            if isinstance(op, Sample):
                assert isinstance(answer, Ended)
                if op.constraint is None:
                    assert list(answer.ids) == expected(driver, ids, op)
                    if not isinstance(answer.matched, str):
                        assert driver.sent_ids(sid, op.op) == list(answer.ids)
                assert driver.text(sid, op.op) == driver.vocabulary.decode(answer.ids)
                usage = answer.usage
                assert usage.prompt == len(ids) and 0 <= usage.cached <= usage.prompt
                if not isinstance(answer.matched, str):
                    assert usage.completion == len(answer.ids) + (answer.matched is not None)
                ids += answer.ids
            elif isinstance(op, Score):
                assert isinstance(answer, Scored)
                ids += op.choices[answer.winner]
            else:
                assert isinstance(op, ForkAt) and isinstance(answer, Forked)
                for child in op.children:
                    at_fork[child] = list(ids)
        finals[sid] = ids
    return finals


def test_two_hundred_small_programs_on_a_small_pool() -> None:
    seed = 0
    driver = Driver(kv_tokens=900, max_running=32)
    for sid in range(1, 201):
        driver.open(sid, Append(0, prompt(40) + prompt(sid % 9, sid)), Sample(1, hot(sid % 12 + 1, seed=seed + sid)))
        driver.extend(sid, Append(2, (65,)), Sample(3, greedy(3)))
        driver.send(CloseStrand(sid))
    driver.run()
    for sid in range(1, 201):
        ids = [*prompt(40), *prompt(sid % 9, sid)]
        first = driver.model.expect(ids, hot(sid % 12 + 1, seed=seed + sid))
        assert list(driver.ended(sid).ids) == first
        assert list(driver.ended(sid, 3).ids) == driver.model.expect([*ids, *first, 65], greedy(3))
