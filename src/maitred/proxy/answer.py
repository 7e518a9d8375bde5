"""How an engine's answer is translated at the head: statuses to failures, headers to the client's."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from msgspec import structs

from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Failure, Leg, Request, Ticket, Usage
from maitred.door.house import House
from maitred.door.read import Order
from maitred.net.client import AnswerHead
from maitred.wire import errors, ratelimits, receipts

DROPPED = frozenset(
    # hop-by-hop (RFC 9110 7.6.1) and what our own framing replaces
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade "
    b"content-length "
    # ours to say, not an engine's
    b"set-cookie server x-request-id request-id x-should-retry x-maitred-outcome "
    b"x-maitred-receipt "
    b"access-control-allow-origin access-control-allow-methods "
    b"access-control-allow-headers access-control-allow-credentials access-control-expose-headers "
    b"access-control-max-age".split()
)
HIDDEN = (DROPPED, DROPPED | {b"cache-control", b"x-accel-buffering"})
HIDDEN_OF_LIMITED = tuple(names | ratelimits.NAMES for names in HIDDEN)
"""What does not pass of a whole answer's head, and of a stream's; and where there are limits to tell."""
STREAM_LINES = b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
REFUSAL_LINES = b"x-should-retry: false\r\n"
"""An engine's refusal would be the same again; without this word clients repeat every 5xx."""
JSON = (b"content-type", b"application/json")
OVERLOADED = 529
"""What 429 is in Anthropic's API, where what is behind us is a gateway itself."""
NAMES_NOTHING = (b"close", b"keep-alive")


Answered = tuple[Outcome, Usage | None]
"""How a leg's answer ended that reached the client whole, and what it used."""


class UpstreamFailed(Exception):  # noqa: N818 - names what happened
    """A leg failed. `usage` is what the client got of it before, `head` the engine's answer if one came."""

    def __init__(
        self, leg: Leg, failure: Failure, usage: Usage | None = None, head: AnswerHead | None = None
    ) -> None:
        super().__init__(f"{failure.kind.label}: {failure.detail}")
        self.leg = leg
        self.failure = failure
        self.usage = usage
        self.head = head


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
        return Failure(FailureKind.STATUS_5XX, status, _retry_after_s(head), f"the engine answered {status}")
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
    return structs.replace(head, headers=[*kept, JSON], lines={}), shaped


def refusal_of(failed: UpstreamFailed) -> Refusal:
    """What a client is told of a failure that no other seat could mend."""
    failure, head = failed.failure, failed.head
    message = f"the engine failed: {failure.detail or failure.kind.label}"
    told: list[tuple[str, str]] = []
    if head is not None and failure.kind is FailureKind.STATUS_429:
        told = [(n.decode(), v.decode("latin-1")) for n, v in head.headers if n in ratelimits.NAMES]
    return Refusal(failure.kind.outcome, message, retry_after_s=failure.retry_after_s, headers=tuple(told))


def limit_refusal(refusal: Refusal, ticket: Ticket, now: float) -> None:
    """Have a refusal tell what its client has left here, in place of what an engine says of its limits."""
    if ticket.hold is not None and (levels := ticket.hold.levels(now)) is not None:
        refusal.levels = levels
        refusal.headers = tuple(line for line in refusal.headers if line[0].encode() not in ratelimits.NAMES)


def is_event_stream(head: AnswerHead) -> bool:
    """Whether the answer says it is server-sent events."""
    if head.is_events is None:
        head.is_events = any(
            name == b"content-type" and value.lower().startswith(b"text/event-stream")
            for name, value in head.headers
        )
    return head.is_events


def answer_lines(head: AnswerHead, order: Order, leg: Leg, house: House, *, streamed: bool = False) -> bytes:
    """The engine's headers as lines for the client, with our request id and what else it is to be told.

    That is what is left of its limits, and the receipt where it asked for one.
    """
    request, hold, told = order.request, leg.ticket.hold, None
    api = request.api
    if hold is not None:
        told = ratelimits.told(hold.holders, api, house.clock(), time.time)
    hidden = (HIDDEN if told is None else HIDDEN_OF_LIMITED)[streamed]
    lines = head.lines.get(hidden)
    if lines is None:
        lines = head.lines[hidden] = _passed(head, hidden, streamed=streamed)
    if told is not None:
        lines += told
    lines += errors.id_lines(api, request.id) if api.anthropic else order.id_line
    if order.shows_receipt and leg.receipt is not None:
        lines += receipts.line(leg.receipt)
    return lines


def _passed(head: AnswerHead, hidden: frozenset[bytes], *, streamed: bool) -> bytes:
    """What of the engine's headers goes on, and what we say of any such answer."""
    lines = STREAM_LINES if streamed else b"" if head.status == 200 else REFUSAL_LINES
    for name, value in head.headers:
        if name == b"connection" and value.lower() not in NAMES_NOTHING:
            hidden = hidden | {named.strip().lower() for named in value.split(b",")}
    return lines + b"".join([b"%b: %b\r\n" % header for header in head.headers if header[0] not in hidden])


def _retry_after_s(head: AnswerHead) -> float | None:
    """What the engine asks for: seconds, or an instant by its clock."""
    said = next((value for name, value in head.headers if name == b"retry-after"), b"")
    if said.isdigit():
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said.decode("latin-1")).timestamp() - time.time())
    except ValueError:
        return None
