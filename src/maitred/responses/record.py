"""What the store holds of one turn: nothing yet, its beginning, or all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from maitred.responses.asked import Asked
from maitred.store.rows import StoreError
from maitred.store.state_rows import Bounds, Finish, History, NewItem, NewResponse, StateConflict
from maitred.wire.responses.create import Create
from maitred.wire.responses.items import Item
from maitred.wire.responses.response import Response

NO_HISTORY = History("")


class Record:
    """The row of a response and its items. `begun` is the writing of its beginning, where there is one."""

    __slots__ = ("_asked", "_create", "_digest", "_left", "_response", "begun", "root_id")

    def __init__(self, asked: Asked, create: Create, response: Response) -> None:
        self._asked = asked
        self._create = create
        self._response = response
        self._digest = asked.digest if asked.idempotency_key else b""  # its body is let go of early
        self._left = False
        self.root_id = ""
        self.begun: asyncio.Future[History] | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is to be one, of which nothing is there yet."""
        return self._create.stored and self.begun is None

    def adopt(self) -> None:
        """Its beginning is there already, or comes otherwise."""
        self.begun = asyncio.get_running_loop().create_future()
        self.begun.set_result(NO_HISTORY)

    def begin(
        self, bounds: Bounds, opened: Callable[[], object], stop: Callable[[], object]
    ) -> asyncio.Future[History]:
        """Have the store know of it from now on. `opened` is called when it does, `stop` when it will not.

        `stop` is also what ends the turn when somebody else ends its response.
        """
        site = self._asked.site
        now_ms = site.now_ms()
        writing = self._asked.store.begin(self.new(now_ms), bounds, now_ms, now_ms + site.lease_ms)
        self.begun = asyncio.ensure_future(writing)

        def has_begun(begun: asyncio.Future[History]) -> None:
            if begun.cancelled() or begun.exception() is not None:
                stop()  # what cannot be kept is not worth the engine's time
            else:
                if not self._left:
                    site.running[self._response.id] = stop
                opened()

        self.begun.add_done_callback(has_begun)
        return self.begun

    def new(self, now_ms: int) -> NewResponse:
        """The response as the store is told of it first."""
        create, asked = self._create, self._asked
        return NewResponse(
            id=self._response.id,
            tenant=asked.tenant,
            model=create.said.model,
            snapshot=self._response.snapshot(),
            created_ms=now_ms,
            expires_ms=asked.expires_ms(now_ms),
            previous_id=create.said.previous_response_id,
            root_id=self.root_id,
            conversation_id=create.conversation_id,
            background=bool(create.said.background),
            idempotency_key=asked.idempotency_key or None,
            digest=self._digest,
        )

    async def write(self, inputs: Iterable[Item], outputs: Iterable[Item], reason: str | None = None) -> None:
        """Write the turn down as it ended. Raises StoreError; Lost, if it was not to be made any more."""
        asked, create, response = self._asked, self._create, self._response
        items = [NewItem(item.id, item.data) for item in inputs]
        items += [NewItem(item.id, item.data, output=True) for item in outputs]
        finish = Finish(
            tenant=asked.tenant,
            id=response.id,
            status=response.status,
            snapshot=response.snapshot(),
            items=items,
            reason=reason,
            conversation_id=create.conversation_id,
            background=bool(create.said.background),
        )
        if self.begun is None:
            await asked.store.keep(self.new(asked.site.now_ms()), finish)
        else:
            self.leave()
            await asked.store.finish(finish)

    def leave(self) -> None:
        """Nobody works on it here any more: if it is not written by now, its lease will lapse."""
        self._left = True
        self._asked.site.running.pop(self._response.id, None)

    async def forget(self) -> None:
        """Nobody has heard of it, so nothing of it stays."""
        begun, self.begun = self.begun, None
        if begun is None:
            return
        with suppress(StateConflict, StoreError):
            await begun
            self.leave()
            await self._asked.store.delete_response(self._asked.tenant, self._response.id)
