"""``plait chat`` as a person meets it: a terminal, keys and what is shown; and a pipe."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pty_kit import Terminal
from talker import Talker

from plait.runtime.cli import chat as chat_command
from plait.runtime.cli import lines, main

TESTS = Path(__file__).parent
CHAT = """
    import contextlib, sys
    sys.path.insert(0, {tests!r})
    from talker import Talker
    from plait.runtime.cli import chat, main

    backend = Talker()

    @contextlib.contextmanager
    def opened(address, **options):
        yield backend
        print("sent", [text for texts in backend.texts() for text in texts], "stopped", len(backend.aborted))

    chat.opened = opened
    main(["chat"])
"""
#: what a terminal is told when a line may be typed (bracketed paste)
PROMPT = "\x1b[?2004h"
LEFT, UP, CTRL_C, CTRL_D, CTRL_U = "\x1b[D", "\x1b[A", "\x03", "\x04", "\x15"


def started(folder: Path, **more: Any) -> Terminal:
    code = textwrap.dedent(CHAT).format(tests=str(TESTS))
    return Terminal([sys.executable, "-c", code], {"XDG_STATE_HOME": str(folder)}, **more)


def test_lines_are_edited_and_remembered(tmp_path: Path) -> None:
    for first in (True, False):
        with started(tmp_path) as chat:
            chat.until("/help lists what you can do")
            chat.until(PROMPT)
            chat.type(f"wrld{LEFT * 3}o\r" if first else f"{UP}{UP}!\r")
            chat.until("answer 2")
            chat.until(PROMPT)
            chat.type("/re\t\r" if first else CTRL_D)  # completed, and obeyed
            if first:
                chat.until(PROMPT)
                chat.type("again\r")
                chat.until("answer 2")  # not 4: it was reset
                chat.until(PROMPT)
                chat.type("/exit\r")
            chat.until("sent ['world', 'again'] stopped 0" if first else "sent ['again!'] stopped 0")
            assert chat.end()[0] == 0
    (written,) = tmp_path.rglob("chat_history")
    assert written.stat().st_mode & 0o777 == 0o600


def test_commands_say_what_there_is(tmp_path: Path) -> None:
    with started(tmp_path) as chat:
        for typed, shown in (
            ("/help\r", "Ctrl-C    stops an answer"),
            ("/foo bar\r", "there is no /foo; /help lists"),
            ("/\r", "there is no /; /help lists"),
            ("\r   \r/etc/hosts?\r", "answer 2"),
            ("//foo\r", "answer 2"),
            ("/quit\r", "sent ['/etc/hosts?', '/foo'] stopped 0"),
        ):
            chat.until(PROMPT)
            chat.type(typed)
            chat.until(shown)
        assert chat.end()[0] == 0


def test_ctrl_c_stops_an_answer_and_drops_a_line_and_ctrl_d_leaves(tmp_path: Path) -> None:
    with started(tmp_path) as chat:
        chat.until(PROMPT)
        chat.type("hold\r")
        chat.until("answer ")
        chat.type(CTRL_C)
        chat.until("[stopped]")
        chat.until(PROMPT)
        chat.type(f"half{CTRL_C}")
        chat.until("(/exit or Ctrl-D leaves)")
        chat.until(PROMPT)
        chat.type("on\r")
        chat.until("answer 4")
        chat.until(PROMPT)
        chat.type(CTRL_D)
        chat.until("sent ['hold', 'hold', 'answer ', 'on'] stopped 1")
        assert chat.end()[0] == 0


def test_the_prompt_is_no_part_of_a_piped_answer(tmp_path: Path) -> None:
    with started(tmp_path, piped=True) as chat:
        chat.until(PROMPT)
        chat.type("one\r")
        chat.until(PROMPT)
        chat.type(CTRL_D)
        assert chat.end() == (0, "answer 2\nsent ['one'] stopped 0\n")


def test_a_pipe_gives_lines_and_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    backend = Talker()

    @contextlib.contextmanager
    def opened(address: str | None, **options: Any) -> Iterator[Any]:
        yield backend

    monkeypatch.setattr(chat_command, "opened", opened)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n\n  \n/foo\n/help\ntwo\n/exit\nthree\n"))
    with pytest.raises(SystemExit) as ended:
        main(["chat"])
    assert ended.value.code in (0, None)
    said = capsys.readouterr()
    assert said.out == "answer 2\nanswer 2\n"
    assert "there is no /foo" in said.err and "/reset" in said.err
    assert backend.texts() == [["one"], ["two"]]


def test_the_history_has_a_bound_and_may_be_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = lines.history_file()
    path.parent.mkdir()
    path.write_text("".join(f"\n# 2026-01-01 00:00:00\n+line {number}\n" for number in range(20_000)))
    kept = list(lines.history().load_history_strings())
    assert path.stat().st_size < lines._MAX_HISTORY
    assert kept == [f"line {number}" for number in range(19_999, 19_999 - len(kept), -1)] and len(kept) > 1000
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    nowhere = lines.history()
    nowhere.append_string("x")
    assert nowhere.get_strings() == ["x"]
