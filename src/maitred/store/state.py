"""What is remembered of conversations, for a loop: each call is one operation in a thread.

What writes is one transaction, on a PostgreSQL unless at most one of its statements does: others may read
before and after it. What only reads is none.
Raises StoreError within CALL_S where the database cannot be used, and a StateConflict where what it holds is
in the way. Who stops waiting does not stop the operation.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from maitred.store import connections, conversations, history, jobs, secret, stats, sweep, turns
from maitred.store.lane import CALL_S, Work
from maitred.store.rows import StoreError
from maitred.store.state_rows import (
    Bounds,
    ConversationRow,
    EventRow,
    Finish,
    History,
    ItemRow,
    JobRow,
    Listed,
    NewItem,
    NewJob,
    NewResponse,
    Page,
    ResponseRow,
    TableStats,
)
from maitred.store.store import Store
from maitred.wire.seal import Seal

T = TypeVar("T")

STATS_S = 600.0
"""For reading all there is; the statements have their own bound."""
FRESH_S = 1.0
"""For so long what worked is taken to work."""


def _unobserved(_operation: str, _seconds: float) -> None:
    """Tell nobody."""


class StateStore:
    """The conversations of one database. `start`, then `close`.

    `observed` is told of each operation by its name, and of the seconds that it took with its waiting.
    """

    def __init__(self, store: Store, observed: Callable[[str, float], None] = _unobserved) -> None:
        self._store = store
        self._observed = observed
        self._maker = secrets.token_hex(16)
        self._lanes = connections.lanes(store.place, "store", store.place.connections, by_index=True)
        self._worked_at = -math.inf
        self._unwritten = False
        self._served: dict[str, str] = {}
        self._seal: Seal | None = None

    async def start(self) -> None:
        """See that the tables are there. Raises StoreError, SchemaError."""
        await self._store.prepare()

    async def close(self) -> None:
        """Do what waits, and let go of the connections."""
        await self._lanes.close()

    async def check(self) -> None:
        """See that the database answers; that it did a moment ago will do where no connection has ended.

        After a write that failed only another will do: what can be read may be full or locked all the same.
        """
        if self._unwritten:
            await self._write("check", secret.prove)
            self._unwritten = False
        fresh = time.monotonic() - self._worked_at < FRESH_S
        if not fresh or not self._lanes.usable:
            await self._read("check", turns.check)

    async def seal(self) -> Seal:
        """By what texts are sealed that clients keep: the same for all gateways of this database."""
        if self._seal is None:
            self._seal = Seal(await self._write("secret", secret.secret))
        return self._seal

    # -- responses --------------------------------------------------------------------------------

    async def history(self, tenant: str, previous_id: str, bounds: Bounds) -> History:
        """What was said up to this response.

        Raises NotKept, ChainBroken, StillRunning, NotChainable, TooLong.
        """
        return await self._read("history", lambda c: history.of_chain(c, tenant, previous_id, bounds))

    async def conversation_history(self, tenant: str, id_: str, bounds: Bounds) -> History:
        """What was said in a conversation. Raises NotKept, TooLong."""
        return await self._read("history", lambda c: history.of_conversation(c, tenant, id_, bounds))

    async def response(self, tenant: str, id_: str) -> ResponseRow:
        """This response. Raises NotKept."""
        return await self._read("response", lambda c: turns.response(c, tenant, id_))

    async def repeated(self, tenant: str, key: str) -> ResponseRow | None:
        """The response that was asked for with this idempotency key."""
        return await self._read("repeated", lambda c: turns.repeated(c, tenant, key))

    async def response_items(self, tenant: str, id_: str, page: Page, output: bool | None = None) -> Listed:
        """A response's own items: what it was told, what it said (`output`), or both. Raises NotKept."""
        return await self._read("list", lambda c: turns.response_items(c, tenant, id_, page, output))

    async def keep(self, new: NewResponse, end: Finish) -> None:
        """Keep a response that is over, and of no conversation. Raises Repeated."""
        await self._write("keep", lambda c: turns.keep(c, new, end), single=True)

    def begin(
        self, new: NewResponse, bounds: Bounds, now_ms: int, lease_ms: int
    ) -> Coroutine[Any, Any, History]:
        """Keep a response that is being made, and take its turn in its conversation, at once.

        What was said there is returned. It counts as lost at `lease_ms` unless it was renewed. Of what is
        not over, a loss of power may leave nothing.
        Raises Repeated, NotKept, Locked, TooLong.
        """
        return self._write(
            "begin",
            lambda c: turns.begin(c, self._maker, new, bounds, now_ms, lease_ms),
            durable=False,
            single=new.conversation_id is None,
        )

    async def renew(self, ids: Sequence[str], lease_ms: int) -> set[str]:
        """Say that the makers of these responses live; which of them are still theirs."""
        return await self._write(
            "renew", lambda c: turns.renew(c, self._maker, ids, lease_ms), durable=False, single=True
        )

    async def finish(self, end: Finish) -> None:
        """A response that was begun is over. Raises Lost."""
        await self._write("finish", lambda c: turns.finish(c, self._maker, end), single=end.by_itself)

    async def delete_response(self, tenant: str, id_: str) -> None:
        """Delete a response, also while it is being made. Raises NotKept."""
        await self._write("delete", lambda c: turns.remove(c, tenant, id_))

    # -- the background ----------------------------------------------------------------------------

    async def submit(self, new: NewResponse, job: NewJob, now_ms: int) -> None:
        """Queue a response, which takes its conversation's turn. Raises Repeated, NotKept, Locked."""
        await self._write("submit", lambda c: jobs.submit(c, new, job, now_ms))

    async def take(
        self, band: str, limit: int, now_ms: int, lease_ms: int, passing: Sequence[str] = ()
    ) -> list[JobRow]:
        """Take the next jobs of this band, tenants in turn but for those passed by.

        Each is to be renewed, and finished.
        """
        after = self._served.get(band, "")
        taken = await self._write(
            "take", lambda c: jobs.take(c, self._maker, band, limit, now_ms, lease_ms, passing, after)
        )
        if taken:
            self._served[band] = taken[-1].response.tenant
        return taken

    async def waiting(self) -> Counter[str]:
        """How many jobs wait, by tenant, for whichever gateway."""
        return await self._read("waiting", jobs.waiting)

    async def cancel(self, tenant: str, id_: str) -> ResponseRow:
        """End a response of the background; one that has ended comes back as it is. Raises NotKept."""
        return await self._write("cancel", lambda c: jobs.cancel(c, tenant, id_))

    async def append_events(self, tenant: str, id_: str, chunk: EventRow, now_ms: int) -> None:
        """Keep what a response of the background streamed. Raises Lost where it is over."""
        await self._write("append", lambda c: jobs.append_events(c, self._maker, tenant, id_, chunk, now_ms))

    async def events(self, tenant: str, id_: str, after: int) -> tuple[ResponseRow, list[EventRow]]:
        """What a response streamed after the event of this number, some chunks at a time. Raises NotKept."""
        return await self._read("events", lambda c: jobs.streamed(c, tenant, id_, after))

    # -- conversations ----------------------------------------------------------------------------

    async def create_conversation(self, new: ConversationRow, items: Sequence[NewItem]) -> None:
        """A new conversation, with its first items."""
        await self._write("create", lambda c: conversations.create(c, new, items))

    async def conversation(self, tenant: str, id_: str) -> ConversationRow:
        """This conversation. Raises NotKept, as all of these do."""
        return await self._read("conversation", lambda c: conversations.conversation(c, tenant, id_))

    async def update_conversation(self, tenant: str, id_: str, metadata: bytes) -> ConversationRow:
        """Replace a conversation's metadata."""
        return await self._write("update", lambda c: conversations.set_metadata(c, tenant, id_, metadata))

    async def delete_conversation(self, tenant: str, id_: str) -> None:
        """Delete a conversation; what is of a response, too, remains there."""
        await self._write("delete", lambda c: conversations.remove(c, tenant, id_))

    async def conversation_items(self, tenant: str, id_: str, page: Page) -> Listed:
        """A page of a conversation's items."""
        return await self._read("list", lambda c: conversations.listed(c, tenant, id_, page))

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> ItemRow:
        """One item of a conversation."""
        return await self._read("item", lambda c: conversations.item(c, tenant, conversation_id, item_id))

    async def items(self, tenant: str, ids: Iterable[str]) -> dict[str, ItemRow]:
        """Items by their ids, wherever they are; what is not kept is left out."""
        return await self._read("item", lambda c: conversations.items_of(c, tenant, ids))

    async def add_items(
        self, tenant: str, conversation_id: str, new: Sequence[NewItem], now_ms: int, expires_ms: int | None
    ) -> list[ItemRow]:
        """Add items to a conversation, which lives until `expires_ms` at least. Raises Locked."""
        return await self._write(
            "add", lambda c: conversations.add_items(c, tenant, conversation_id, new, now_ms, expires_ms)
        )

    async def delete_item(
        self, tenant: str, conversation_id: str, item_id: str, now_ms: int
    ) -> ConversationRow:
        """Delete an item of a conversation. Raises Locked."""
        return await self._write(
            "delete", lambda c: conversations.remove_item(c, tenant, conversation_id, item_id, now_ms)
        )

    # -- looking after it ---------------------------------------------------------------------------

    async def sweep(self, now_ms: int, events_ttl_ms: int) -> bool:
        """Do a part of what time makes due; whether there may be more."""
        return await self._write("sweep", lambda c: sweep.sweep(c, now_ms, events_ttl_ms))

    async def stats(self) -> list[TableStats]:
        """What each tenant has in each table."""
        return await self._read("stats", stats.stats, STATS_S)

    # -- parts ------------------------------------------------------------------------------------

    def _read(self, operation: str, work: Work[T], within_s: float = CALL_S) -> Coroutine[Any, Any, T]:
        return self._done(operation, time.monotonic(), self._lanes.read(work, within_s))

    def _write(
        self, operation: str, work: Work[T], *, durable: bool = True, single: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Have it begin now, to be awaited at once or later, as all of these do."""
        doing = self._lanes.write(work, durable=durable, single=single)
        return self._done(operation, time.monotonic(), doing, writes=True)

    async def _done(
        self, operation: str, began: float, doing: Coroutine[Any, Any, T], *, writes: bool = False
    ) -> T:
        try:
            done = await doing
        except StoreError:
            self._worked_at = -math.inf
            self._unwritten |= writes
            raise
        finally:
            self._observed(operation, time.monotonic() - began)
        self._worked_at = time.monotonic()
        return done
