"""A part of the fault suite on uvloop and real sockets, and a journal of live traffic that replays."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from maitred.config.tree import Health, Journal, Queue, Upstream
from maitred.core.journal import replay
from maitred.core.words import EndpointState
from maitred.net.client import Reader
from maitred.net.seams import Sockets
from maitred.net.server import ServerConnection
from tests.net.http import Broken, get, post
from tests.proxy.faults import (
    AFTER_CONTENT,
    BEFORE_ANY_ANSWER,
    BEFORE_CONTENT,
    CUT_WHOLE,
    broken_off,
    last_resort,
    mended,
)
from tests.proxy.place import CHAT, STREAM, WHOLE, Place, chat, serving
from tests.proxy.upstream import DONE, GOOD, GOOD_STREAM, JSON, ROLE, SEEN, SILENCE, End, Plan, stream, word

CHATTY: Plan = [*stream(word("Hello"), end=()), 1e6]


def on_sockets(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop; a test that hangs fails."""

    async def main() -> None:
        async with asyncio.timeout(60):
            await work

    uvloop.run(main())


def hurried(plan: Plan) -> Plan:
    """The same plan with short waits."""
    return [min(step, 0.02) if isinstance(step, float) else step for step in plan]


BEFORE = {
    **{(name, "whole"): (plan, WHOLE) for name, plan in (BEFORE_ANY_ANSWER | CUT_WHOLE).items()},
    **{(name, "stream"): (plan, STREAM) for name, plan in (BEFORE_ANY_ANSWER | BEFORE_CONTENT).items()},
}


@pytest.mark.parametrize("case", BEFORE, ids=", ".join)
def test_a_failure_before_content_is_mended(case: tuple[str, str]) -> None:
    plan, request = BEFORE[case]

    async def main() -> None:
        async with serving(hurried(plan), last_resort(request), kitchens=2, network=Sockets()) as place:
            await place.drop_idle()
            await mended(place, request)

    on_sockets(main())


@pytest.mark.parametrize("fault", AFTER_CONTENT)
def test_a_failure_after_content_ends_the_stream_with_an_error(fault: str) -> None:
    plan, outcome = AFTER_CONTENT[fault]

    async def main() -> None:
        async with serving(hurried(plan), GOOD, kitchens=2, network=Sockets()) as place:
            await broken_off(place, outcome)

    on_sockets(main())


@pytest.mark.parametrize(
    "plan", [SILENCE, [*stream(ROLE, end=()), 1e6], CHATTY], ids=["head", "role", "words"]
)
def test_a_client_that_leaves_lets_the_engine_go(plan: Plan) -> None:
    async def main() -> None:
        async with serving(plan, network=Sockets()) as place:
            client = await place.client()
            client.send(STREAM)
            asked = await place.menu.called()
            if plan is CHATTY:
                await client.heard(b"Hello")
            client.leave()
            await asked.lost.wait()
            await place.until(lambda: not place.app.journeys)
            assert place.outcomes == ["client_gone"]
            assert place.running == [0]

    on_sockets(main())


def test_words_that_come_just_after_the_client_left_are_dropped() -> None:
    """Between the loss of the client's connection and the end of its journey a read may still come in."""

    async def main() -> None:
        async with serving(CHATTY, network=Sockets()) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            loop, closed = asyncio.get_running_loop(), place.app.front.closed
            (flow,) = place.app.house.running.values()

            def closed_and_spoken_to(connection: ServerConnection) -> None:
                closed(connection)
                loop.call_soon(cast("Reader", flow).read, word("late"), False)

            place.app.front.closed = closed_and_spoken_to  # type: ignore[method-assign]
            client.leave()
            await place.until(lambda: not place.app.journeys)
            assert place.outcomes == ["client_gone"]

    on_sockets(main())


def test_an_engine_that_is_down_is_left_alone_until_it_is_back() -> None:
    async def main() -> None:
        health = Health(generate=False, slow_start_s=0.0)
        async with serving(kitchens=2, network=Sockets(), health=health) as place:
            down, _ = place.kitchens
            port = down.address[1]
            down.close()
            await place.drop_idle()
            for _ in range(4):
                assert (await place.ask()).body == JSON
            assert {asked.kitchen for asked in place.menu.asked} == {1}
            assert sorted(place.states) == [EndpointState.READY, EndpointState.EJECTED]
            await down.open(place.network, port)
            await place.until(lambda: place.states == [EndpointState.READY] * 2)
            for _ in range(2):
                await place.ask()
            assert {asked.kitchen for asked in place.menu.asked} == {0, 1}

    on_sockets(main())


def test_a_client_that_does_not_read_makes_the_engine_wait() -> None:
    body = b'{"x":"' + b"y" * 30_000_000 + b'"}'

    async def main() -> None:
        plan: Plan = [
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body),
            *(body[at : at + 100_000] for at in range(0, len(body), 100_000)),
        ]
        async with serving(plan, network=Sockets()) as place:
            client = await place.client()
            client.transport.pause_reading()
            client.send(WHOLE)
            await place.until(lambda: any(connection.paused for connection in place.kitchens[0].connections))
            (served,) = place.app.front.connections.values()
            assert served.transport.get_write_buffer_size() < 1_000_000
            client.transport.resume_reading()
            assert (await client.answer()).body == body
            assert place.outcomes == ["completed"]

    on_sockets(main())


# -- the journal --------------------------------------------------------------------------------------

DOOR = (
    get("/v1/unknown"),
    post(CHAT, b"no JSON"),
    post(CHAT, chat(model="other")),
    get("/v1/models"),
    b"NONSENSE\r\n\r\n",
)
LIVE: list[Plan] = [
    GOOD_STREAM,
    [End.RESET],
    GOOD_STREAM,
    *(hurried(plan) for plan in BEFORE_CONTENT.values()),
    *(hurried(plan) for plan, _ in AFTER_CONTENT.values()),
    stream(ROLE, *([word("a ")] * 100), DONE),
    [0.05, *GOOD_STREAM],
]


async def visitor(place: Place, number: int) -> None:
    """One client that asks a few times, and sometimes leaves before it is answered."""
    client = await place.client()
    for turn in range(6):
        if client.over:
            client = await place.client()
        client.send(DOOR[number % len(DOOR)] if (number + turn) % 7 == 0 else (WHOLE, STREAM)[turn % 2])
        if (number + turn) % 5 == 0:
            await asyncio.sleep(0.002 * turn)
            client.leave()
            return
        try:
            await client.answer()
        except Broken:
            client.leave()


def test_a_journal_of_live_traffic_replays(tmp_path: Path) -> None:
    file = tmp_path / "journal"

    async def main() -> None:
        async with serving(
            *(LIVE * 4),
            kitchens=3,
            network=Sockets(),
            model={"cap": 2, "queue": Queue(wait_s=0.1, requests_max=10)},
            upstream=Upstream(attempts=3),
            journal=Journal(file),
        ) as place:
            for wave in range(4):
                await asyncio.gather(*(visitor(place, number + wave) for number in range(30)))
                if wave == 1:
                    place.kitchens[2].close()
            outcomes = Counter(place.outcomes)
            assert {"completed", "client_gone", "queue_full", "failed_truncated"} <= set(outcomes)

    on_sockets(main())
    assert replay(file.read_bytes().splitlines()) > 500


def test_a_stream_is_seen_as_it_is() -> None:
    async def main() -> None:
        async with serving(GOOD_STREAM, network=Sockets()) as place:
            assert (await place.ask(STREAM)).body == SEEN

    on_sockets(main())
