"""ForkAt: children, failures, aborts, and that what is shared is computed once."""

from __future__ import annotations

from core_kit import Driver, greedy, hot, prompt

from plait.runtime.wire import (
    AbortStrand,
    Append,
    CloseStrand,
    Ended,
    ExtendStrand,
    ForkAt,
    Forked,
    OpenStrand,
    OpFailed,
    Sample,
)


def computed(driver: Driver) -> int:
    return sum(event.usage.computed for event in driver.events if isinstance(event, Forked | Ended))


def test_children_extended_before_the_parent_reaches_the_fork() -> None:
    driver = Driver()
    driver.send(
        OpenStrand(1),
        ExtendStrand(1, (Append(0, prompt(60)), Sample(1, greedy(5)), ForkAt(2, (2, 3)), Sample(3, greedy(5)))),
        ExtendStrand(2, (Append(0, (65,)), Sample(1, greedy(5)))),
        ExtendStrand(3, (Append(0, (66,)), Sample(1, greedy(5)))),
    )
    driver.run()
    base = [*prompt(60), *driver.ended(1).ids]
    assert list(driver.ended(1, 3).ids) == driver.model.expect(base, greedy(5))
    assert list(driver.ended(2).ids) == driver.model.expect([*base, 65], greedy(5))
    assert list(driver.ended(3).ids) == driver.model.expect([*base, 66], greedy(5))
    assert [event.op for event in driver.of(1)][-1] == 3 and len(driver.of(1, 2)) == 1
    # siblings run together, and a fork after a sample costs no forward of its own
    # (1 row of the parent; last token and 65; 66 alone, since its sibling has the last token)
    assert driver.model.rows == [60, 1, 1, 1, 1, 4, 3, 3, 3, 3]


def test_fork_of_8_over_600_computes_the_prefix_once() -> None:
    for lengths in ([0] * 8, [3, 0, 5, 1, 0, 7, 2, 4], [2] * 8):
        driver = Driver()
        sids = tuple(range(2, 10))
        suffixes = {sid: prompt(length, 70 + sid) for sid, length in zip(sids, lengths)}
        driver.open(1, Append(0, prompt(600)), ForkAt(1, sids), Sample(2, greedy(1)))
        for sid, suffix in suffixes.items():
            driver.extend(sid, Append(0, suffix), Sample(1, greedy(3)))
        driver.run()
        assert computed(driver) <= 600 + sum(max(1, length) for length in (*lengths, 0))
        for sid, suffix in suffixes.items():
            assert list(driver.ended(sid).ids) == driver.model.expect(prompt(600) + suffix, greedy(3))


def test_eight_programs_with_one_prefix_that_fork_at_once() -> None:
    driver = Driver()
    for sid in range(1, 9):
        driver.open(sid, Append(0, prompt(600)), ForkAt(1, (10 * sid,)), Sample(2, greedy(1)))
        driver.extend(10 * sid, Append(0, (60 + sid,)), Sample(1, greedy(2)))
    driver.run()
    assert computed(driver) <= 600 + 16
    assert computed(driver) == driver.model.computed - 8  # the second token of each child is no prompt


def test_fork_before_any_text() -> None:
    driver = Driver()
    driver.open(1, ForkAt(0, (2, 3)))
    driver.extend(2, Append(0, prompt(5)), Sample(1, greedy(2)))
    driver.extend(3, Sample(1, greedy(2)))
    driver.run()
    assert isinstance(driver.of(1)[0], Forked) and driver.of(1)[0].usage.prompt == 0
    assert list(driver.ended(2).ids) == driver.model.expect(prompt(5), greedy(2))
    assert isinstance(driver.of(3)[0], OpFailed)


def test_nested_forks() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(20)), ForkAt(1, (2,)))
    driver.extend(2, Append(0, (65,)), ForkAt(1, (3, 4)), Sample(2, greedy(2)))
    driver.extend(3, Append(0, (66,)), Sample(1, greedy(2)))
    driver.extend(4, Append(0, (67,)), Sample(1, greedy(2)))
    driver.run()
    assert list(driver.ended(3).ids) == driver.model.expect([*prompt(20), 65, 66], greedy(2))
    assert list(driver.ended(4).ids) == driver.model.expect([*prompt(20), 65, 67], greedy(2))


def test_n_choices_are_a_fork_and_samples() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(40)), ForkAt(1, (2, 3)), Sample(2, hot(6), choice=0))
    for choice, sid in ((1, 2), (2, 3)):
        driver.extend(sid, Sample(2, hot(6), choice=choice))
        driver.send(CloseStrand(sid))
    driver.run()
    for choice, sid in ((0, 1), (1, 2), (2, 3)):
        ended = driver.ended(sid, 2)
        assert ended.choice == choice
        assert list(ended.ids) == driver.model.expect(prompt(40), hot(6), choice)
    assert computed(driver) == 39 + 3  # each choice computes the row it samples from
    assert set(driver.core.state.strands) == {1}


def test_a_failed_parent_takes_the_unborn_with_it_and_says_so_once() -> None:
    driver = Driver()
    driver.open(1, Append(0, (5, -1)), ForkAt(1, (2,)), ForkAt(3, (4,)))
    driver.extend(2, ForkAt(0, (3,)), Sample(1, greedy(2)))
    driver.extend(3, Sample(0, greedy(2)))
    driver.open(9, Append(0, prompt(4)), Sample(1, greedy(2)))
    driver.run()
    (failed,) = driver.of(1)
    assert isinstance(failed, OpFailed) and (failed.op, failed.code) == (0, "invalid_value")
    assert not driver.of(2) and not driver.of(3) and not driver.of(4)
    assert set(driver.core.state.strands) == {9}


def test_an_aborted_parent_leaves_live_children_alone_and_drops_unborn_ones() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), ForkAt(1, (2,)), Sample(2, greedy(50)), ForkAt(3, (3,)))
    driver.extend(2, Append(0, (65,)), Sample(1, greedy(20)))
    driver.extend(3, Sample(1, greedy(20)))
    for _ in range(6):
        driver.step()
    driver.send(AbortStrand(1))
    driver.check()
    driver.run()
    assert driver.ended(1, 2).reason == "abort"
    assert list(driver.ended(2).ids) == driver.model.expect([*prompt(30), 65], greedy(20))
    assert not driver.of(3) and set(driver.core.state.strands) == {2}


def test_abort_in_the_middle_of_a_fork() -> None:
    driver = Driver(step_tokens=10)
    driver.open(1, Append(0, prompt(100)), ForkAt(1, (2,)))
    driver.extend(2, Sample(1, greedy(2)))
    driver.step()
    driver.send(AbortStrand(1))
    driver.run()
    (failed,) = driver.of(1)
    assert isinstance(failed, OpFailed) and failed.code == "aborted"
    assert not driver.core.state.strands


def test_a_closed_parent_keeps_its_children_valid() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), ForkAt(1, (2,)))
    driver.send(CloseStrand(1))
    driver.run()
    driver.extend(2, Append(0, (65,)), Sample(1, greedy(3)))
    driver.run()
    assert driver.ended(2).usage.cached == 29
    assert list(driver.ended(2).ids) == driver.model.expect([*prompt(30), 65], greedy(3))


def test_abort_of_an_unborn_child() -> None:
    driver = Driver(step_tokens=10)
    driver.open(1, Append(0, prompt(50)), ForkAt(1, (2, 3)))
    driver.extend(2, Sample(1, greedy(2)))
    driver.step()
    driver.send(AbortStrand(2), CloseStrand(3))
    driver.run()
    assert isinstance(driver.of(1)[-1], Forked)
    assert set(driver.core.state.strands) == {1}
