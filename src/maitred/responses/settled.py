"""What a client says as items, in the form in which it is kept."""

from __future__ import annotations

from maitred.responses.aside import ITEMS_MAX, aside
from maitred.responses.asked import Asked
from maitred.responses.errors import refusal_of
from maitred.responses.ids import mint
from maitred.store.state_rows import NotKept
from maitred.wire.responses.input import Input, settle
from maitred.wire.responses.items import Item


async def settled(asked: Asked, said: Input) -> list[Item]:
    """The items, those it names only by their ids among them. Raises Refusal, where there is no such one."""
    names, unseal = said.references, await asked.unsealing()
    large = len(said.items) > ITEMS_MAX
    if not names:
        return await aside(lambda: settle(said, mint, unseal=unseal), large=large)
    found = await asked.store.items(asked.tenant, names)
    if not found.keys() >= set(names):
        raise refusal_of(NotKept(), "input")
    known = {name: row.data for name, row in found.items()}
    return await aside(lambda: settle(said, mint, known, unseal), large=large)
