"""What the server refuses, and that it names the field; the next request is always served."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from server_fake import Script, ScriptedBackend
from test_server import USER, chat, complete, over, post

from plait.constrained.interface import RELAXABLE


def refused(response: httpx.Response, param: str | None, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert error["message"] and error["code"]
    return error


RELAXED = "the pattern cannot be kept" + RELAXABLE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -2),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", 10**30),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_p", -0.1),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", 2),
        ("n", 0),
        ("n", 129),
        ("seed", 2**70),
        ("stop", ["x"] * 65),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"300": 1}),
        ("logit_bias", {"1": 101}),
        ("stop_token_ids", [300]),
        ("min_tokens", -1),
        ("priority", 10_000),
        ("cache_salt", "s" * 1025),
        ("cache_salt", "\u00e9" * 513),
        ("store", True),
        ("service_tier", "flex"),
        ("end", "eos"),
        ("end", "soon"),
    ],
)
def test_bad_values_name_their_field(field: str, value: Any) -> None:
    backend = ScriptedBackend()
    error = refused(chat(backend, **{field: value}), field)
    assert field in error["message"]
    refused(complete(backend, **{field: value}), field)
    assert not backend.strands
    assert chat(backend).status_code == 200


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("foo", {"foo": 1}),
        ("ebnf", {"ebnf": "root ::= x"}),
        ("chat_template", {"chat_template": "{{ 1 }}"}),
        ("stream_options.foo", {"stream_options": {"foo": 1}}),
        ("stop[1]", {"stop": ["a", 1]}),
        ("tools", {"tools": [{"type": "function"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("parallel_tool_calls", {"parallel_tool_calls": 1}),
        ("response_format", {"response_format": {"type": "json_object", "schema": {}}}),
        ("response_format", {"response_format": {"type": "xml"}}),
        ("response_format", {"response_format": "json"}),
        ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
        ("response_format.json_schema.schema", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        ("response_format.json_schema.foo", {"response_format": {"type": "json_schema", "json_schema": {"foo": 1}}}),
        ("regex", {"response_format": {"type": "json_object"}, "regex": "a"}),
        ("grammar", {"grammar": "root ::= x", "regex": "a"}),
        ("stop_regex", {"stop_regex": ""}),
        ("reasoning_effort", {"reasoning_effort": "high"}),
        ("max_completion_tokens", {"max_completion_tokens": -2}),
        ("max_tokens", {"max_tokens": 1, "max_completion_tokens": 2}),
        ("max_tokens", {"max_tokens": -1, "max_completion_tokens": 2}),
        ("top_logprobs", {"top_logprobs": 2}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        ("logprobs", {"logprobs": 1}),
        ("messages", {"messages": []}),
        ("messages", {"messages": "hi"}),
        ("messages[0].role", {"messages": [{"role": "robot", "content": "x"}]}),
        ("messages[1].role", {"messages": [*USER, {"role": "tool", "content": "x"}]}),
        ("messages[0].role", {"messages": [{"content": "x"}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": None}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": 3}]}),
        ("messages[0].foo", {"messages": [{"role": "user", "content": "x", "foo": 1}]}),
        ("messages[0].name", {"messages": [{"role": "user", "content": "x", "name": 5}]}),
        ("messages[0].tool_calls", {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}),
        (
            "messages[0].content[1].type",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {}]}]},
        ),
        ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ],
)
def test_bad_chat_bodies(param: str, body: dict[str, Any]) -> None:
    refused(chat(ScriptedBackend(), **body), param)


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("messages", {"messages": USER}),
        ("logprobs", {"logprobs": -1}),
        ("logprobs", {"logprobs": 21}),
        ("logprobs", {"logprobs": True}),
        ("prompt_logprobs", {"prompt_logprobs": 21}),
        ("prompt_logprobs", {"prompt_logprobs": -1}),
        ("suffix", {"suffix": "x"}),
        ("best_of", {"best_of": 2}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": [[]]}),
        ("prompt", {"prompt": ["a", 1]}),
        ("prompt", {"prompt": [300]}),
        ("prompt", {"prompt": [-1]}),
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": ["x"] * 2049}),
    ],
)
def test_bad_completion_bodies(param: str, body: dict[str, Any]) -> None:
    refused(complete(ScriptedBackend(), **body), param)


def test_missing_fields_are_named() -> None:
    refused(post(ScriptedBackend(), "/v1/chat/completions", {"model": "tiny"}), "messages")
    refused(post(ScriptedBackend(), "/v1/completions", {"model": "tiny"}), "prompt")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 200_000, b'{"prompt": NaN}'])
def test_bodies_that_are_not_json_objects(body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = over(ScriptedBackend(), lambda http: http.post("/v1/completions", content=body, headers=headers))
    refused(response, None)


def test_other_content_types_are_refused() -> None:
    """A browser may send text/plain across origins without asking."""
    body = b'{"model": "tiny", "prompt": "x"}'
    headers = {"content-type": "text/plain"}
    response = over(ScriptedBackend(), lambda http: http.post("/v1/completions", content=body, headers=headers))
    refused(response, None, 415)


def test_unknown_model_route_and_method() -> None:
    error = refused(chat(ScriptedBackend(), model="gpt"), "model", 404)
    assert error["message"].endswith("'tiny' is")
    named = post(ScriptedBackend(), "/v1/completions", {"model": "gpt", "prompt": "x"}, names=("other",))
    assert refused(named, "model", 404)["message"].endswith("'tiny', 'other' are")
    assert over(ScriptedBackend(), lambda http: http.get("/v1/models/gpt")).status_code == 404
    refused(over(ScriptedBackend(), lambda http: http.get("/v1/embeddings")), None, 404)
    refused(over(ScriptedBackend(), lambda http: http.get("/v1/completions")), None, 405)


def test_advice_is_given_as_a_body_can_follow_it() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(fail=("invalid_constraint", "response_format", RELAXED)))
    error = refused(chat(backend, response_format={"type": "json_object"}), "response_format")
    assert error["message"].startswith('response_format: the pattern cannot be kept ("strict": false beside')


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {}}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("whitespace", value) for value in ("wide", 17, -1, True, 2.5, "")],
        *[(name, value) for name in ("any_order", "undeclared", "strict") for value in ("yes", 1)],
        ("format", "maybe"),
        ("format", True),
    ],
)
def test_options_of_json_are_checked_at_the_edge(field: str, value: Any) -> None:
    backend = ScriptedBackend()
    for wanted in ({"type": "json_object"}, SCHEMA):
        assert field in refused(chat(backend, response_format=wanted, **{field: value}), field)["message"]
    assert not backend.strands


@pytest.mark.parametrize(
    ("field", "value"),
    [("whitespace", "auto"), ("any_order", True), ("undeclared", False), ("strict", False), ("format", "assert")],
)
def test_options_of_json_without_json_are_refused(field: str, value: Any) -> None:
    backend = ScriptedBackend()
    for more in ({}, {"response_format": {"type": "text"}}, {"regex": "a"}, {"grammar": 'root ::= "a"'}):
        assert "response_format" in refused(chat(backend, **more, **{field: value}), field)["message"]
    assert "response_format" in refused(complete(backend, **{field: value}), field)["message"]
    assert not backend.strands


def test_what_other_servers_call_otherwise_is_named() -> None:
    error = refused(chat(ScriptedBackend(), guided_json={}), "guided_json")
    assert error["message"] == "guided_json: this server knows no such field; it has response_format"


def test_a_field_with_a_slip_in_its_name_is_told_the_name() -> None:
    error = refused(chat(ScriptedBackend(), temprature=0), "temprature")
    assert error["message"] == "temprature: this server knows no such field; did you mean temperature?"
    assert "mean" not in refused(chat(ScriptedBackend(), foo=1), "foo")["message"]


def test_model_may_be_left_out() -> None:
    assert post(ScriptedBackend(), "/v1/completions", {"prompt": "x"}).json()["model"] == "tiny"


def test_no_chat_template() -> None:
    error = refused(chat(ScriptedBackend(template=False)), "messages")
    assert "/v1/completions" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "field", "status", "param"),
    [
        ("invalid_constraint", "regex", 400, "regex"),
        ("invalid_constraint", "pattern", 400, "regex"),
        ("context_length", None, 400, "messages"),
        ("invalid_value", "max_tokens", 400, "max_completion_tokens"),
        ("invalid_request", "text", 400, "messages"),
        ("kv_exhausted", None, 400, None),
        ("queue_full", None, 429, None),
        ("shutdown", None, 503, None),
        ("core_crashed", None, 500, None),
        ("internal", None, 500, None),
    ],
)
def test_what_the_front_refuses_has_a_status(
    code: str, field: str | None, status: int, param: str | None, stream: bool
) -> None:
    """runtime_open 14: also for a stream, since nothing goes out before the first event."""
    bad = [True]

    def script(sent: object, choice: int) -> Script:
        return Script(fail=(code, field, "why")) if bad[0] else Script()

    backend = ScriptedBackend(script)
    response = chat(backend, regex="(", stream=stream, max_completion_tokens=5)
    error = refused(response, param, status)
    assert error["message"] == ("regex: why" if code == "invalid_constraint" else "why")
    bad[0] = False
    assert chat(backend).status_code == 200
