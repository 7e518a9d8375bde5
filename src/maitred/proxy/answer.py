"""How an engine's answer is translated at the head: statuses to failures, headers to the client's."""

from __future__ import annotations

from msgspec import Struct

from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Failure, Leg, Usage
from maitred.net.client import AnswerHead

# Hop-by-hop (RFC 9110 7.6.1), what our own framing replaces, and what is ours to say and not an engine's.
DROPPED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade "
    b"content-length set-cookie server x-request-id".split()
)
STREAM_HEADERS = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))


class Answered(Struct, frozen=True):
    """A leg's answer reached the client whole."""

    outcome: Outcome
    usage: Usage | None


class UpstreamFailed(Exception):  # noqa: N818 - names what happened
    """A leg failed. `usage` is what the client got of it before."""

    def __init__(self, leg: Leg, failure: Failure, usage: Usage | None = None) -> None:
        super().__init__(f"{failure.kind.label}: {failure.detail}")
        self.leg = leg
        self.failure = failure
        self.usage = usage


def failure_of_status(head: AnswerHead) -> Failure | None:
    """The failure a status means; None for 200 and for a refusal of the request itself (4xx)."""
    status = head.status
    if status == 429:
        return Failure(FailureKind.STATUS_429, status, _retry_after_s(head), "the engine answered 429")
    if status >= 500:
        return Failure(FailureKind.STATUS_5XX, status, None, f"the engine answered {status}")
    if status != 200 and status < 400:
        return Failure(FailureKind.BAD_RESPONSE, status, None, f"the engine answered {status}")
    return None


def refusal_of(failed: UpstreamFailed) -> Refusal:
    """What a client is told of a failure that no other seat could mend."""
    failure = failed.failure
    message = f"the engine failed: {failure.detail or failure.kind.label}"
    return Refusal(failure.kind.outcome, message, retry_after_s=failure.retry_after_s)


def is_event_stream(head: AnswerHead) -> bool:
    """Whether the answer says it is server-sent events."""
    return any(n == b"content-type" and v.lower().startswith(b"text/event-stream") for n, v in head.headers)


def answer_headers(head: AnswerHead, request_id: str, *, streamed: bool) -> list[tuple[bytes, bytes]]:
    """The engine's headers as the client gets them, with our request id."""
    named = {v.strip().lower() for n, vs in head.headers if n == b"connection" for v in vs.split(b",")}
    headers = [
        (name, value)
        for name, value in head.headers
        if name not in DROPPED
        and name not in named
        and not name.startswith(b"access-control-")
        and not (streamed and name in (b"cache-control", b"x-accel-buffering"))
    ]
    headers.append((b"x-request-id", request_id.encode()))
    if streamed:
        headers += STREAM_HEADERS
    return headers


def _retry_after_s(head: AnswerHead) -> float | None:
    for name, value in head.headers:
        if name == b"retry-after" and value.isdigit():
            return float(value)
    return None
