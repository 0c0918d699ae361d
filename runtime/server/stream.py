"""A job as server-sent events: opening, text, ending per choice, then usage, then [DONE]."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from ..protocol import Delta, Done, PromptLogprobs, TokenLogprob
from .aside import MANY_NUMBERS, aside
from .job import Job, Piece
from .problems import HttpProblem
from .shapes import Json, Shape, usage_json

DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class Choice:
    """What one choice has sent so far. Logprobs wait for the text they go with, so no chunk is empty."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.sent = 0  # characters
        self.scored = 0  # logprobs sent or waiting
        self.waiting: list[TokenLogprob] = []

    def delta(self, delta: Delta, shape: Shape) -> list[Json]:
        self.waiting += delta.logprobs
        self.scored += len(delta.logprobs)
        if not delta.text:
            return []
        self.sent += len(delta.text)
        logprobs, self.waiting = self.waiting, []
        return [shape.text(self.index, delta.text, logprobs)]

    def done(self, done: Done, shape: Shape) -> list[Json]:
        """Deltas are a prefix of the whole, so the rest is what is past it."""
        logprobs = [*self.waiting, *(done.logprobs or ())[self.scored :]]
        return shape.ending(self.index, done, done.text[self.sent :], logprobs)


async def events(
    job: Job, first: list[Piece], shape: Shape, head: Json, finished: Callable[[Done], None]
) -> AsyncIterator[bytes]:
    """``first``: what came before the headers went out. A failure becomes a data event, and the stream ends there."""
    with_usage = job.work.include_usage
    head = head | {"object": shape.chunk_object}

    def chunk(body: Json) -> bytes:
        body = head | body
        return event(msgspec.json.encode(body | {"usage": None} if with_usage else body))

    def opening(indices: Iterable[int]) -> bytes:
        return b"".join(chunk(body) for index in indices if (body := shape.opening(index)) is not None)

    n, choices = job.work.n, [Choice(index) for index in range(job.work.choices)]
    reads = job.work.sampling.logprob_start_len >= 0
    if not reads and (greeting := opening(range(len(choices)))):
        yield greeting
    try:
        pieces = first
        while True:
            out = bytearray()
            for index, piece in pieces:
                if isinstance(piece, PromptLogprobs):
                    if piece.last:
                        mine = range(index, index + n)
                        out += await aside(opening, mine) if job.numbers > MANY_NUMBERS else opening(mine)
                    continue
                if isinstance(piece, Delta):
                    made = choices[index].delta(piece, shape)
                else:
                    made = choices[index].done(piece, shape)
                    finished(piece)
                for choice in made:
                    out += chunk({"choices": [choice]})
            if out:
                yield bytes(out)
            if job.finished:
                break
            pieces = await job.take()
    except HttpProblem as problem:
        yield event(problem.envelope())
        return
    if with_usage:
        yield event(msgspec.json.encode(head | {"choices": [], "usage": usage_json(job.usage())}))
    yield DONE
