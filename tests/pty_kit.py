"""A terminal that a test types at: a program behind a pty, as a person would meet it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

ANSWER_S = 30.0


class Terminal:
    """``until`` reads up to a text that the program shows; ``piped`` keeps its stdout off the terminal."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, piped: bool = False) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=subprocess.PIPE if piped else slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **env},
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # it becomes the session's own terminal
        )
        os.close(slave)
        self._seen = ""

    def until(self, text: str) -> str:
        """What was shown before ``text`` and since the last call."""
        end = time.monotonic() + ANSWER_S
        while text not in self._seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{text!r} did not come; there was {self._seen!r}")
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other side has hung up
                data = b""
            if not data:
                raise AssertionError(f"it ended before {text!r} came; there was {self._seen!r}")
            if b"\x1b[6n" in data:  # "where is the cursor?", which a terminal answers
                os.write(self._master, b"\x1b[1;1R")
            self._seen += data.decode("utf-8", "replace")
        before, _, self._seen = self._seen.partition(text)
        return before

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self) -> tuple[int, str]:
        """Its status and what it wrote to a piped stdout."""
        out = self._process.stdout.read().decode() if self._process.stdout is not None else ""
        return self._process.wait(ANSWER_S), out

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        os.close(self._master)
