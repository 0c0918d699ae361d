"""How large each field of a body may be, looked at before anything is built from it.

A body of no more than :data:`ORDINARY` bytes needs no look: none of its fields can be larger.
"""

from __future__ import annotations

import msgspec

from ..protocol import MAX_CONSTRAINT_BYTES, Info
from .problems import bad_field

#: Bytes of a field that is not named below; a body of that size is ordinary.
ORDINARY = 64 * 1024
#: Parts of a request's messages, all together.
MAX_PARTS = 4096
_WHOLE = 2**62  # as large as the body
#: field -> bytes that it may have as it is written in the body
_BYTES = {
    "messages": _WHOLE,
    "prompt": _WHOLE,
    "regex": _WHOLE,  # one string each: what is too long for them is told after unescaping
    "grammar": _WHOLE,
    "response_format": MAX_CONSTRAINT_BYTES,
    "stop": 1024 * 1024,
    "stop_regex": 1024 * 1024,
    "logit_bias": 1024 * 1024,
}
_IDS = b"-0123456789"


def check_sizes(data: bytes, info: Info) -> None:
    """Raises HttpProblem naming the field that is too large. What is no JSON object is not its business."""
    if len(data) <= ORDINARY:
        return
    try:
        given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return
    for name, raw in given.items():
        most = _BYTES.get(name, ORDINARY)
        if len(memoryview(raw)) > most:
            raise bad_field(name, f"{name} has {len(memoryview(raw)):,} bytes: it is too large, at most {most:,} fit")
    if "prompt" in given:
        _check_ids(bytes(given["prompt"]), info)


def _check_ids(prompt: bytes, info: Info) -> None:
    """One list of ids is longer than the context: that can be told by its commas."""
    items = prompt[1:].lstrip() if prompt.startswith(b"[") else b""
    if not items or items[0] not in _IDS:
        return
    count = prompt.count(b",") + 1
    if count > info.context_length:
        raise bad_field(
            "prompt",
            f"the prompt has {count} tokens, but the model's context holds {info.context_length}: shorten it",
            "context_length_exceeded",
        )
