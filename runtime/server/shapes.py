"""How results look on each route: whole, and as chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..protocol import Done, TokenLogprob, Usage
from .logprobs import TextOffsets, chat_logprobs, completion_logprobs, prompt_logprobs, prompt_offsets, text_of
from .work import Work

Json = dict[str, Any]
#: by prompt of the request, what its tokens' numbers are, as far as they have come
Prompts = Mapping[int, Sequence[TokenLogprob]]


class Shape(Protocol):
    """One instance per response: it may keep state per choice."""

    whole_object: str
    chunk_object: str
    id_prefix: str

    def choice(self, index: int, done: Done) -> Json:
        """A finished choice of a whole response."""

    def beside(self) -> Json:
        """What a whole response has beside its choices."""

    def opening(self, index: int) -> Json | None:
        """The chunk that a choice's stream begins with, if any, once the numbers of its prompt have come."""

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

    def __init__(self, work: Work, prompts: Prompts) -> None:
        self._logprobs = work.sampling.logprobs
        self._prompt_top = work.prompt_logprobs
        self._prompts = prompts

    def choice(self, index: int, done: Done) -> Json:
        return {
            "index": index,
            "message": {"role": "assistant", "content": done.text, "refusal": None},
            "logprobs": chat_logprobs(done.logprobs or (), done.next_top) if self._logprobs else None,
            "finish_reason": done.reason,
            "stop_reason": done.matched,
        }

    def beside(self) -> Json:
        if self._prompt_top is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(self._prompts[0], self._prompt_top)}

    def opening(self, index: int) -> Json | None:
        opening = {"index": index, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}
        return {"choices": [opening]} | (self.beside() if index == 0 else {})

    def text(self, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Json:
        shaped = chat_logprobs(logprobs) if self._logprobs else None
        return {"index": index, "delta": {"content": text}, "logprobs": shaped, "finish_reason": None}

    def ending(self, index: int, done: Done, text: str, logprobs: Sequence[TokenLogprob]) -> list[Json]:
        chunks = [self.text(index, text, logprobs)] if text else []
        left = () if text else logprobs
        last = {
            "index": index,
            "delta": {},
            "logprobs": chat_logprobs(left, done.next_top) if self._logprobs and (left or done.next_top) else None,
            "finish_reason": done.reason,
            "stop_reason": done.matched,
        }
        return [*chunks, last]


class CompletionShape:
    whole_object = "text_completion"
    chunk_object = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, work: Work, prompts: Prompts) -> None:
        self._work = work
        self._prompts = prompts
        self._top = work.sampling.top_logprobs
        self._offsets: dict[int, TextOffsets] = {}
        self._echoes: dict[int, str] = {}  # by prompt

    def choice(self, index: int, done: Done) -> Json:
        entries = (*self._echoed(index), *(done.logprobs or ()))
        return self._json(index, self._echo(index) + done.text, entries, done, begins=True)

    def beside(self) -> Json:
        return {}

    def opening(self, index: int) -> Json | None:
        if not self._work.echo and self._work.prompt_logprobs is None:
            return None
        echo, entries = self._echo(index), self._echoed(index)
        if not echo and not entries and self._work.prompt_logprobs is None:
            return None
        return {"choices": [self._json(index, echo, entries, begins=True)]}

    def text(self, index: int, text: str, logprobs: Sequence[TokenLogprob]) -> Json:
        return self._json(index, text, logprobs)

    def ending(self, index: int, done: Done, text: str, logprobs: Sequence[TokenLogprob]) -> list[Json]:
        return [self._json(index, text, logprobs, done)]

    def _json(
        self, index: int, text: str, entries: Sequence[TokenLogprob], done: Done | None = None, *, begins: bool = False
    ) -> Json:
        """``begins``: text and entries are from the beginning of the answer on, the echo included."""
        choice: Json = {"index": index, "text": text, "logprobs": None}
        if self._work.sampling.logprobs:
            if done is not None and self._work.echo and done.end_logprob is not None:
                # Readers of an echo cut off what was generated by its number of tokens, the end token included.
                entries = (*entries, done.end_logprob)
            offsets = self._places(index, entries, len(self._echoed(index)) if begins else 0)
            next_top = done.next_top if done is not None else ()
            choice["logprobs"] = completion_logprobs(entries, offsets, self._top, next_top)
        choice["finish_reason"] = done.reason if done is not None else None
        if done is not None:
            choice["stop_reason"] = done.matched
        if begins and self._work.prompt_logprobs is not None:
            entries = self._prompts[self._place(index)]
            choice["prompt_logprobs"] = prompt_logprobs(entries, self._work.prompt_logprobs)
        return choice

    # ------------------------------------------------------------ the echo

    def _place(self, index: int) -> int:
        return index // self._work.n

    def _echo(self, index: int) -> str:
        if not self._work.echo:
            return ""
        place = self._place(index)
        if place not in self._echoes:
            given = self._work.prompts[place].text
            self._echoes[place] = text_of(self._prompts[place]) if given is None else given
        return self._echoes[place]

    def _echoed(self, index: int) -> Sequence[TokenLogprob]:
        """The prompt's tokens, where they are part of the answer's."""
        return self._prompts[self._place(index)] if self._work.echo and self._work.sampling.logprobs else ()

    def _places(self, index: int, entries: Sequence[TokenLogprob], echoed: int) -> list[int]:
        echo = self._echo(index)
        offsets = self._offsets.setdefault(index, TextOffsets(len(echo)))
        return [*prompt_offsets(echo, entries[:echoed]), *(offsets.of(entry.data) for entry in entries[echoed:])]


def shape_for(work: Work, prompts: Prompts) -> Shape:
    return ChatShape(work, prompts) if work.route == "chat" else CompletionShape(work, prompts)
