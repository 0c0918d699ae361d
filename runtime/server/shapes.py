"""How results look on each route: whole, and as chunks of a stream."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, Protocol

from ..protocol import Done, TokenLogprob, Usage
from .work import Work

Json = dict[str, Any]


class Shape(Protocol):
    """One instance per response: it may keep state per choice."""

    whole_object: str
    chunk_object: str
    id_prefix: str

    def choice(self, index: int, done: Done) -> Json:
        """A finished choice of a whole response."""

    def opening(self, index: int) -> Json | None:
        """What a choice's stream begins with, if anything."""

    def text(self, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Json: ...

    def ending(self, index: int, done: Done, text: str, logprobs: Sequence[TokenLogprob]) -> list[Json]:
        """The last chunks: what text is left, and exactly one with the finish reason."""


def usage_json(usage: Usage) -> Json:
    """Extensions: ``forced_tokens`` are completion tokens that a constraint fixed without sampling, ``wrapped_tokens``
    are draws that gave way, so that the text is whole within ``max_tokens``."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"forced_tokens": usage.forced, "wrapped_tokens": usage.wrapped},
    }


class ChatShape:
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def __init__(self, work: Work) -> None:
        self._logprobs = work.sampling.logprobs

    def choice(self, index: int, done: Done) -> Json:
        return {
            "index": index,
            "message": {"role": "assistant", "content": done.text, "refusal": None},
            "logprobs": self._shape(done.logprobs or ()) if self._logprobs else None,
            "finish_reason": done.reason,
            "stop_reason": done.matched,
        }

    def opening(self, index: int) -> Json | None:
        return {"index": index, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}

    def text(self, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Json:
        shaped = self._shape(logprobs) if self._logprobs else None
        return {"index": index, "delta": {"content": text}, "logprobs": shaped, "finish_reason": None}

    def ending(self, index: int, done: Done, text: str, logprobs: Sequence[TokenLogprob]) -> list[Json]:
        chunks = [self.text(index, text, logprobs)] if text else []
        left = self._shape(logprobs) if logprobs and not text and self._logprobs else None
        last = {
            "index": index,
            "delta": {},
            "logprobs": left,
            "finish_reason": done.reason,
            "stop_reason": done.matched,
        }
        return [*chunks, last]

    @staticmethod
    def _shape(logprobs: Sequence[TokenLogprob]) -> Json:
        """``logprob`` is null where a token was never scored: re-encoded after a stop cut it."""

        def one(token: str, data: bytes, logprob: float | None) -> Json:
            return {"token": token, "logprob": logprob, "bytes": list(data)}

        content = [
            one(lp.token, lp.data, lp.logprob)
            | {"top_logprobs": [one(top.token, top.data, top.logprob) for top in lp.top]}
            for lp in logprobs
        ]
        return {"content": content, "refusal": None}


class CompletionShape:
    whole_object = "text_completion"
    chunk_object = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, work: Work) -> None:
        self._echo = [prompt.echo for prompt in work.prompts]
        self._n = work.n
        self._logprobs = work.sampling.logprobs
        self._offsets: dict[int, TextOffsets] = {}

    def choice(self, index: int, done: Done) -> Json:
        return self._json(index, self._echo[index // self._n] + done.text, done.logprobs or (), done)

    def opening(self, index: int) -> Json | None:
        echo = self._echo[index // self._n]
        return self._json(index, echo, ()) if echo else None

    def text(self, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Json:
        return self._json(index, text, logprobs)

    def ending(self, index: int, done: Done, text: str, logprobs: Sequence[TokenLogprob]) -> list[Json]:
        return [self._json(index, text, logprobs, done)]

    def _json(self, index: int, text: str, logprobs: Sequence[TokenLogprob], done: Done | None = None) -> Json:
        choice: Json = {"index": index, "text": text, "logprobs": None}
        if self._logprobs:
            choice["logprobs"] = self._shape(index, logprobs)
        choice["finish_reason"] = done.reason if done is not None else None
        if done is not None:
            choice["stop_reason"] = done.matched
        return choice

    def _shape(self, index: int, logprobs: Sequence[TokenLogprob]) -> Json:
        offsets = self._offsets.setdefault(index, TextOffsets(len(self._echo[index // self._n])))
        return {
            "tokens": [lp.token for lp in logprobs],
            "token_logprobs": [lp.logprob for lp in logprobs],
            "top_logprobs": [{top.token: top.logprob for top in lp.top} for lp in logprobs],
            "text_offset": [offsets.of(lp.data) for lp in logprobs],
        }


class TextOffsets:
    """Where each token begins in the text, in characters; one that begins inside a character has that character's."""

    def __init__(self, start: int = 0) -> None:
        self._at = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, data: bytes) -> int:
        at = self._at
        self._at += len(self._decoder.decode(data))
        return at


def shape_for(work: Work) -> Shape:
    return ChatShape(work) if work.route == "chat" else CompletionShape(work)
