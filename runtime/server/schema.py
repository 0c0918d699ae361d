"""The bodies that requests may have. Unknown fields are refused, and so is every known field we would not honour.

``null`` always means "absent", as OpenAI's clients use it, also of a field that nobody here knows. Three kinds of
fields are declared: those that have an effect here; a caller's bookkeeping, which clients send by default and which
means nothing to a single server; and :data:`NEUTRAL`, which are accepted only with a value that asks for nothing.
"""

from __future__ import annotations

import difflib
import re
from typing import Annotated, TypeVar

import msgspec

from .problems import HttpProblem, bad_field

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: field -> (values that ask for nothing, why others are refused)
NEUTRAL: dict[str, tuple[tuple[object, ...], str]] = {
    "tools": (([],), "tools are not supported yet"),
    "tool_choice": (("none", "auto"), "tools are not supported yet"),
    "parallel_tool_calls": ((True, False), "it must be true or false"),
    "functions": (([],), "functions are not supported; neither are tools yet"),
    "function_call": (("none", "auto"), "functions are not supported; neither are tools yet"),
    "modalities": ((["text"],), "only text is produced"),
    "audio": ((), "only text is produced"),
    "prediction": ((), "predicted outputs are not supported"),
    "reasoning_effort": (("none",), "the model has no reasoning effort to set"),
    "verbosity": ((), "the model has no verbosity to set"),
    "web_search_options": ((), "there is no web search"),
    "service_tier": (("auto", "default"), "there is one service tier"),
    "store": ((False,), "completions are never stored"),
    "suffix": ((), "insertion is not supported"),
}


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``include_obfuscation`` pads nothing here; false, which asks for nothing, is accepted."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What both routes share. The part after ``logit_bias`` extends OpenAI's surface, with vLLM's names. Of
    ``priority``, the higher goes first (vLLM's is the other way round)."""

    model: str | None = None
    max_tokens: Int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: Int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: Int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    top_k: Int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Int | None = None
    ignore_eos: bool | None = None
    wrap_up: bool | str | None = None
    end: str | None = None
    prompt_logprobs: Int | None = None
    stop_token_ids: list[Int] | None = None
    stop_regex: str | list[str] | None = None
    regex: str | None = None
    grammar: str | None = None
    # how the JSON of a response_format is written and its schema read
    whitespace: str | int | None = None
    any_order: bool | None = None
    undeclared: bool | None = None
    strict: bool | None = None
    format: str | None = None
    cache_salt: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] | None = None

    # a caller's bookkeeping: nothing we keep
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    store: object = None
    service_tier: object = None


class ChatBody(Body, kw_only=True, forbid_unknown_fields=True):
    messages: list[msgspec.Raw]
    max_completion_tokens: Int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    response_format: object = None

    tools: object = None
    tool_choice: object = None
    parallel_tool_calls: object = None
    functions: object = None
    function_call: object = None
    modalities: object = None
    audio: object = None
    prediction: object = None
    reasoning_effort: object = None
    verbosity: object = None
    web_search_options: object = None


class CompletionBody(Body, kw_only=True, forbid_unknown_fields=True):
    prompt: str | list[str | Int | list[Int]]
    logprobs: Int | None = None
    echo: bool | None = None
    best_of: Int | None = None
    suffix: object = None


class ChatMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``name`` says who speaks, to the caller: templates are not given it. The fields after it come from clients that
    send an earlier reply back whole; only empty ones may."""

    role: str
    content: str | list[msgspec.Raw] | None = None
    name: str | None = None
    refusal: object = None
    tool_calls: object = None
    tool_call_id: object = None
    function_call: object = None
    audio: object = None
    annotations: object = None
    reasoning: object = None
    reasoning_content: object = None


T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?(.*)`$")
_NAMED = re.compile(r"^Object (?:contains unknown|missing required) field `(.*?)`")
#: fields of other servers that say what the answer must be -> what says it here
_ELSEWHERE = {
    "guided_json": "response_format",
    "guided_regex": "regex",
    "guided_choice": "regex",
    "guided_grammar": "grammar",
    "structured_outputs": "response_format, regex and grammar",
    "json_schema": "response_format",
    "ebnf": "grammar",
}


def decode(data: bytes | msgspec.Raw, kind: type[T], where: str = "") -> T:
    """``data`` as ``kind``, or a 400 that names the field. ``where`` is the path of ``data`` within the body."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        at = _AT.search(text)
        path = [where] if where else []
        if at is not None and at.group(1):
            path.append(at.group(1))
        if (named := _NAMED.match(text)) is not None:
            path.append(named.group(1))
        param = ".".join(path).replace(".[", "[")
        code = "unknown_field" if "unknown field" in text else "invalid_value"
        if code == "unknown_field" and (rest := _without_nulls(data, kind)) is not None:
            return decode(rest, kind, where)
        fault = _unknown(param, kind) if code == "unknown_field" else _AT.sub("", text)
        raise HttpProblem(400, f"{param}: {fault}" if param else fault, param or None, code=code) from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise HttpProblem(400, f"the body is not JSON: {error}", code="invalid_json") from error


def _without_nulls(data: bytes | msgspec.Raw, kind: type) -> bytes | None:
    """``data`` without the fields that ``kind`` does not have and that are null, or None if there are none."""
    given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    known = getattr(kind, "__struct_fields__", ())
    kept = {name: value for name, value in given.items() if name in known or bytes(value) != b"null"}
    return None if len(kept) == len(given) else msgspec.json.encode(kept)


def _unknown(param: str, kind: type) -> str:
    fault = "this server knows no such field"
    if param in _ELSEWHERE:
        return f"{fault}; it has {_ELSEWHERE[param]}"
    near = difflib.get_close_matches(param.rpartition(".")[2], getattr(kind, "__struct_fields__", ()), 1)
    return f"{fault}; did you mean {near[0]}?" if near else fault


def refuse_unsupported(body: Body) -> None:
    for name, (neutral, why) in NEUTRAL.items():
        value = getattr(body, name, None)
        if value is not None and not any(value == one and type(value) is type(one) for one in neutral):
            raise bad_field(name, f"{name}: {why}", "unsupported_field")
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        raise bad_field("stream_options.include_obfuscation", "streams are not padded", "unsupported_field")
