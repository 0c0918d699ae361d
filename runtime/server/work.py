"""From a checked body to work for a backend: what to send, and how to shape what comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from ...constrained.interface import ConstraintError
from ...constrained.schema.options import SchemaOptions
from .. import salt
from ..protocol import (
    MAX_CONSTRAINT_BYTES,
    MAX_MESSAGES,
    ConstraintSpec,
    Gen,
    Ids,
    Info,
    Op,
    Regex,
    Role,
    RoleBegin,
    RoleEnd,
    Sampling,
    Spec,
    Text,
)
from .limits import MAX_PARTS, check_sizes
from .problems import HttpProblem, bad_field
from .schema import Body, ChatBody, ChatMessage, CompletionBody, decode, refuse_unsupported
from .settings import ServerSettings

#: Beyond this a list of prompts belongs in several requests.
MAX_PROMPTS = 2048
#: fields of a body that are options of its response_format's schema
_JSON_OPTIONS = ("whitespace", "any_order", "undeclared", "strict", "format")
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True)
class Prompt:
    """``ops`` without the gen; ``text`` is None where it is given as ids."""

    ops: tuple[Op, ...]
    text: str | None = None


@dataclass(frozen=True)
class Work:
    """One HTTP request. Choice ``c`` of prompt ``p`` has index ``p * n + c``."""

    route: Literal["chat", "completions"]
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    n: int = 1
    constraint: ConstraintSpec | None = None
    stream: bool = False
    include_usage: bool = False
    salt: str = ""
    priority: int = 0
    #: protocol field -> the field of this route that caused it
    names: dict[str, str] = field(default_factory=dict)
    #: the text of each answer begins with its prompt
    echo: bool = False
    #: vLLM's field: alternatives of each of the prompt's tokens; None: not asked for
    prompt_logprobs: int | None = None

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.n

    def numbers(self, context_length: int) -> int:
        """Log-probabilities that the answer may hold, with their alternatives."""
        if not self.sampling.logprobs:
            return 0
        tokens = context_length if self.sampling.max_tokens is None else min(self.sampling.max_tokens, context_length)
        return self.choices * tokens * (1 + self.sampling.top_logprobs)

    def script(self, prompt: Prompt) -> tuple[Op, ...]:
        gen = Gen(len(prompt.ops) + 1, self.sampling, constraint=self.constraint, n=self.n, stream=self.stream)
        return (*prompt.ops, gen)


def chat_work(data: bytes, info: Info, settings: ServerSettings) -> Work:
    check_sizes(data, info)
    body = decode(data, ChatBody)
    _check(body, info, settings)
    constraint = _constraint(body, _response_format(body.response_format, _json_options(body)))
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise bad_field("max_tokens", "max_tokens and max_completion_tokens differ: send one of them")
    limit_name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if body.top_logprobs and not body.logprobs:
        raise bad_field("top_logprobs", "top_logprobs needs logprobs: true")
    if not info.has_chat_template:
        raise HttpProblem(
            400, f"{info.model} has no chat template: use /v1/completions", "messages", code="no_template"
        )
    if not body.messages:
        raise bad_field("messages", "messages must not be empty")
    if len(body.messages) >= MAX_MESSAGES:
        most = f"a conversation has at most {MAX_MESSAGES:,} messages, the answer among them"
        raise bad_field("messages", f"{len(body.messages):,} messages: {most}")
    ops: list[Op] = []
    parts = 0
    for i, raw in enumerate(body.messages):
        message = decode(raw, ChatMessage, f"messages[{i}]")
        parts += len(message.content) if isinstance(message.content, list) else 0
        if parts > MAX_PARTS:
            most = f"all messages together have at most {MAX_PARTS:,} parts"
            raise bad_field(f"messages[{i}].content", f"messages[{i}].content: {most}: join them")
        role, text = _message(message, f"messages[{i}]")
        ops.append(RoleBegin(len(ops) + 1, role))
        if text:
            ops.append(Text(len(ops) + 1, text))
        ops.append(RoleEnd(len(ops) + 1))
    ops.append(RoleBegin(len(ops) + 1, "assistant"))
    return _work(
        "chat",
        body,
        info,
        settings,
        [Prompt(tuple(ops))],
        limit,
        limit_name,
        bool(body.logprobs),
        body.top_logprobs or 0,
        constraint,
        reads=False,
    )


def completion_work(data: bytes, info: Info, settings: ServerSettings) -> Work:
    check_sizes(data, info)
    body = decode(data, CompletionBody)
    _check(body, info, settings)
    if body.best_of not in (None, body.n or 1):
        raise bad_field("best_of", "best_of is not supported: ask for n choices", "unsupported_field")
    if body.logprobs is not None and not 0 <= body.logprobs <= 20:
        raise bad_field("logprobs", f"logprobs must be a whole number from 0 to 20, not {body.logprobs}")
    prompts = [_prompt(one, info) for one in _prompts(body.prompt)]
    echo, wanted = bool(body.echo), body.logprobs is not None
    # The numbers of an echo; and its text, where only the tokenizer knows it.
    reads = echo and (wanted or any(prompt.text is None for prompt in prompts))
    if (given := next(iter(_json_options(body)), None)) is not None:
        raise bad_field(given, f"{given} belongs to a response_format, which this route does not have: use chat")
    constraint = _constraint(body, None)
    return _work(
        "completions",
        body,
        info,
        settings,
        prompts,
        body.max_tokens,
        "max_tokens",
        wanted,
        body.logprobs or 0,
        constraint,
        reads=reads,
        echo=echo,
    )


def _check(body: Body, info: Info, settings: ServerSettings) -> None:
    served = (info.model, *settings.names)
    if body.model is not None and body.model not in served:
        known = ", ".join(map(repr, served))
        raise HttpProblem(
            404,
            f"model {body.model!r} is not served here; {known} {'is' if len(served) == 1 else 'are'}",
            "model",
            code="model_not_found",
        )
    refuse_unsupported(body)
    if body.n is not None and not 1 <= body.n <= settings.max_n:
        raise bad_field("n", f"n must be a whole number from 1 to {settings.max_n}, not {body.n}")


def _work(
    route: Literal["chat", "completions"],
    body: Body,
    info: Info,
    settings: ServerSettings,
    prompts: Sequence[Prompt],
    max_tokens: int | None,
    limit_name: str,
    logprobs: bool,
    top_logprobs: int,
    constraint: ConstraintSpec | None,
    *,
    reads: bool,
    echo: bool = False,
) -> Work:
    content = "messages" if route == "chat" else "prompt"
    names = dict.fromkeys(("text", "prompt", "ids", "role"), content)
    names |= {"max_tokens": limit_name, "pattern": "regex"}
    if route == "completions":
        names["top_logprobs"] = "logprobs"
    names["logprob_start_len"] = "logprobs" if body.prompt_logprobs is None else "prompt_logprobs"
    if body.prompt_logprobs is not None and not 0 <= body.prompt_logprobs <= 20:
        wrong = f"prompt_logprobs must be a whole number from 0 to 20, not {body.prompt_logprobs}"
        raise bad_field("prompt_logprobs", wrong)
    # llama.cpp's clients send -1 for "the rest of the context", and an empty stop (string) for none
    limit = None if max_tokens == -1 else max_tokens
    stop = tuple(filter(None, (body.stop,) if isinstance(body.stop, str) else body.stop or ()))
    stop_regex = (body.stop_regex,) if isinstance(body.stop_regex, str) else tuple(body.stop_regex or ())
    given: dict[str, object] = {
        "max_tokens": limit,
        "min_tokens": body.min_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": 0 if body.top_k == -1 else body.top_k,  # -1 is how vLLM's and SGLang's clients say "off"
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": _logit_bias(body.logit_bias),
        "seed": body.seed,
        "stop": stop,
        "stop_regex": stop_regex,
        "stop_token_ids": None if body.stop_token_ids is None else tuple(body.stop_token_ids),
        "ignore_eos": body.ignore_eos,
        "wrap_up": settings.wrap_up if body.wrap_up is None else body.wrap_up,
        "end": body.end,
        "logprobs": logprobs,
        "top_logprobs": top_logprobs,
    }
    if body.end is not None and constraint is None:
        raise bad_field("end", "end says how a constrained text ends, and there is no constraint: leave it out")
    if reads or body.prompt_logprobs is not None:
        given["logprob_start_len"] = 0
        given["prompt_top_logprobs"] = max(top_logprobs if reads else 0, body.prompt_logprobs or 0)
    if (fault := salt.problem(body.cache_salt or "", "cache_salt")) is not None:
        raise bad_field("cache_salt", fault)
    sampling = Sampling(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # each has its field's type
    if (problem := sampling.problem(info.vocab_size)) is not None:
        name, message = problem
        param = names.get(name, name)
        raise bad_field(param, message.replace(name, param, 1))
    return Work(
        route,
        tuple(prompts),
        sampling,
        n=body.n or 1,
        constraint=constraint,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        salt=salt.digest(body.cache_salt or ""),
        priority=body.priority or 0,
        names=names,
        echo=echo,
        prompt_logprobs=body.prompt_logprobs,
    )


def _logit_bias(given: dict[str, float] | None) -> dict[int, float]:
    bias = {}
    for key, value in (given or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise bad_field("logit_bias", f"logit_bias: {key!r} is not a token id")
        bias[int(key)] = value
    return bias


def _json_options(body: Body) -> dict[str, object]:
    """Those that were given."""
    found: dict[str, object] = {}
    for name in _JSON_OPTIONS:
        value = getattr(body, name)
        if value is not None:
            try:
                SchemaOptions.parse({name: value})
            except ConstraintError as error:
                raise bad_field(name, str(error)) from None
            found[name] = value
    return found


def _response_format(given: object, options: Mapping[str, object]) -> Spec | None:
    """OpenAI's response_format. ``strict`` inside of it is about their service: here a schema is always kept, unless
    the ``strict`` beside it says otherwise."""
    more = {"options": options} if options else {}
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if value is not None}
    if given is None or given == {"type": "text"}:
        if options:
            name = next(iter(options))
            raise bad_field(name, f"{name} belongs to a response_format of JSON, which is not given")
        return None
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "json_object" and given == {"type": kind}:
        return Spec(_as_json({"json_schema": {"type": "object"}, **more}), field="response_format")
    if kind != "json_schema":
        raise bad_field("response_format", 'response_format must be of type "text", "json_object" or "json_schema"')
    assert isinstance(given, dict)
    where = "response_format.json_schema"
    inner = given.get("json_schema")
    if not isinstance(inner, dict) or set(given) - {"type", "json_schema"}:
        raise bad_field(where, f'{where} must be {{"name": ..., "schema": {{...}}}}')
    for name in inner:
        if name not in ("name", "description", "schema", "strict") and inner[name] is not None:
            raise bad_field(f"{where}.{name}", f"{where}: unknown field `{name}`", "unknown_field")
    schema = inner.get("schema")
    if not isinstance(schema, dict | bool):
        raise bad_field(f"{where}.schema", f"{where}.schema must be a JSON Schema")
    return Spec(_as_json({"json_schema": schema, **more}), field="response_format")


def _constraint(body: Body, wanted: Spec | None) -> ConstraintSpec | None:
    """The one constraint of a body; ``wanted`` is its response_format's."""
    given: dict[str, ConstraintSpec | None] = {
        "response_format": wanted,
        "regex": None if body.regex is None else Regex(body.regex),
        "grammar": None if body.grammar is None else Spec(_as_json({"grammar": body.grammar}), field="grammar"),
    }
    found = {name: spec for name, spec in given.items() if spec is not None}
    if len(found) > 1:
        first, second = list(found)[:2]
        raise bad_field(second, f"send {first} or {second}, not both: each says what the whole answer must be")
    for name, spec in found.items():
        source = spec.source if isinstance(spec, Spec) else spec.pattern
        if len(source) > MAX_CONSTRAINT_BYTES or len(source.encode()) > MAX_CONSTRAINT_BYTES:
            raise bad_field(name, f"{name} is too large: at most {MAX_CONSTRAINT_BYTES:,} bytes fit")
    return next(iter(found.values()), None)


def _as_json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def _message(message: ChatMessage, where: str) -> tuple[Role, str]:
    role = _ROLES.get(message.role)
    if role is None:
        why = (
            "tools are not supported yet" if message.role in ("tool", "function") else f"not one of {', '.join(_ROLES)}"
        )
        raise bad_field(f"{where}.role", f"{where}.role: {message.role!r}: {why}")
    for name in ("refusal", "tool_calls", "tool_call_id", "function_call", "audio", "annotations"):
        if getattr(message, name) not in (None, []):
            raise bad_field(f"{where}.{name}", f"{where}.{name} is not supported", "unsupported_field")
    for name in ("reasoning", "reasoning_content"):
        if getattr(message, name) not in (None, ""):
            raise bad_field(f"{where}.{name}", f"{where}.{name} is not supported", "unsupported_field")
    if message.content is None and role != "assistant":
        raise bad_field(f"{where}.content", f"{where}.content must be text")
    if message.content is None or isinstance(message.content, str):
        return role, message.content or ""
    parts = []
    for k, raw in enumerate(message.content):
        path = f"{where}.content[{k}]"
        part = decode(raw, dict[str, object], path)
        if part.get("type") != "text":
            raise bad_field(f"{path}.type", f"{path}.type: only text parts are supported", "unsupported_field")
        if extra := next((key for key in part if key not in ("type", "text") and part[key] is not None), None):
            raise bad_field(f"{path}.{extra}", f"{path}: unknown field `{extra}`", "unknown_field")
        if not isinstance(part.get("text"), str):
            raise bad_field(f"{path}.text", f"{path}.text must be a string")
        parts.append(cast(str, part["text"]))
    return role, "".join(parts)


def _prompts(given: str | list[str | int | list[int]]) -> list[str | list[int]]:
    if isinstance(given, str):
        return [given]
    if not given:
        raise bad_field("prompt", "prompt must not be empty")
    kinds = {type(item) for item in given}
    if len(kinds) != 1:
        raise bad_field("prompt", "prompt must be text, token ids, a list of texts or a list of lists of token ids")
    if kinds == {int}:
        return [cast("list[int]", given)]
    if len(given) > MAX_PROMPTS:
        raise bad_field("prompt", f"at most {MAX_PROMPTS} prompts in one request, not {len(given)}")
    return cast("list[str | list[int]]", given)


def _prompt(given: str | list[int], info: Info) -> Prompt:
    if isinstance(given, str):
        return Prompt((Text(1, given),) if given else (), given)
    if not given:
        raise bad_field("prompt", "a list of token ids must not be empty")
    if len(given) > info.context_length:  # before anybody looks at each
        raise bad_field(
            "prompt",
            f"the prompt has {len(given)} tokens, but the model's context holds {info.context_length}: shorten it",
            "context_length_exceeded",
        )
    for token in (min(given), max(given)):
        if not 0 <= token < info.vocab_size:
            raise bad_field("prompt", f"prompt: {token} is not a token id (0 to {info.vocab_size - 1})")
    return Prompt((Ids(1, tuple(given)),))
