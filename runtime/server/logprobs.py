"""How log-probabilities look on each route, and where each token stands in the text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from ..protocol import TokenLogprob, TopLogprob

Json = dict[str, Any]
#: what OpenAI's API says in place of -inf, which JSON cannot
_LEAST = -9999.0


def _number(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, _LEAST)


# ---------------------------------------------------------------- chat


def chat_logprobs(entries: Sequence[TokenLogprob], next_top: Sequence[TopLogprob] = ()) -> Json:
    """``next_top_logprobs`` extends OpenAI's shape: what would come next, where ``max_tokens`` is 0."""
    content = [_chat_entry(entry) | {"top_logprobs": [_chat_entry(top) for top in entry.top]} for entry in entries]
    shaped: Json = {"content": content, "refusal": None}
    if next_top:
        shaped["next_top_logprobs"] = [_chat_entry(top) for top in next_top]
    return shaped


def _chat_entry(entry: TokenLogprob | TopLogprob) -> Json:
    return {"token": entry.token, "logprob": _number(entry.logprob), "bytes": list(entry.data)}


# ---------------------------------------------------------------- completions


def completion_logprobs(
    entries: Sequence[TokenLogprob], offsets: Sequence[int], top: int, next_top: Sequence[TopLogprob] = ()
) -> Json:
    """At most ``top`` alternatives of each entry, and the entry itself. ``next_top_logprobs``: as above."""
    shaped: Json = {
        "tokens": [token_name(entry) for entry in entries],
        "token_logprobs": [_number(entry.logprob) for entry in entries],
        "top_logprobs": [_alternatives(entry, top) for entry in entries],
        "text_offset": list(offsets),
    }
    if next_top:
        shaped["next_top_logprobs"] = _named(next_top, {})
    return shaped


def token_name(entry: TokenLogprob | TopLogprob) -> str:
    """A token that is no text by itself is written as OpenAI's API does: ``bytes:\\xf0\\x9f``."""
    try:
        entry.data.decode()
    except UnicodeDecodeError:
        return _spelled(entry.data)
    return entry.token


def _spelled(data: bytes) -> str:
    return "bytes:" + "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in data)


def _alternatives(entry: TokenLogprob, top: int) -> dict[str, float | None] | None:
    """By name, best first; the token itself is among them. None where nothing was predicted."""
    if entry.logprob is None:
        return None
    shown = entry.top[:top]
    names = _named(shown, {entry.id: token_name(entry)})
    if all(one.id != entry.id for one in shown):
        names[token_name(entry)] = _number(entry.logprob)
    return names


def _named(top: Sequence[TopLogprob], taken: dict[int, str]) -> dict[str, float | None]:
    """Each under a name of its own, whatever ids spell alike. ``taken``: ids whose name is given."""
    names: dict[str, float | None] = {}
    used = set(taken.values())
    for one in top:
        name = taken.get(one.id)
        if name is None:
            number = f"token_id:{one.id}"
            name = next((name for name in (token_name(one), _spelled(one.data)) if name not in used), number)
            used.add(name)
        names[name] = _number(one.logprob)
    return names


# ---------------------------------------------------------------- prompts


def prompt_logprobs(entries: Sequence[TokenLogprob], top: int) -> list[Json | None]:
    """vLLM's shape: None for what nothing precedes, else by id the token itself and ``top`` alternatives."""
    return [None if entry.logprob is None else _ranked(entry, top) for entry in entries]


def _ranked(entry: TokenLogprob, top: int) -> Json:
    found: Json = {str(entry.id): {"logprob": _number(entry.logprob), "rank": entry.rank, "decoded_token": entry.token}}
    for rank, one in enumerate(entry.top[:top], 1):
        found.setdefault(str(one.id), {"logprob": _number(one.logprob), "rank": rank, "decoded_token": one.token})
    return found


def text_of(entries: Sequence[TokenLogprob]) -> str:
    return b"".join(entry.data for entry in entries).decode("utf-8", "replace")


def prompt_offsets(text: str, entries: Sequence[TokenLogprob]) -> list[int]:
    """Where each of a prompt's tokens begins in ``text``. A special token adds its name where the prompt spells it, and
    nothing where the tokenizer put it there; so does the space that some tokenizers put before a text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first = next((entry.data for entry in entries if entry.data), b"")
    extra = 1 if first.startswith(b" ") and not text.startswith(" ") else 0
    at, offsets = 0, []
    for entry in entries:
        offsets.append(min(at, len(text)))
        if entry.data:
            gained = len(decoder.decode(entry.data))
            at += gained - min(extra, gained)
            extra -= min(extra, gained)
        elif text.startswith(entry.token, at):
            at += len(entry.token)
    return offsets


class TextOffsets:
    """Where each token begins in the text, in characters; one that begins inside a character has that character's."""

    def __init__(self, start: int = 0) -> None:
        self._at = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, data: bytes) -> int:
        at = self._at
        self._at += len(self._decoder.decode(data))
        return at
