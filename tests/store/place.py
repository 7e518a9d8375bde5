"""What tests of conversations share: a store with its tables, and things to keep in it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, ParamSpec, TypeVar

import uvloop

from maitred.store.state import StateStore
from maitred.store.state_rows import (
    COMPLETED,
    Bounds,
    ConversationRow,
    Finish,
    History,
    ItemRow,
    NewItem,
    NewResponse,
)
from maitred.store.store import Store

P = ParamSpec("P")
R = TypeVar("R")
NOW = 1_800_000_000_000
DAY = 86_400_000
LEASE = NOW + 30_000
ALL = Bounds(10_000, 1 << 26)
_numbers = count(1)


def on_loop(test: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Run a coroutine test on the loop that gateways run on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return uvloop.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def remembering(url: str, statement_s: float | None = None) -> AsyncIterator[StateStore]:
    """The conversations of this database, whose tables are made."""
    store = Store.open(url, statement_s=statement_s)
    await store.upgrade()
    state = StateStore(store)
    await state.start()
    try:
        yield state
    finally:
        await state.close()
        await store.close()


def new_id(kind: str) -> str:
    return f"{kind}_{next(_numbers):048x}"


def said(text: str, *, output: bool = False) -> NewItem:
    return NewItem(new_id("msg"), f'{{"text":"{text}"}}'.encode(), output)


def turn(question: str, answer: str) -> list[NewItem]:
    return [said(question), said(answer, output=True)]


def texts(items: Sequence[ItemRow | NewItem]) -> list[str]:
    return [item.data.decode().removeprefix('{"text":"').removesuffix('"}') for item in items]


def new(
    tenant: str = "a", after: History | None = None, previous_id: str | None = None, **more: Any
) -> NewResponse:
    values: dict[str, Any] = {
        "id": new_id("resp"),
        "tenant": tenant,
        "model": "m",
        "snapshot": b'{"n":1}',
        "created_ms": NOW,
        "expires_ms": NOW + 30 * DAY,
        "previous_id": previous_id,
        "root_id": after.root_id if after else "",
    }
    return NewResponse(**(values | more))


def end(of: NewResponse, items: Sequence[NewItem] = (), status: str = COMPLETED, **more: Any) -> Finish:
    values = {"conversation_id": of.conversation_id, "background": of.background, **more}
    return Finish(of.tenant, of.id, status, b'{"n":2}', items, **values)


async def kept(state: StateStore, question: str = "q", answer: str = "a", **more: Any) -> NewResponse:
    """A turn that is over, after `previous_id` if one is named."""
    previous_id = more.get("previous_id")
    after = await state.history(more.get("tenant", "a"), previous_id, ALL) if previous_id else None
    response = new(after=after, **more)
    await state.keep(response, end(response, turn(question, answer)))
    return response


async def talk(state: StateStore, tenant: str = "a", items: Sequence[NewItem] = ()) -> str:
    """A new conversation; its id."""
    row = ConversationRow(new_id("conv"), tenant, b"{}", NOW, NOW + 30 * DAY)
    await state.create_conversation(row, items)
    return row.id


async def spoken(state: StateStore, conversation_id: str, question: str, answer: str) -> NewResponse:
    """A turn of a conversation, from its beginning to its end."""
    response = new(conversation_id=conversation_id)
    await state.begin(response, ALL, NOW, LEASE)
    await state.finish(end(response, turn(question, answer)))
    return response
