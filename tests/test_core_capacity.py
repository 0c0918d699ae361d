"""A pool that is too small: eviction, retraction, priorities, one strand that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from core_kit import Driver, greedy, hot, prompt

from plait.radix import FCFS, LongestPrefixFirst
from plait.radix.order import W
from plait.runtime.core.memory import MAX_TOKENS, _cgroups, _machine, available_bytes, kv_tokens, plan
from plait.runtime.core.settings import CoreSettings
from plait.runtime.core.strand import Status
from plait.runtime.errors import ModelError
from plait.runtime.wire import Append, CloseStrand, ForkAt, OpFailed, Sample, Score


def test_an_evicted_text_is_a_miss_and_is_right_again() -> None:
    driver = Driver(kv_tokens=100)
    for sid in range(1, 6):
        driver.open(sid, Append(0, prompt(60, sid)), Sample(1, greedy(3)))
        driver.send(CloseStrand(sid))
        driver.run()
    driver.open(9, Append(0, prompt(60, 1)), Sample(1, greedy(3)))
    driver.run()
    assert driver.ended(9).usage.cached == 0
    assert driver.ended(9).ids == driver.ended(1).ids
    assert driver.core.stats().evicted_tokens > 0


def test_idle_strands_lose_their_kv_under_pressure_and_get_it_again() -> None:
    driver = Driver(kv_tokens=100)
    driver.open(1, Append(0, prompt(60, 1)), Sample(1, greedy(3)))
    driver.run()
    driver.open(2, Append(0, prompt(80, 2)), Sample(1, greedy(3)))
    driver.run()
    assert driver.ended(2).reason == "length"
    driver.extend(1, Append(2, (65,)), Sample(3, greedy(3)))
    driver.run()
    ids = [*prompt(60, 1), *driver.ended(1).ids, 65]
    assert list(driver.ended(1, 3).ids) == driver.model.expect(ids, greedy(3))


def test_what_a_live_strand_holds_outlives_what_nobody_holds() -> None:
    driver = Driver(kv_tokens=200)
    driver.open(1, Append(0, prompt(60, 1)), Sample(1, greedy(1)))
    driver.run()
    for sid in (2, 3, 4):
        driver.open(sid, Append(0, prompt(60, sid)), Sample(1, greedy(1)))
        driver.send(CloseStrand(sid))
        driver.run()
    driver.extend(1, Sample(2, greedy(1)))
    driver.run()
    assert driver.ended(1, 2).usage.cached == 60


def test_what_a_live_strand_lost_its_lock_on_is_evicted_after_what_nobody_misses() -> None:
    driver = Driver(kv_tokens=200)
    driver.open(1, Append(0, prompt(60, 1)), Sample(1, greedy(1)))
    driver.run()
    driver.open(2, Append(0, prompt(150, 2)), Sample(1, greedy(1)))  # needs some of it
    driver.send(CloseStrand(2))
    driver.run()
    for sid in (3, 4):
        driver.open(sid, Append(0, prompt(60, sid)), Sample(1, greedy(1)))
        driver.send(CloseStrand(sid))
        driver.run()
    driver.extend(1, Sample(2, greedy(1)))
    driver.run()
    assert driver.ended(1, 2).usage.cached >= 45
    driver.send(CloseStrand(1))
    driver.run()
    assert not any(node.pins for node in driver.core.state.tree._walk())


def test_retraction_changes_no_output_and_the_retracted_resume_first() -> None:
    driver = Driver(kv_tokens=120, reserve_share=0.0)
    params = {sid: hot(40, seed=sid, repetition_penalty=1.1, stop=(b"never seen",)) for sid in range(1, 5)}
    for sid, each in params.items():
        driver.open(sid, Append(0, prompt(25, sid)), Sample(1, each))
    driver.step()
    running = [strand.sid for strand in driver.core.state.running]
    while not driver.core.stats().retractions:
        driver.step()
    retracted = [strand.sid for strand in driver.core.state.waiting if strand.retracted]
    assert retracted == [max(running)], "the youngest goes first"
    driver.open(9, Append(0, prompt(25, 9)), Sample(1, greedy(1)))
    while not driver.of(9):
        again = driver.core.state.strands[retracted[0]]
        assert again.status is Status.WAITING or again.status is Status.RUNNING
        driver.step()
    assert driver.core.state.strands[retracted[0]].status is not Status.WAITING, "a newcomer went first"
    driver.run()
    for sid, each in params.items():
        ended = driver.ended(sid)
        assert list(ended.ids) == driver.model.expect(prompt(25, sid), each)
        assert (ended.usage.prompt, ended.usage.cached) == (25, 0)
        assert ended.usage.cached <= ended.usage.prompt
    assert any(driver.ended(sid).usage.recomputed for sid in params)
    assert driver.core.stats().recomputed_tokens > 0


def test_a_stop_that_cuts_back_what_a_retraction_committed() -> None:
    model_ids = Driver().model.expect(prompt(25, 1), greedy(30))
    text = Driver().vocabulary.decode(model_ids)
    stop = text[15:29]
    start = text.index(stop)
    # 2 is retracted while it holds back the beginning of the stop
    driver = Driver(kv_tokens=110, reserve_share=0.0)
    driver.open(1, Append(0, prompt(25, 5)), Sample(1, greedy(60)))
    driver.open(
        2, Append(0, prompt(25, 1)), Sample(1, greedy(40, stop=(stop,))), Append(2, (66,)), Sample(3, greedy(3))
    )
    while True:
        driver.step()
        strand = driver.core.state.strands[2]
        if strand.status is Status.RUNNING and strand.seq.n >= 25 + start + 5:
            driver.core.state.retract(strand)
            driver.check()
            break
    driver.run()
    ended = driver.ended(2)
    assert driver.text(2) == text[:start] and ended.reason == "stop"
    ids = [*prompt(25, 1), *ended.ids, 66]
    assert list(driver.ended(2, 3).ids) == driver.model.expect(ids, greedy(3))


def test_one_strand_that_exceeds_the_pool_fails_alone() -> None:
    driver = Driver(kv_tokens=100)
    driver.open(1, Append(0, prompt(101)), Sample(1, greedy(3)))
    driver.open(2, Append(0, prompt(20, 2)), Sample(1, greedy(200)))
    driver.open(3, Append(0, prompt(20, 3)), Sample(1, greedy(30)))
    driver.run()
    for sid in (1, 2):
        (failed,) = (event for event in driver.of(sid) if isinstance(event, OpFailed))
        assert failed.code == "kv_exhausted" and "100" in failed.message
    assert list(driver.ended(3).ids) == driver.model.expect(prompt(20, 3), greedy(30))


def test_a_retracted_fork_child() -> None:
    driver = Driver(kv_tokens=130, reserve_share=0.0)
    driver.open(1, Append(0, prompt(50)), ForkAt(1, (2, 3, 4)), Sample(2, greedy(1)))
    for sid in (2, 3, 4):
        driver.extend(sid, Append(0, (60 + sid,)), Sample(1, hot(40, seed=sid)))
    driver.run()
    assert driver.core.stats().retractions
    for sid in (2, 3, 4):
        expected = driver.model.expect([*prompt(50), 60 + sid], hot(40, seed=sid))
        assert list(driver.ended(sid).ids) == expected


def test_a_retracted_score_begins_again() -> None:
    choices = ((65, 66, 67), (65, 70, 71), (80, 81))
    calm = Driver()
    calm.open(1, Append(0, prompt(20)), Score(1, choices, "token_length_normalized", 0.0, 3))
    calm.run()
    driver = Driver(step_tokens=3, score_rows=1)
    driver.open(1, Append(0, prompt(20)), Score(1, choices, "token_length_normalized", 0.0, 3))
    while not len(driver.core.state.strands[1].current.held() if driver.core.state.strands[1].current else []):
        driver.step()
    driver.core.state.retract(driver.core.state.strands[1])
    driver.check()
    driver.run()
    assert driver.of(1)[-1].scores == pytest.approx(calm.of(1)[-1].scores)  # type: ignore[attr-defined, union-attr]  # both Scored


def test_strictly_higher_priority_preempts_a_full_house_and_equals_never_take_turns() -> None:
    driver = Driver(max_running=2)
    for sid in (1, 2):
        driver.open(sid, Append(0, prompt(20, sid)), Sample(1, greedy(20)), priority=1)
    driver.step()
    driver.open(3, Append(0, prompt(20, 3)), Sample(1, greedy(5)), priority=1)
    for _ in range(3):
        driver.step()
    assert driver.core.stats().retractions == 0
    assert {strand.sid for strand in driver.core.state.running} == {1, 2}
    driver.open(4, Append(0, prompt(20, 4)), Sample(1, greedy(5)), priority=5)
    driver.step()
    assert {strand.sid for strand in driver.core.state.running} == {1, 4}, "the younger of the lower priority made way"
    driver.run()
    assert driver.core.stats().retractions == 1
    ends = [event.sid for event in driver.events if type(event).__name__ == "Ended"]
    assert ends[0] == 4 and ends.index(2) < ends.index(3)
    for sid, n in ((1, 20), (2, 20), (3, 5), (4, 5)):
        assert list(driver.ended(sid).ids) == driver.model.expect(prompt(20, sid), greedy(n))


def test_priority_preempts_for_slots_too() -> None:
    driver = Driver(kv_tokens=100)
    driver.open(1, Append(0, prompt(60, 1)), Sample(1, greedy(30)))
    driver.step()
    driver.open(2, Append(0, prompt(60, 2)), Sample(1, greedy(5)), priority=1)
    driver.run()
    ends = [event.sid for event in driver.events if type(event).__name__ == "Ended"]
    assert ends == [2, 1]
    assert list(driver.ended(1).ids) == driver.model.expect(prompt(60, 1), greedy(30))


def test_admission_leaves_room_for_what_runs() -> None:
    driver = Driver(kv_tokens=100, reserve_share=1.0)
    driver.open(1, Append(0, prompt(20, 1)), Sample(1, greedy(60)))
    driver.open(2, Append(0, prompt(20, 2)), Sample(1, greedy(60)))
    driver.run()
    assert driver.core.stats().retractions == 0
    assert driver.ended(1).usage.steps == driver.ended(2).usage.steps == 60


def test_a_long_prompt_does_not_stop_the_decoders() -> None:
    driver = Driver(step_tokens=64, mixed_tokens=16)
    driver.open(1, Append(0, prompt(20, 1)), Sample(1, greedy(30)))
    driver.step()
    driver.open(2, Append(0, prompt(400, 2)), Sample(1, greedy(2)))
    driver.run()
    assert driver.model.rows[1:30] == [16] * 24 + driver.model.rows[25:30]
    assert driver.ended(1).usage.steps == 30


@pytest.mark.parametrize(
    "field", ["kv_tokens", "step_tokens", "mixed_tokens", "max_running", "score_rows", "reserve_cap", "reserve_share"]
)
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        CoreSettings(**{"kv_tokens": 1, field: -1})  # type: ignore[arg-type]  # by name


def test_the_default_pool() -> None:
    gib = 1 << 30
    assert kv_tokens(8 * gib, 1 << 14, 2048) == 2 * gib >> 14
    assert kv_tokens(1000 * gib, 1 << 14, 2048) == MAX_TOKENS
    assert kv_tokens(gib, 1 << 16, 8192 // 2) == 8192, "two contexts, more than a quarter"
    assert kv_tokens(gib, 1 << 16, 100_000) == 8192, "never more than half"
    with pytest.raises(ModelError, match="memory"):
        kv_tokens(1 << 20, 1 << 16, 2048)


def test_a_pool_that_was_asked_for_is_held_against_memory() -> None:
    mib = 1 << 20
    assert plan(1000 * mib, mib, 50) == (kv_tokens(1000 * mib, mib, 50), None) == (256, None)
    assert plan(1000 * mib, mib, 50, asked=500) == (500, None)
    tokens, note = plan(1000 * mib, mib, 50, asked=501)
    assert tokens == 501 and note is not None and "kv_tokens=501" in note and "more than half" in note
    assert plan(1000 * mib, mib, 50, asked=900, shared=False) == (900, None)
    with pytest.raises(ModelError, match=r"kv_tokens=1001 needs 1001 MiB .* at most 1000, or leave"):
        plan(1000 * mib, mib, 50, asked=1001)


def test_a_core_that_is_started_again_gets_the_pool_it_had() -> None:
    mib = 1 << 20
    assert plan(1000 * mib, mib, 50, asked=900, before=900) == (900, None), "it was warned of once"
    assert plan(300_000 * mib, mib, 50, before=300) == (300, None), "not more, either"
    tokens, note = plan(800 * mib, mib, 50, asked=900, before=900)
    assert tokens == kv_tokens(800 * mib, mib, 50) < 900
    assert note is not None and "800 MiB" in note and "900 tokens" in note


def test_memory_is_what_the_machine_and_every_cgroup_above_leave(tmp_path: Path) -> None:
    gib = 1 << 30
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    2048 kB\n")
    assert _machine(tmp_path / "meminfo") == 2 << 20
    assert _machine(tmp_path / "none") == 4 * gib
    own = tmp_path / "cgroup"
    inner = tmp_path / "slice" / "job"
    inner.mkdir(parents=True)

    def group(folder: Path, limit: str, used: int, files: int) -> None:
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")

    own.write_text("1:name=systemd:/x\n0::/slice/job\n")
    assert _cgroups(tmp_path, own) > 1000 * gib
    group(inner, "max", gib, 0)
    group(inner.parent, str(3 * gib), 2 * gib, gib // 2)
    assert _cgroups(tmp_path, own) == gib + gib // 2
    group(inner, str(gib), gib, 5)
    assert _cgroups(tmp_path, own) == 5
    group(tmp_path, str(gib), 2 * gib, 0)  # as in a container, whose own path is not to be seen
    own.write_text("0::/docker/abc\n")
    assert _cgroups(tmp_path, own) == 0
    old = tmp_path / "memory" / "box"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text(str(gib))
    (old / "memory.usage_in_bytes").write_text("24")
    own.write_text("4:cpu,memory:/box\n")
    assert _cgroups(tmp_path, own) == gib - 24
    assert _cgroups(tmp_path, tmp_path / "none") > 1000 * gib
    assert 0 < available_bytes("cpu") < 1 << 62


def test_a_long_queue_costs_a_step_no_more_than_a_short_one() -> None:
    asked: list[int] = []

    class Counting(FCFS):
        def order(self, waiting: Sequence[W]) -> list[W]:
            asked.append(len(waiting))
            return super().order(waiting)

    driver = Driver(kv_tokens=100)
    driver.core.state.order = Counting()
    for sid in range(1, 1001):
        driver.open(sid, Append(0, prompt(40, sid)), Sample(1, greedy(2)), priority=sid % 3)
    for _ in range(5):
        driver.step()
    assert asked and max(asked) <= 256
    assert all(strand.priority == 2 for strand in driver.core.state.running)


def test_the_order_of_admission_is_a_policy() -> None:
    driver = Driver(max_running=1)
    tree = driver.core.state.tree
    driver.core.state.order = LongestPrefixFirst(lambda strand: tree.prefix_length(strand.seq.ids))
    driver.open(1, Append(0, prompt(40, 1)), Sample(1, greedy(2)))
    driver.run()
    driver.open(2, Append(0, prompt(40, 2)), Sample(1, greedy(2)))
    driver.open(3, Append(0, prompt(40, 1)), Sample(1, greedy(2)))
    driver.run()
    ends = [event.sid for event in driver.events if type(event).__name__ == "Ended"]
    assert ends == [1, 3, 2]
