"""Who follows a background response is told it as fast as he listens, and no faster."""

from __future__ import annotations

import asyncio

from maitred.net.memory import HIGH_WATER_BYTES
from tests.proxy.upstream import DONE, FINISH, ROLE, USAGE, Plan, chunk, stream, word
from tests.responses.place import RESPONSES, events_of, in_real_time, remembering, streams, text_of, turn
from tests.responses.test_background import QUICK

PIECE = "x" * 20_000
LONG: Plan = [
    *stream(ROLE, end=()),
    *(step for _ in range(12) for step in (chunk(word(PIECE)), 0.11)),
    *map(chunk, (FINISH, USAGE, DONE)),
    b"0\r\n\r\n",
]
"""One that is kept in a dozen parts."""


@in_real_time
async def test_a_slow_client_is_waited_for(url: str) -> None:
    async with remembering(url, LONG, **QUICK) as it:
        whole = events_of(await it.ask(turn(stream=True, background=True)))
        id_ = whole[0]["response"]["id"]
        connections = it.place.app.front.connections
        await it.place.until(lambda: not connections)
        slow = await it.place.client()
        slow.transport.pause_reading()
        slow.send(f"GET {RESPONSES}/{id_}?stream=true HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        await it.place.until(lambda: len(connections) == 1)
        (connection,) = connections.values()
        await it.place.until(lambda: connection.unsent > HIGH_WATER_BYTES)
        await it.get(f"{RESPONSES}/{id_}")  # which is answered meanwhile
        assert connection.unsent < HIGH_WATER_BYTES + 3 * len(PIECE)
        slow.transport.resume_reading()
        assert events_of(await slow.answer("GET")) == whole
        assert text_of(whole[-1]["response"]) == 12 * PIECE


@in_real_time
async def test_who_comes_back_too_late_is_told_the_end(url: str) -> None:
    async with remembering(url, streams("Hel", "lo"), **QUICK) as it:
        whole = events_of(await it.ask(turn(stream=True, background=True)))
        store, last = it.place.app.memory.opened, whole[-1]
        assert store is not None
        path = f"{RESPONSES}/{last['response']['id']}?stream=true"
        await store.sweep(it.place.app.site.now_ms() + 1, 0)
        assert it.rows("events") == []
        (end,) = events_of(await it.get(f"{path}&starting_after=4"))
        assert end == {**last, "sequence_number": 5}


@in_real_time
async def test_who_would_miss_events_is_told_so(url: str) -> None:
    go = asyncio.Event()
    async with remembering(url, [*LONG[:-4], go, *LONG[-4:]], **QUICK) as it:
        client = await it.place.client()
        client.send(turn(stream=True, background=True))
        await client.heard(PIECE.encode() + b'"')
        store, (row,) = it.place.app.memory.opened, it.rows("responses")
        assert store is not None
        await store.sweep(it.place.app.site.now_ms() + 1, 0)  # as if what was streamed were old
        (gap,) = events_of(await it.get(f"{RESPONSES}/{row['id']}?stream=true"))
        assert (gap["type"], gap["code"], gap["sequence_number"]) == ("error", "not_found", 0)
        go.set()
