"""Responses that are kept: asked for again, cancelled and deleted, and the items they were made from."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.asked import Asked
from maitred.responses.back import tell_page, whole
from maitred.responses.follow import follow
from maitred.wire.responses import lists, response


async def retrieve(asked: Asked) -> Outcome:
    """Answer with a response, or with the stream of its events."""
    said = lists.resume(asked.query)
    row = await asked.store.response(asked.tenant, asked.ids[0])
    if said.stream:
        _see_background(row.background, "be streamed again")
        after = -1 if said.starting_after is None else said.starting_after
        return await follow(asked, row.id, after)
    asked.respond((await whole(asked, row)).encode())
    return Outcome.COMPLETED


async def delete(asked: Asked) -> Outcome:
    """Forget a response, and stop it if it is being made."""
    await asked.store.delete_response(asked.tenant, asked.ids[0])
    asked.site.stop(asked.ids[0])
    asked.respond(response.deleted(asked.ids[0]))
    return Outcome.COMPLETED


async def cancel(asked: Asked) -> Outcome:
    """Stop a response of the background; one that has ended stays as it is."""
    row = await asked.store.response(asked.tenant, asked.ids[0])
    _see_background(row.background, "be cancelled")
    row = await asked.store.cancel(asked.tenant, row.id)
    asked.site.stop(row.id)
    asked.respond((await whole(asked, row)).encode())
    return Outcome.COMPLETED


async def input_items(asked: Asked) -> Outcome:
    """List what a response was made from, what came before its turn left out."""
    store, tenant, id_ = asked.store, asked.tenant, asked.ids[0]
    await tell_page(asked, lambda page: store.response_items(tenant, id_, page, output=False))
    return Outcome.COMPLETED


def _see_background(background: bool, wish: str) -> None:
    if not background:
        raise Refusal(Outcome.BAD_REQUEST, f"only a response that was made in the background can {wish}")
