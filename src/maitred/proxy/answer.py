"""How an engine's answer is translated at the head: statuses to failures, headers to the client's."""

from __future__ import annotations

import time

from msgspec import Struct, structs

from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Failure, Leg, Request, Ticket, Usage
from maitred.net.client import AnswerHead
from maitred.wire import errors, ratelimits

DROPPED = frozenset(
    # hop-by-hop (RFC 9110 7.6.1) and what our own framing replaces
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade "
    b"content-length "
    # ours to say, not an engine's
    b"set-cookie server x-request-id request-id x-should-retry x-maitred-outcome "
    b"access-control-allow-origin access-control-allow-methods "
    b"access-control-allow-headers access-control-allow-credentials access-control-expose-headers "
    b"access-control-max-age".split()
).union(ratelimits.NAMES)
DROPPED_OF_STREAMS = DROPPED | {b"cache-control", b"x-accel-buffering"}
STREAM_LINES = b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
REFUSAL_LINES = b"x-should-retry: false\r\n"
"""An engine's refusal would be the same again; without this word clients repeat every 5xx."""
JSON = (b"content-type", b"application/json")
OVERLOADED = 529
"""What 429 is in Anthropic's API, where what is behind us is a gateway itself."""
NAMES_NOTHING = (b"close", b"keep-alive")


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


def failure_of_head(head: AnswerHead, request: Request) -> Failure | None:
    """The failure a head means; None for 200 and for a refusal of the request itself (4xx, 501)."""
    status = head.status
    if status == 200:
        if request.stream and not is_event_stream(head):
            return Failure(FailureKind.BAD_RESPONSE, status, detail="the engine answered without a stream")
        return None
    if status in {429, OVERLOADED}:
        return Failure(FailureKind.STATUS_429, status, _retry_after_s(head), f"the engine answered {status}")
    if status == 501:  # the engine cannot do this at all, and neither can another of its kind
        return None
    if status >= 500:
        return Failure(FailureKind.STATUS_5XX, status, None, f"the engine answered {status}")
    if status < 400:
        return Failure(FailureKind.BAD_RESPONSE, status, None, f"the engine answered {status}")
    return None


def in_clients_shape(head: AnswerHead, body: bytes, request: Request) -> tuple[AnswerHead, bytes]:
    """A whole refusal by the engine as the client's library reads it; what is packed stays as it is."""
    if any(name == b"content-encoding" for name, _ in head.headers):
        return head, body
    shaped = errors.of_engine(head.status, body, request.api, request.id)
    if shaped is body:
        return head, body
    # What the engine said of its own bytes is true of them alone.
    kept = [line for line in head.headers if not line[0].startswith(b"content-") and line[0] != b"etag"]
    return structs.replace(head, headers=[*kept, JSON]), shaped


def refusal_of(failed: UpstreamFailed) -> Refusal:
    """What a client is told of a failure that no other seat could mend."""
    failure = failed.failure
    message = f"the engine failed: {failure.detail or failure.kind.label}"
    return Refusal(failure.kind.outcome, message, retry_after_s=failure.retry_after_s)


def is_event_stream(head: AnswerHead) -> bool:
    """Whether the answer says it is server-sent events."""
    return any(n == b"content-type" and v.lower().startswith(b"text/event-stream") for n, v in head.headers)


def answer_lines(head: AnswerHead, ticket: Ticket, now: float, *, streamed: bool) -> bytes:
    """The engine's headers as lines for the client, with our request id and what is left of limits."""
    request = ticket.request
    if (lines := head.lines) is None or streamed:
        lines = _passed(head, streamed=streamed)
        head.lines = None if streamed else lines
    if ticket.hold is not None and (levels := ticket.hold.levels(now)) is not None:
        lines += ratelimits.lines(levels, request.api, time.time())
    return lines + errors.id_lines(request.api, request.id)


def _passed(head: AnswerHead, *, streamed: bool) -> bytes:
    """What of the engine's headers goes on, and what we say of any such answer."""
    hidden = DROPPED_OF_STREAMS if streamed else DROPPED
    lines = STREAM_LINES if streamed else b"" if head.status == 200 else REFUSAL_LINES
    for name, value in head.headers:
        if name == b"connection" and value.lower() not in NAMES_NOTHING:
            hidden = hidden | {named.strip().lower() for named in value.split(b",")}
    return lines + b"".join([b"%b: %b\r\n" % header for header in head.headers if header[0] not in hidden])


def _retry_after_s(head: AnswerHead) -> float | None:
    for name, value in head.headers:
        if name == b"retry-after" and value.isdigit():
            return float(value)
    return None
