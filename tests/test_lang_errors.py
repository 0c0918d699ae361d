"""Failures surface at the first read, nothing hangs, nothing is left running."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator

import pytest
from fake_backend import FakeBackend

import plait
from plait.lang.program import Program
from plait.lang.strand import Strand
from plait.runtime.errors import (
    Aborted,
    BackendClosed,
    GenerationError,
    InvalidConstraint,
    InvalidValue,
    LeaseExpired,
    UpstreamFailed,
)
from plait.runtime.protocol import Failed, Gen, Lost, Op, Text


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


def failing(code: str = "internal", field: str | None = None, *, at: str = "BAD") -> FakeBackend:
    def fault(prompt: str, op: Op) -> Failed | None:
        if isinstance(op, Gen) and prompt.endswith(at):
            return Failed(0, 0, code=code, field=field, message="it broke")
        return None

    return FakeBackend(fault=fault)


@plait.function
def fails_in_the_middle(s: plait.State) -> None:
    s += "a" + plait.gen("good") + "BAD" + plait.gen("bad") + "b" + plait.gen("later")


def test_a_failed_variable_raises_its_cause(  # fault 2
) -> None:
    backend = failing("invalid_value", "max_tokens")
    state = fails_in_the_middle.run(backend=backend)
    assert state["good"]
    with pytest.raises(InvalidValue, match="it broke") as caught:
        state["bad"]
    assert caught.value.field == "max_tokens"
    with pytest.raises(UpstreamFailed, match="gen 'later' did not run, because an earlier step failed: it broke") as up:
        state["later"]
    assert up.value.__cause__ is caught.value
    assert state.error() is caught.value
    assert state.result("bad").error is caught.value and state.result("bad").value is None
    for read in (state.text, state.messages, lambda: list(state.text_iter())):
        with pytest.raises(InvalidValue):
            read()
    backend.close()


def test_work_added_after_a_failure_ends_too() -> None:  # fault 1
    backend = failing()

    @plait.function
    def program(s: plait.State) -> None:
        s += "BAD" + plait.gen("x")
        with pytest.raises(GenerationError, match="it broke"):
            s["x"]
        s += "more" + plait.gen("y")
        with pytest.raises(UpstreamFailed):
            s["y"]
        with pytest.raises(GenerationError):
            s.text()
        s.sync()
        assert isinstance(s.error(), GenerationError)

    program.run(backend=backend)
    backend.close()


def test_a_failure_that_nobody_read_is_told_by_the_state() -> None:
    backend = failing("invalid_constraint", "regex")
    state = fails_in_the_middle.run(backend=backend)
    assert isinstance(state.error(), InvalidConstraint)
    backend.close()


def test_a_failed_text_is_found_when_the_text_is_read() -> None:
    """Text is silent on the wire unless it fails."""

    def fault(prompt: str, op: Op) -> Failed | None:
        return Failed(0, 0, code="context_length", message="too long") if isinstance(op, Text) else None

    backend = FakeBackend(fault=fault)

    @plait.function
    def program(s: plait.State) -> None:
        s += "long" + plait.gen("x")

    state = program.run(backend=backend)
    with pytest.raises(UpstreamFailed, match="too long"):
        state["x"]
    error = state.error()
    assert error is not None and "too long" in str(error)
    backend.close()


def test_one_failed_choice_fails_the_list_and_not_the_strand(backend: FakeBackend) -> None:
    program = Program(backend, {})
    strand = Strand(program)
    program.open_root(strand)
    state = plait.State(program, strand)
    backend.pause()
    state += plait.gen("x", n=2)
    strand.on_failed(Failed(strand.id, 1, 1, "internal", None, "only the second"))
    backend.resume()
    with pytest.raises(GenerationError, match="only the second"):
        state["x"]
    first, second = state.result("x")
    assert first.error is None and second.error is not None
    assert state.text() == first.text
    program.close()


def test_run_raises_the_program_s_own_exception_and_aborts(backend: FakeBackend) -> None:
    backend.pause()
    kept: list[plait.State] = []

    @plait.function
    def program(s: plait.State) -> None:
        kept.append(s)
        s += plait.gen("x")
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        program.run(backend=backend)
    assert len(backend.aborts) == 1
    backend.until(lambda: backend.open_strands == 0)
    with pytest.raises(ZeroDivisionError):
        kept[0]["x"]
    with pytest.raises(ZeroDivisionError):
        kept[0]["never named"]
    with pytest.raises(ZeroDivisionError):
        kept[0] += "more"


def test_a_timeout_aborts(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")
        s["x"]

    with pytest.raises(plait.RunTimeout, match=r"timeout=0\.05 s"):
        program.run(backend=backend, timeout=0.05)
    assert backend.aborts[0].program is not None
    backend.until(lambda: backend.open_strands == 0)


def test_a_timeout_counts_what_is_still_running_at_the_end(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += plait.gen("x")

    with pytest.raises(TimeoutError):
        program.run(backend=backend, timeout=0.05)


def test_a_program_that_swallows_its_timeout_still_times_out(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")
        with pytest.raises(plait.RunTimeout):
            s["x"]

    with pytest.raises(plait.RunTimeout):
        program.run(backend=backend, timeout=0.05)


def test_a_called_program_ends_with_its_caller_s_time(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def inner(s: plait.State) -> None:
        s += plait.gen("x")

    @plait.function
    def outer(s: plait.State) -> None:
        inner(timeout=1000)

    with pytest.raises(plait.RunTimeout):
        outer.run(backend=backend, timeout=0.05)


def test_ctrl_c_while_reading_aborts(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")

        def press() -> None:
            backend.until(lambda: bool(backend.actions))
            _thread.interrupt_main(signal.SIGINT)

        threading.Thread(target=press).start()
        s["x"]

    with pytest.raises(KeyboardInterrupt):
        program.run(backend=backend)
    assert len(backend.aborts) == 1
    backend.until(lambda: backend.open_strands == 0)


def test_a_backend_that_closes_in_the_middle_ends_every_wait(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")
        threading.Thread(target=backend.close).start()
        with pytest.raises(BackendClosed):
            s["x"]
        with pytest.raises(BackendClosed):
            s += plait.gen("y")

    with pytest.raises(BackendClosed):
        program.run(backend=backend)


def test_a_closed_backend_is_a_clear_error(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")

    backend.close()
    with pytest.raises(BackendClosed):
        program.run(backend=backend)


def test_an_op_added_while_the_session_is_lost_does_not_hang(backend: FakeBackend) -> None:
    """Lost comes on another thread, between the check and the registration of the op."""
    program = Program(backend, {})
    strand = Strand(program)
    program.open_root(strand)
    program.on_event(Lost("lease_expired", "no sign of life"))
    _, outcome = strand._waited_op("late")
    assert isinstance(outcome.error, LeaseExpired)


def test_values_that_were_there_survive_a_lost_session(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")

    state = program.run(backend=backend)
    state._program.on_event(Lost("shutdown", "bye"))
    assert state["x"] and state.text() and state.error() is None


def test_nothing_user_code_raised_is_lost_in_a_stream(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "head" + plait.gen("x")
        s["x"]
        raise ZeroDivisionError("mine")

    state = program.stream(backend=backend)
    pieces = []
    with pytest.raises(ZeroDivisionError, match="mine"):
        for piece in state.text_iter():
            pieces.append(piece)
    assert pieces[0] == "head" and "".join(pieces) == "head" + state["x"]
    assert isinstance(state.error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        _ = state.ret_value
    with pytest.raises(ZeroDivisionError):
        state["never"]


def test_an_interrupted_stream_program_tells_it_was_aborted(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        raise SystemExit(3)

    state = program.stream(backend=backend)
    with pytest.raises(Aborted, match="SystemExit"):
        state.text()
