"""What a person says to ``plait chat``: typed at a terminal, with editing and history, or read from a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.history import History

#: The history file is cut to half of this when it has grown beyond it.
_MAX_HISTORY = 256 * 1024


def at_terminal() -> bool:
    """Whether somebody types. The prompt goes to stderr, so that stdout holds the answers alone."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def lines(words: Sequence[str]) -> Iterator[str]:
    """Lines until the end (Ctrl-D), without white space around them and without empty ones. Tab completes ``words``."""
    for line in _typed(words) if at_terminal() else _piped():
        if line := line.strip():
            yield line


def _typed(words: Sequence[str]) -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(
        "> ",
        history=history(),
        completer=WordCompleter(list(words), sentence=True),
        complete_while_typing=False,
        reserve_space_for_menu=0,
        output=create_output(stdout=sys.stderr),
    )
    while True:
        try:
            yield session.prompt()
        except KeyboardInterrupt:
            print("(/exit or Ctrl-D leaves)", file=sys.stderr)
        except EOFError:
            return


def _piped() -> Iterator[str]:
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    yield from sys.stdin


def history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "plait" / "chat_history"


def history() -> History:
    """That of earlier chats, readable for its owner only; where it cannot be written, of this one."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600))
        if path.stat().st_size > _MAX_HISTORY:
            data = path.read_bytes()
            path.write_bytes(data[max(0, data.find(b"\n# ", len(data) - _MAX_HISTORY // 2)) :])
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
