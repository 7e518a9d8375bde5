"""What a repeat is answered that has the idempotency key of an earlier turn: the same response again."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.asked import Asked
from maitred.responses.back import whole
from maitred.store.state_rows import UNFINISHED, ResponseRow
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import DONE, Events

STREAM_LINES = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache, no-transform\r\n"


def see_same(asked: Asked, row: ResponseRow) -> None:
    """Raise Refusal, where the earlier turn was another."""
    if row.digest != asked.digest:
        raise Refusal(Outcome.KEY_REUSED, "this idempotency key came with another body before")


async def repeat(asked: Asked, create: Create, row: ResponseRow) -> Outcome:
    """Answer it. Raises Refusal, where the earlier turn was another or is not over."""
    see_same(asked, row)
    if row.status in UNFINISHED and not row.background:
        raise Refusal(Outcome.RESPONSE_RUNNING, "the first request with this idempotency key still runs")
    response = await whole(asked, row)
    if create.said.stream:
        events = Events()
        told = events.response("created", response) + events.response(row.status, response) + DONE
        asked.exchange.respond(200, STREAM_LINES, told)
    else:
        asked.respond(response.encode())
    return Outcome.COMPLETED
