"""Reading back what is kept: a response with its output, and pages of items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.asked import Asked
from maitred.store.state_rows import EXPIRED, FAILED, Listed, NotKept, Page, ResponseRow
from maitred.wire.responses import lists, response
from maitred.wire.responses.items import Item
from maitred.wire.responses.response import Response, Status

ITEMS_AT_ONCE = 10_000
WAITED = "it waited too long to be made"
ITS_MAKER_DIED = "the gateway that made it went away"


async def tell_page(asked: Asked, read: Callable[[Page], Awaitable[Listed]]) -> None:
    """Answer with the page of a list that is asked for. Raises Refusal, NotKept."""
    said = lists.query(asked.query)
    try:
        found = await read(Page(said.limit, said.order == "desc", said.after))
    except NotKept as unknown:
        if said.after is not None and unknown.args == (said.after,):
            raise Refusal(Outcome.BAD_REQUEST, "the list has no item of this id", param="after") from None
        raise
    asked.respond(lists.page([Item(row.id, row.data) for row in found.items], has_more=found.more))


async def whole(asked: Asked, row: ResponseRow) -> Response:
    """A response with its output; its status is the row's."""
    page = Page(ITEMS_AT_ONCE, descending=False)
    found = await asked.store.response_items(asked.tenant, row.id, page, output=True)
    restored = response.restore(row.snapshot, [item.data for item in found.items])
    if row.status == FAILED and restored.error is None:  # nobody was there to say so
        restored.fail(Outcome.FAILED_INTERNAL, WAITED if row.reason == EXPIRED else ITS_MAKER_DIED)
    restored.status = cast("Status", row.status)
    return restored
