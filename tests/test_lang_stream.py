"""text_iter and stream runs: the pieces are the text, in order, with no spinning and no end missed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fake_backend import FakeBackend

import plait
from plait.lang.outcome import Outcome
from plait.lang.waiting import Changing, Wait
from plait.runtime.errors import Aborted, InvalidValue
from plait.runtime.protocol import Done, Gen


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


@plait.function
def story(s: plait.State) -> str:
    s += plait.user("tell") + plait.assistant("So," + plait.gen("first") + plait.gen("second"))
    s += "end"
    return "told"


def test_the_pieces_are_the_text(backend: FakeBackend) -> None:
    state = story.stream(backend=backend)
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text()
    assert all(gen.stream for gen in backend.ops(Gen))
    assert "".join(state.text_iter("first")) == state["first"]
    assert state.ret_value == "told"


def test_without_stream_the_pieces_are_whole(backend: FakeBackend) -> None:
    state = story.run(backend=backend)
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text()
    assert state["first"] in pieces and state["second"] in pieces
    assert not any(gen.stream for gen in backend.ops(Gen))


def test_pieces_come_as_they_are_made(backend: FakeBackend) -> None:
    backend.pause()
    state = story.stream(backend=backend)
    words = state.text_iter("first")
    got = []
    for _ in range(3):
        backend.allow(1)
        got.append(next(words))
    assert all(word.strip() and word.count(" ") == 1 for word in got)
    assert len(backend.prompts) == 1  # the second gen has not begun
    backend.resume()
    assert "".join(got) + "".join(words) == state["first"]


def test_a_run_with_stream_returns_before_its_program_has_ended(backend: FakeBackend) -> None:
    backend.pause()
    state = story.run(backend=backend, stream=True)
    backend.resume()
    assert state.text().endswith("end")


def test_reads_of_a_stream_wait_for_names_to_come(backend: FakeBackend) -> None:
    go = threading.Event()

    @plait.function
    def program(s: plait.State) -> None:
        assert go.wait(20)
        s += plait.gen("late")

    state = program.stream(backend=backend)
    assert "late" not in state
    threading.Thread(target=go.set).start()
    assert state["late"] == state.text()
    with pytest.raises(KeyError, match="known: late"):
        state["never"]


def test_waiting_for_a_variable_does_not_spin(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:  # fault 4
    """A reader looks once, and once more for each change."""
    waits: list[threading.Thread] = []
    waited = threading.Event()
    plain = Changing.wake_after

    def counted(self: Changing, seen: int, wake: object) -> None:
        waits.append(threading.current_thread())
        waited.set()
        plain(self, seen, wake)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(Changing, "wake_after", counted)
    go = threading.Event()

    @plait.function
    def program(s: plait.State) -> None:
        assert go.wait(20)
        s += "some" + plait.gen("x")

    state = program.stream(backend=backend)
    pieces: list[str] = []
    reader = threading.Thread(target=lambda: pieces.extend(state.text_iter("x")))
    reader.start()
    assert waited.wait(20)
    assert waits == [reader]
    go.set()
    reader.join(20)
    assert "".join(pieces) == state["x"]
    # One for the name; then one for each word and the end of the gen, at most.
    assert waits.count(reader) <= 2 + len(pieces) + 1


def test_the_end_is_never_missed() -> None:  # fault 3
    """The last text and the end arrive between any two looks of the reader."""
    for gap in range(4):
        outcome = Outcome("gen", streaming=True)
        read = outcome.stream()
        script = [
            lambda outcome=outcome: outcome.grow(0, "a"),
            lambda outcome=outcome: outcome.grow(0, "b"),
            lambda outcome=outcome: outcome.finish(Done(1, 1, text="abc")),
        ]
        for act in script[:gap]:
            act()
        rest = script[gap:]
        got = []
        for step in read:
            if not isinstance(step, Wait):
                got.append(step)
                continue
            # The event comes after the reader decided to wait and before it sleeps.
            rest.pop(0)()
            woken: list[bool] = []
            step.thing.wake_after(step.seen, lambda woken=woken: woken.append(True))
            assert woken
        assert "".join(got) == "abc" and not rest


def test_many_streams_end(backend: FakeBackend) -> None:  # fault 3, by traffic
    for _ in range(100):
        state = story.stream(backend=backend)
        assert "".join(state.text_iter()).endswith("end")


def test_inside_the_program_iteration_ends_with_what_was_added(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> list[str]:
        s += "a" + plait.gen("x")
        pieces = list(s.text_iter())
        s += "b"
        return pieces

    state = program.stream(backend=backend)
    assert "".join(state.ret_value) == "a" + state["x"]
    assert state.text() == f"a{state['x']}b"


def test_a_stream_is_quiet_about_readers_that_leave(backend: FakeBackend) -> None:
    state = story.stream(backend=backend)
    for _ in state.text_iter():
        break
    assert state.ret_value == "told"


def test_lists_are_not_streamed(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += plait.gen("x")
        forks.join()
        s["set"] = 5

    state = program.stream(backend=backend)
    with pytest.raises(InvalidValue, match="one branch"):
        list(state.text_iter("x"))
    assert list(state.text_iter("set")) == ["5"]


def test_a_stream_s_deadline_ends_its_readers(backend: FakeBackend) -> None:
    backend.pause()
    state = story.stream(backend=backend, timeout=0.05)
    with pytest.raises(plait.RunTimeout):
        list(state.text_iter())


def test_a_stream_can_be_given_up(backend: FakeBackend) -> None:
    backend.pause()
    state = story.stream(backend=backend)
    backend.until(lambda: len(backend.ops(Gen)) == 2)
    state.abort()
    backend.resume()
    with pytest.raises(Aborted, match=r"abort\(\)"):
        state["second"]
    assert [abort.program is not None for abort in backend.aborts] == [True]

    done = story.run(backend=backend)
    done.abort()
    assert (done.error(), done.ret_value) == (None, "told")
    assert done["second"] and len(backend.aborts) == 1
