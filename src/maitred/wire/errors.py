"""How a refusal or a failure reads on the wire, in the shape the client's own library understands."""

from __future__ import annotations

from msgspec.json import encode

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api

MESSAGE_BYTES_MAX = 1024


def body(refusal: Refusal, api: Api | None) -> bytes:  # noqa: ARG001 - every API of today has one shape
    """Return the body of an error answer. `api`: what the client speaks, None if unknown."""
    return _error(refusal.outcome, refusal.message, refusal.param)


def event(outcome: Outcome, message: str) -> bytes:
    """Return the server-sent event that ends a stream which cannot be completed."""
    return b"data: " + _error(outcome, message, None) + b"\n\n"


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


def _error(outcome: Outcome, message: str, param: str | None) -> bytes:
    bounded = message.encode(errors="replace")[:MESSAGE_BYTES_MAX].decode(errors="ignore")
    return encode({"error": {"message": bounded, "type": outcome.kind, "param": param, "code": outcome.code}})
