"""A program to be killed: it keeps turns without end, and says the id of each that it was told is kept.

`python -m tests.store.dying URL`. A line is `TENANT ID TURNS`, said only after the store said so.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from maitred.store.state import StateStore
from maitred.store.store import Store
from tests.store.place import ALL, LEASE, NOW, end, new, turn

TENANTS = 4


async def talk_on(state: StateStore, tenant: str, salt: str) -> None:
    """One chain, of which every other turn is there from its beginning."""
    previous: str | None = None
    turns = 0
    while True:
        history = await state.history(tenant, previous, ALL) if previous else None
        response = new(tenant, history, previous, id=f"resp_{salt}_{tenant}_{turns}")
        items = [
            type(item)(f"msg_{salt}_{tenant}_{turns}_{number}", item.data, item.output)
            for number, item in enumerate(turn(f"{turns}", "answer" * 50))
        ]
        if turns % 2:
            await state.begin(response, ALL, NOW, LEASE)
            await state.finish(end(response, items))
        else:
            await state.keep(response, end(response, items))
        turns += 1
        previous = response.id
        sys.stdout.write(f"{tenant} {response.id} {turns}\n")
        sys.stdout.flush()


async def main(url: str, salt: str) -> None:
    store = Store.open(url)
    state = StateStore(store)
    await state.start()
    await asyncio.gather(*(talk_on(state, f"t{number}", salt) for number in range(TENANTS)))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
