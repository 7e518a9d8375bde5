"""Reading responses back: get, delete, cancel, and the items they were made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.asked import Asked
from maitred.store.state_rows import Listed, NotKept, Page, ResponseRow
from maitred.wire.responses import lists, response
from maitred.wire.responses.items import Item
from maitred.wire.responses.response import Response, Status

ITEMS_AT_ONCE = 1000


async def retrieve(asked: Asked) -> Outcome:
    """Answer GET of a response."""
    row = await asked.store.response(asked.tenant, asked.ids[0])
    asked.respond((await whole(asked, row)).encode())
    return Outcome.COMPLETED


async def delete(asked: Asked) -> Outcome:
    """Forget a response, and stop it if it runs."""
    await asked.store.delete_response(asked.tenant, asked.ids[0])
    asked.site.stop(asked.ids[0])
    asked.respond(response.deleted(asked.ids[0]))
    return Outcome.COMPLETED


async def input_items(asked: Asked) -> Outcome:
    """List what a response was made from, what came before its turn left out."""
    store, tenant, id_ = asked.store, asked.tenant, asked.ids[0]
    await tell_page(asked, lambda page: store.response_items(tenant, id_, page, output=False))
    return Outcome.COMPLETED


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
    restored.status = cast("Status", row.status)
    return restored
