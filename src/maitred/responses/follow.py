"""The events of a background response, told to whoever asks: those that are there, then others as they come.

A stream can be left and resumed, at any gateway: all but its last event are in the store, and the last is
made from the response as it is kept, so nobody is told an end that is none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from maitred.core.outcome import Outcome
from maitred.responses.asked import Asked
from maitred.responses.back import whole
from maitred.responses.job import told_at_once, waiting
from maitred.responses.repeat import STREAM_LINES
from maitred.store.state_rows import CANCELLED, UNFINISHED, NotKept, ResponseRow
from maitred.wire import errors
from maitred.wire.responses.events import DONE, Events
from maitred.wire.responses.events import after as events_after

FIRST_KEPT = 1
"""Where events are kept, at least those up to this number are."""
LOOK_S = 0.5
"""How often it is looked for events of a response that another gateway makes."""


async def follow(asked: Asked, response_id: str, starting_after: int, began: bytes = b"") -> Outcome:
    """Answer with the events after this number; `began` are those before it, where they were not told yet."""
    exchange, site, last = asked.exchange, asked.site, max(starting_after - 1, -1)
    exchange.watch(asked.task.cancel)
    exchange.flow = pace = Pace()
    exchange.start(200, STREAM_LINES + errors.id_lines(None, asked.request_id), None, began)
    with site.news.of(response_id) as news:
        while True:
            news.clear()
            try:
                row, chunks = await asked.store.events(asked.tenant, response_id, last)
            except NotKept:
                return _break_off(asked, last, "the response was deleted")
            for chunk in chunks:
                if chunk.first > last + 1:
                    return _break_off(asked, last, "the events that come next are kept no longer")
                await pace.may_go_on.wait()
                exchange.write(events_after(chunk.data, starting_after))
                last = chunk.last
            if chunks:
                continue
            if row.status not in UNFINISHED:
                break
            if not asked.service.house.gateway.settings.accepting:
                exchange.abort()  # we end: the rest is to be had at another gateway
                return Outcome.DRAINING
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), LOOK_S)
    exchange.end(await _end(asked, row, starting_after, last) + DONE)
    return Outcome.COMPLETED


def _break_off(asked: Asked, last: int, message: str) -> Outcome:
    asked.exchange.end(Events(last + 1).error(Outcome.NOT_FOUND.code, message) + DONE)
    return Outcome.NOT_FOUND


async def _end(asked: Asked, row: ResponseRow, starting_after: int, last: int) -> bytes:
    """What is to be told of a response that has ended; its last event that is kept has the number `last`."""
    told, numbers = b"", Events(last + 1)
    if last < FIRST_KEPT:  # nobody began to make it
        numbers = Events()
        told = events_after(told_at_once(waiting(row.snapshot), numbers), starting_after)
    elif last < starting_after and not (await asked.store.events(asked.tenant, row.id, -1))[1]:
        numbers = Events(starting_after + 1)  # they are kept no longer, but all that they said is
    if numbers.sequence > starting_after:
        kind = "failed" if row.status == CANCELLED else row.status
        told += numbers.response(kind, await whole(asked, row))
    return told


class Pace:
    """Flow of a client: whether it takes what it is given."""

    __slots__ = ("may_go_on",)

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    def pause(self) -> None:
        """See Flow."""
        self.may_go_on.clear()

    def resume(self) -> None:
        """See Flow."""
        self.may_go_on.set()

    def drop(self) -> None:
        """See Flow: who follows is told otherwise."""
