"""Errors on the wire: the shape, the bounds and the retry fields."""

from __future__ import annotations

import json

import pytest

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire import errors


def fields(refusal: Refusal) -> dict[bytes, bytes]:
    return dict(errors.headers(refusal))


ANTHROPIC = [Api.MESSAGES, Api.COUNT_TOKENS]
OTHERS = [api for api in [*Api, None] if api not in ANTHROPIC]


@pytest.mark.parametrize("api", OTHERS)
def test_the_body_has_openais_shape(api: Api | None) -> None:
    refusal = Refusal(Outcome.BAD_REQUEST, "n: too large", param="n")
    assert json.loads(errors.body(refusal, api, "req-1")) == {
        "error": {
            "message": "n: too large",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_request",
        }
    }


@pytest.mark.parametrize("api", ANTHROPIC)
def test_the_body_has_anthropics_shape(api: Api) -> None:
    refusal = Refusal(Outcome.MODEL_NOT_FOUND, "no such model", param="model")
    assert json.loads(errors.body(refusal, api, "req-1")) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such model"},
        "request_id": "req-1",
    }


@pytest.mark.parametrize("outcome", Outcome)
def test_the_status_is_that_of_the_api(outcome: Outcome) -> None:
    refusal = Refusal(outcome, "")
    assert {errors.status(refusal, api) for api in OTHERS} == {outcome.status}
    assert {errors.status(refusal, api) for api in ANTHROPIC} == {outcome.anthropic_status}


def test_an_event_is_one_line_of_data() -> None:
    event = errors.event(Outcome.FAILED_TRUNCATED, "the engine\nbroke off", Api.CHAT, "req-1")
    assert event.startswith(b'data: {"error":{')
    assert event.endswith(b"}}\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event.removeprefix(b"data: "))["error"] == {
        "message": "the engine\nbroke off",
        "type": "server_error",
        "param": None,
        "code": "stream_truncated",
    }


def test_anthropics_event_has_a_name() -> None:
    event = errors.event(Outcome.FAILED_TRUNCATED, "the engine\nbroke off", Api.MESSAGES, "req-1")
    name, data = event.removesuffix(b"\n\n").split(b"\n")
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "the engine\nbroke off"},
        "request_id": "req-1",
    }


def test_the_id_comes_by_the_names_clients_know() -> None:
    assert errors.id_lines(None, "req-1") == errors.id_lines(Api.CHAT, "req-1") == b"x-request-id: req-1\r\n"
    assert errors.id_lines(Api.MESSAGES, "req-1") == b"x-request-id: req-1\r\nrequest-id: req-1\r\n"


@pytest.mark.parametrize("char", ["x", "漢", "\ud800"])
@pytest.mark.parametrize("api", [None, Api.MESSAGES])
def test_messages_are_bounded_and_always_text(char: str, api: Api | None) -> None:
    said = json.loads(errors.body(Refusal(Outcome.BAD_REQUEST, char * 5000), api, ""))["error"]["message"]
    assert errors.MESSAGE_BYTES_MAX - 3 < len(said.encode()) <= errors.MESSAGE_BYTES_MAX


def test_a_refusal_that_can_be_retried_says_when() -> None:
    assert errors.headers(Refusal(Outcome.QUEUE_FULL, "full", retry_after_s=2.1)) == [
        (b"content-type", b"application/json"),
        (b"x-maitred-outcome", b"queue_full"),
        (b"x-should-retry", b"true"),
        (b"retry-after", b"3"),
        (b"retry-after-ms", b"3000"),
    ]


@pytest.mark.parametrize(
    ("refusal", "should_retry"),
    [
        (Refusal(Outcome.BAD_REQUEST, ""), b"false"),
        (Refusal(Outcome.QUEUE_FULL, "", retry_after_s=61), b"false"),
        (Refusal(Outcome.CLIENT_GONE, ""), None),
    ],
)
def test_no_wait_is_announced_where_a_repeat_is_vain(refusal: Refusal, should_retry: bytes | None) -> None:
    said = fields(refusal)
    assert said.get(b"x-should-retry") == should_retry
    assert b"retry-after" not in said
    assert b"retry-after-ms" not in said


def test_the_refusals_own_headers_come_along() -> None:
    refusal = Refusal(Outcome.METHOD_NOT_ALLOWED, "", headers=(("allow", "POST"),))
    assert fields(refusal)[b"allow"] == b"POST"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_can_be_said(outcome: Outcome) -> None:
    assert isinstance(json.loads(errors.body(Refusal(outcome, "m"), None, ""))["error"]["code"], str)
    assert fields(Refusal(outcome, "m"))[b"x-maitred-outcome"] == outcome.label.encode()


# -- what engines refuse ------------------------------------------------------------------------------


def of_engine(body: object, api: Api, status: int = 400) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return errors.of_engine(status, raw, api, "req-1")


@pytest.mark.parametrize("api", [api for api in OTHERS if api is not None])
@pytest.mark.parametrize(
    "body",
    [
        b' {"error": {"message": "no","type":"BadRequestError","code":4e2}}\n',
        b'{"error":{"message":"","n_ctx":8}}',
        b'{"type":"error","error":{"type":"api_error","message":"no"}}',
    ],
)
def test_openais_shape_passes_byte_for_byte(api: Api, body: bytes) -> None:
    assert of_engine(body, api) is body


@pytest.mark.parametrize("kind", ["invalid_request_error", "not_found_error", "api_error", "billing_error"])
@pytest.mark.parametrize("api", ANTHROPIC)
def test_anthropics_shape_passes_byte_for_byte(api: Api, kind: str) -> None:
    body = b' {"type": "error","error":{"message":"no","type":"%b","x":1}}\n' % kind.encode()
    assert of_engine(body, api) is body


OTHER_SHAPES = [
    b'{"object":"error","message":"no","type":"BadRequestError","code":400}',
    b'{"detail":"no"}',
    b'{"error":"no"}',
    b'{"error":{"message":null},"detail":"no"}',
    b"no\n",
]


@pytest.mark.parametrize("body", OTHER_SHAPES)
def test_all_else_is_put_into_openais_shape(body: bytes) -> None:
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": "engine_refused"}
    assert json.loads(of_engine(body, Api.CHAT, 422)) == {"error": error}


@pytest.mark.parametrize(
    "body",
    [
        *OTHER_SHAPES,
        b'{"error":{"message":"no","type":"invalid_request_error"}}',
        b'{"type":"error","error":{"type":"BadRequestError","message":"no"}}',
        b'{"type":"oops","error":{"type":"api_error","message":"no"}}',
    ],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (418, "api_error"),
        (501, "api_error"),
    ],
)
def test_all_else_is_put_into_anthropics_shape(body: bytes, status: int, kind: str) -> None:
    told = json.loads(of_engine(body, Api.MESSAGES, status))
    assert told == {
        "type": "error",
        "error": {"type": kind, "message": "no"},
        "request_id": "req-1",
    }


@pytest.mark.parametrize("kind", ["BadRequestError", "invalid_request_error"])
@pytest.mark.parametrize("api", [*ANTHROPIC, Api.CHAT])
def test_a_prompt_that_is_too_long_is_said_in_the_words_anthropics_clients_know(api: Api, kind: str) -> None:
    sentence = "request (9 tokens) exceeds the available context size (8 tokens), try increasing it"
    body = json.dumps({"type": "error", "error": {"type": kind, "message": sentence}}).encode()
    told = json.loads(of_engine(body, api))["error"]
    if api.anthropic:
        assert told == {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9 tokens > 8 maximum",
        }
    else:
        assert told == {"type": kind, "message": sentence}


@pytest.mark.parametrize("api", [Api.CHAT, Api.MESSAGES])
@pytest.mark.parametrize("body", ["<html>" + "é" * 5000, '{"detail":"%s"}' % ("é" * 5000)])
def test_an_engines_words_are_bounded(api: Api, body: str) -> None:
    message = json.loads(of_engine(body.encode(), api))["error"]["message"]
    assert message.startswith(("<html>é", "é"))
    assert errors.MESSAGE_BYTES_MAX - 3 < len(message.encode()) <= errors.MESSAGE_BYTES_MAX


@pytest.mark.parametrize("api", [Api.CHAT, Api.MESSAGES])
def test_a_silent_engine_is_given_words(api: Api) -> None:
    assert "404" in json.loads(of_engine(b"", api, 404))["error"]["message"]
