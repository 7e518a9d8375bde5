"""How a refusal or a failure reads on the wire, in the shape the client's own library understands.

Clients of Anthropic's API get its shape, all others OpenAI's; so do those whose API is not known (None).
What engines refuse is put into that shape too, where it has another.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder, encode

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.engines.errors import overflow, words
from maitred.wire.answers import UNREADABLE

MESSAGE_BYTES_MAX = 1024

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
}
"""Anthropic's types of what an engine refuses, by status; "api_error" for all others."""


class _Message(Struct):
    message: str


class _OpenAI(Struct):
    error: _Message


class _Kind(Struct):
    """vLLM puts its own types here, which tell Anthropic's clients nothing."""

    type: Literal[
        "invalid_request_error", "authentication_error", "billing_error", "permission_error",
        "not_found_error", "request_too_large", "rate_limit_error", "timeout_error", "api_error",
        "overloaded_error",
    ]  # fmt: skip
    message: str


class _Anthropic(Struct):
    type: Literal["error"]
    error: _Kind


_openai, _anthropic = Decoder(_OpenAI).decode, Decoder(_Anthropic).decode


def status(refusal: Refusal, api: Api | None) -> int:
    """Return the status of an error answer."""
    outcome = refusal.outcome
    return outcome.anthropic_status if _is_anthropic(api) else outcome.status


def body(refusal: Refusal, api: Api | None, request_id: str) -> bytes:
    """Return the body of an error answer."""
    return _error(refusal.outcome, refusal.message, refusal.param, api, request_id)


def of_engine(status: int, body: bytes, api: Api, request_id: str) -> bytes:
    """Return what an engine refused with in the API's shape: `body` itself where it has it already.

    The words stay the engine's, but for a prompt that is too long, which clients of Anthropic's API know by
    Anthropic's.
    """
    too_long = overflow(body) if api.anthropic else None
    if too_long is None and _is_in_shape(body, api):
        return body
    message = words(body) or f"the engine refused the request with status {status}"
    if not api.anthropic:
        return _error(Outcome.ENGINE_REFUSED, message, None, api, request_id)
    if too_long is not None:
        message = f"prompt is too long: {too_long[0]} tokens > {too_long[1]} maximum"
    return _anthropic_error(_KINDS.get(status, "api_error"), message, request_id)


def event(outcome: Outcome, message: str, api: Api, request_id: str) -> bytes:
    """Return the server-sent event that ends a stream which cannot be completed."""
    name = b"event: error\n" if api.anthropic else b""
    return name + b"data: " + _error(outcome, message, None, api, request_id) + b"\n\n"


def headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    """Return the header fields that go with `body`: its type, the outcome and whether and when to retry."""
    outcome = refusal.outcome
    fields = [(b"content-type", b"application/json"), (b"x-maitred-outcome", outcome.label.encode())]
    if outcome.retry is not None:
        fields.append((b"x-should-retry", b"true" if refusal.retryable else b"false"))
    if (wait_s := refusal.wait_s) is not None:
        fields.append((b"retry-after", b"%d" % wait_s))
        fields.append((b"retry-after-ms", b"%d" % (wait_s * 1000)))
    fields += ((name.encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers)
    return fields


def id_lines(api: Api | None, request_id: str) -> bytes:
    """Return the header lines that tell our request id, by the names the client's library looks for."""
    value = request_id.encode()
    if api is not None and api.anthropic:
        return b"x-request-id: %b\r\nrequest-id: %b\r\n" % (value, value)
    return b"x-request-id: %b\r\n" % value


def _is_anthropic(api: Api | None) -> bool:
    return api is not None and api.anthropic


def _is_in_shape(body: bytes, api: Api) -> bool:
    try:
        _anthropic(body) if api.anthropic else _openai(body)
    except UNREADABLE:
        return False
    return True


def _error(outcome: Outcome, message: str, param: str | None, api: Api | None, request_id: str) -> bytes:
    if _is_anthropic(api):
        return _anthropic_error(outcome.anthropic_kind, message, request_id)
    error = {"message": _bounded(message), "type": outcome.kind, "param": param, "code": outcome.code}
    return encode({"error": error})


def _anthropic_error(kind: str, message: str, request_id: str) -> bytes:
    error = {"type": kind, "message": _bounded(message)}
    return encode({"type": "error", "error": error, "request_id": request_id})


def _bounded(message: str) -> str:
    return message.encode(errors="replace")[:MESSAGE_BYTES_MAX].decode(errors="ignore")
