"""``plait chat``: a conversation on one strand, which keeps its KV from turn to turn."""

from __future__ import annotations

import queue
import re
import sys
from collections.abc import Callable
from typing import Any

from ..backend import Backend
from ..errors import PlaitError, from_code
from ..protocol import (
    Action,
    Close,
    Delta,
    Done,
    Event,
    Extend,
    Failed,
    Gen,
    Lost,
    Op,
    Open,
    Role,
    RoleBegin,
    RoleEnd,
    Sampling,
    Text,
)
from .backends import opened
from .lines import at_terminal, lines

_COMMANDS = {
    "/help": "shows this",
    "/reset": "forgets the conversation, but not the system prompt",
    "/exit": "leaves, as /quit and Ctrl-D do",
    "/quit": "leaves",
}
_KEYS = {"Ctrl-C": "stops an answer", "up, down": "what you said before", "//text": "says /text"}
_HELP = "\n".join(f"  {name:<10}{what}" for name, what in {**_COMMANDS, **_KEYS}.items())
_WORD = re.compile(r"/[A-Za-z?][\w-]*|/")


class Conversation:
    """``say`` streams an answer. An answer that was stopped ends its strand; the next turn opens a new one with the
    turns so far, whose KV the radix tree still has."""

    def __init__(self, backend: Backend, system: str | None, sampling: Sampling, seed: int | None) -> None:
        self._backend = backend
        self._sampling = sampling
        self._seed = seed
        self._turns: list[tuple[Role, str]] = [("system", system)] if system else []
        self._fixed = len(self._turns)
        self._sent = 0  # turns that the strand holds
        self._strand: int | None = None
        self._op = 0
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def say(self, text: str, write: Callable[[str], None]) -> Done | None:
        """The answer's Done, or None when it was stopped. Raises PlaitError; the conversation then stays as before."""
        before = len(self._turns)
        self._turns.append(("user", text))
        actions = self._actions()
        self._backend.submit(actions, self._events.put)
        answer: list[str] = []
        done = None
        try:
            done = self._listen(answer, write)
        except KeyboardInterrupt:
            if self._strand is not None:
                self._backend.abort(strand=self._strand)
            self._forget_strand()
        except PlaitError:
            del self._turns[before:]
            self._forget_strand()
            raise
        self._turns.append(("assistant", done.text if done else "".join(answer)))
        if done is not None:
            self._sent = len(self._turns)
        return done

    def reset(self) -> None:
        self.close()
        del self._turns[self._fixed :]

    def close(self) -> None:
        if self._strand is not None:
            self._backend.submit([Close(self._strand)], self._events.put)
        self._forget_strand()

    def _forget_strand(self) -> None:
        self._strand, self._sent, self._op = None, 0, 0

    def _actions(self) -> list[Action]:
        actions: list[Action] = []
        if self._strand is None:
            self._strand = self._backend.allocate()
            self._events = queue.SimpleQueue()  # what an earlier strand still says is not ours
            actions.append(Open(self._strand, self._backend.allocate(), seed=self._seed))
        ops: list[Op] = []
        for role, text in self._turns[self._sent :]:
            ops += [RoleBegin(self._next(), role), Text(self._next(), text), RoleEnd(self._next())]
        ops.append(RoleBegin(self._next(), "assistant"))
        ops.append(Gen(self._next(), self._sampling, stream=True))
        ops.append(RoleEnd(self._next()))
        return [*actions, Extend(self._strand, tuple(ops))]

    def _next(self) -> int:
        self._op += 1
        return self._op

    def _listen(self, answer: list[str], write: Callable[[str], None]) -> Done:
        gen = self._op - 1
        while True:
            event = self._events.get()
            if isinstance(event, Failed):
                raise from_code(event.code, event.field, event.message, event.op)
            if isinstance(event, Lost):
                raise from_code(event.code, None, event.message)
            if isinstance(event, Delta) and event.op == gen:
                answer.append(event.text)
                write(event.text)
            elif isinstance(event, Done) and event.op == gen:
                write(event.text[sum(map(len, answer)) :])
                return event


def chat(
    address: str | None, options: dict[str, Any], system: str | None, sampling: Sampling, seed: int | None
) -> None:
    with opened(address, **options) as backend:
        interactive = at_terminal()
        if interactive:
            print(f"{backend.info().model}. /help lists what you can do.", file=sys.stderr)
        conversation = Conversation(backend, system, sampling, seed)

        def write(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        for line in lines(tuple(_COMMANDS)):
            if (word := _word(line)) is not None:
                if word in ("/exit", "/quit"):
                    break
                _obey(word, conversation)
                continue
            try:
                done = conversation.say(line.removeprefix("/") if line.startswith("//") else line, write)
            except PlaitError as error:
                print(f"plait: error: {error}", file=sys.stderr)
                if not interactive:
                    raise
                continue
            print(" [stopped]" if done is None else " [cut: length]" if done.reason == "length" else "", flush=True)
        conversation.close()


def _word(line: str) -> str | None:
    """``/word``, where the line is one; a path (``/etc/hosts``) or ``//text`` is none."""
    first = line.split(maxsplit=1)[0]
    return first if _WORD.fullmatch(first) else None


def _obey(word: str, conversation: Conversation) -> None:
    if word == "/reset":
        conversation.reset()
        print("(forgotten)", file=sys.stderr)
    elif word == "/help":
        print(_HELP, file=sys.stderr)
    else:
        print(
            f"there is no {word}; /help lists what there is, and //... says a text with a / in front", file=sys.stderr
        )
