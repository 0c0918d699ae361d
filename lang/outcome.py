"""What one op has produced so far: filled in by the backend's thread, read by any thread or event loop."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.protocol import Done, PromptLogprobs, TokenLogprob
from .waiting import Changing, Read, Wait


class Outcome(Changing):
    """Of ``choices`` parallel choices (1 for everything but a gen with n > 1), each ends once: done or failed."""

    def __init__(self, label: str, *, choices: int = 1, streaming: bool = False) -> None:
        super().__init__()
        self.label = label  # for messages: "gen 'x'"
        self.streaming = streaming
        self.texts = [""] * choices
        self.dones: list[Done | None] = [None] * choices
        self.errors: list[BaseException | None] = [None] * choices
        self.prompt: list[TokenLogprob] | None = None  # of the tokens before it, if they were asked for

    def ended(self, choice: int = 0) -> bool:
        return self.dones[choice] is not None or self.errors[choice] is not None

    @property
    def finished(self) -> bool:
        return all(self.ended(choice) for choice in range(len(self.texts)))

    @property
    def error(self) -> BaseException | None:
        return next((error for error in self.errors if error is not None), None)

    # ------------------------------------------------------------ the backend's side

    def grow(self, choice: int, text: str) -> None:
        if not self.ended(choice):
            self.texts[choice] += text
            self.changed()

    def read(self, prompt: PromptLogprobs) -> None:
        self.prompt = self.prompt or []
        self.prompt += prompt.logprobs

    def finish(self, done: Done) -> None:
        if not self.ended(done.choice):
            self.texts[done.choice] = done.text
            self.dones[done.choice] = done
            self.changed()

    def fail(self, error: BaseException, choice: int | None = None) -> None:
        """``choice=None`` fails every choice that has not ended."""
        for index in range(len(self.texts)) if choice is None else (choice,):
            if not self.ended(index):
                self.errors[index] = error
        self.changed()

    # ------------------------------------------------------------ the reader's side

    def until_finished(self) -> Read[None]:
        while True:
            seen = self.version
            if self.finished:
                return
            yield Wait(self, seen)

    def stream(self, choice: int = 0) -> Read[None]:
        """The choice's text as it grows when it was asked to stream, else whole; raises its error at its end."""
        given = 0
        while True:
            seen = self.version
            ended = self.ended(choice)  # before the text: what arrives in between comes with the next round
            text = self.texts[choice]
            if (ended or self.streaming) and len(text) > given:
                yield text[given:]
                given = len(text)
            if ended:
                error = self.errors[choice]
                if error is not None:
                    raise error
                return
            yield Wait(self, seen)


class Piece:
    """A stretch of a strand's text: literal, or what an op produces."""

    __slots__ = ("choice", "mark", "outcome", "role", "text")

    def __init__(
        self,
        text: str = "",
        outcome: Outcome | None = None,
        choice: int = 0,
        mark: str | None = None,
        role: str | None = None,
    ) -> None:
        self.text = text
        self.outcome = outcome
        self.choice = choice
        self.mark = mark  # "begin" or "end" of a role
        self.role = role

    def stream(self) -> Read[None]:
        if self.outcome is None:
            yield self.text
        else:
            yield from self.outcome.stream(self.choice)

    def whole(self) -> Read[str]:
        """Its text once it is complete; raises what failed."""
        if self.outcome is None:
            return self.text
        while True:
            seen = self.outcome.version
            if self.outcome.ended(self.choice):
                error = self.outcome.errors[self.choice]
                if error is not None:
                    raise error
                return self.outcome.texts[self.choice]
            yield Wait(self.outcome, seen)


def joined(pieces: Sequence[Piece]) -> Read[str]:
    parts: list[str] = []
    for piece in pieces:
        parts.append((yield from piece.whole()))
    return "".join(parts)
