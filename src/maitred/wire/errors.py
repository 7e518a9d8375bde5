"""How a refusal or a failure reads on the wire, in the shape the client's own library understands.

Clients of Anthropic's API get its shape, all others OpenAI's; so do those whose API is not known (None).
"""

from __future__ import annotations

from msgspec.json import encode

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api

MESSAGE_BYTES_MAX = 1024


def status(refusal: Refusal, api: Api | None) -> int:
    """Return the status of an error answer."""
    outcome = refusal.outcome
    return outcome.anthropic_status if _is_anthropic(api) else outcome.status


def body(refusal: Refusal, api: Api | None, request_id: str) -> bytes:
    """Return the body of an error answer."""
    return _error(refusal.outcome, refusal.message, refusal.param, api, request_id)


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
    if _is_anthropic(api):
        return b"x-request-id: %b\r\nrequest-id: %b\r\n" % (value, value)
    return b"x-request-id: %b\r\n" % value


def _is_anthropic(api: Api | None) -> bool:
    return api is not None and api.anthropic


def _error(outcome: Outcome, message: str, param: str | None, api: Api | None, request_id: str) -> bytes:
    bounded = message.encode(errors="replace")[:MESSAGE_BYTES_MAX].decode(errors="ignore")
    if _is_anthropic(api):
        error = {"type": outcome.anthropic_kind, "message": bounded}
        return encode({"type": "error", "error": error, "request_id": request_id})
    return encode({"error": {"message": bounded, "type": outcome.kind, "param": param, "code": outcome.code}})
