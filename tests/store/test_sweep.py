"""What time ends, on both databases: in parts, and never what something living builds upon."""

from __future__ import annotations

import asyncio

import pytest

from maitred.store.state import StateStore
from maitred.store.state_rows import FAILED, LOST, EventRow, NotKept, Page
from tests.store.place import (
    ALL,
    DAY,
    LEASE,
    NOW,
    end,
    kept,
    new,
    on_loop,
    remembering,
    said,
    spoken,
    talk,
    texts,
    turn,
)
from tests.store.test_jobs import queued, taken


async def rows(state: StateStore) -> dict[str, int]:
    return {row.table: row.rows for row in await state.stats()}


@on_loop
async def test_what_is_old_goes_and_what_never_expires_stays(url: str) -> None:
    async with remembering(url) as state:
        old = await kept(state, expires_ms=NOW + 1)
        young = await kept(state, expires_ms=NOW + 2)
        ever = await kept(state, expires_ms=None)
        assert not await state.sweep(NOW, DAY)
        assert await rows(state) == {"responses": 3, "items": 6}
        assert not await state.sweep(NOW + 1, DAY)
        with pytest.raises(NotKept):
            await state.history("a", old.id, ALL)
        await state.history("a", young.id, ALL)
        await state.sweep(2**61, DAY)
        assert await rows(state) == {"responses": 1, "items": 2}
        await state.history("a", ever.id, ALL)


@on_loop
async def test_a_chain_lives_as_long_as_its_newest(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, "1", "one", expires_ms=NOW + 1)
        second = await kept(state, "2", "two", previous_id=first.id, expires_ms=NOW + 5)
        await kept(state, "3", "three", previous_id=first.id, expires_ms=NOW + 2)
        await state.sweep(NOW + 4, DAY)
        assert texts((await state.history("a", second.id, ALL)).items) == ["1", "one", "2", "two"]
        assert (await state.response("a", first.id)).expires_ms == NOW + 5
        await state.sweep(NOW + 5, DAY)
        assert await rows(state) == {}


@on_loop
async def test_it_is_done_in_parts_by_several_at_once(url: str) -> None:
    async with remembering(url) as state, remembering(url) as other:
        for _ in range(3):
            await asyncio.gather(*(kept(state, expires_ms=NOW) for _ in range(90)))
        more = [True]
        while any(more):
            more = await asyncio.gather(*(one.sweep(NOW, DAY) for one in (state, other)))
        assert await rows(state) == {}


@on_loop
async def test_a_response_whose_gateway_died_has_failed(url: str) -> None:
    async with remembering(url) as state:
        response = new()
        await state.begin(response, ALL, NOW, LEASE)
        await state.sweep(LEASE, DAY)
        assert (await state.response("a", response.id)).reason is None
        await state.sweep(LEASE + 1, DAY)
        row = await state.response("a", response.id)
        assert (row.status, row.reason, row.lease_ms) == (FAILED, LOST, None)


@on_loop
async def test_what_is_being_made_is_not_too_old(url: str) -> None:
    async with remembering(url) as state:
        response = new(expires_ms=NOW)
        await state.begin(response, ALL, NOW, LEASE)
        waiting = await queued(state, expires_ms=NOW)
        await state.sweep(NOW + 1, DAY)
        assert (await rows(state))["responses"] == 2
        await state.finish(end(response))
        await state.cancel("a", waiting.id)
        await state.sweep(NOW + 1, DAY)
        assert await rows(state) == {}


@on_loop
async def test_a_conversation_lives_on_with_each_turn_and_its_items_with_their_responses(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0")])
        last = await spoken(state, conversation, "1", "one")  # its response expires at the same time
        await state.add_items("a", conversation, [said("2")], NOW, NOW + 40 * DAY)
        await state.add_items("a", conversation, [said("3")], NOW, NOW + 35 * DAY)
        await state.sweep(NOW + 39 * DAY, DAY)
        with pytest.raises(NotKept):
            await state.response("a", last.id)
        assert texts((await state.conversation_history("a", conversation, ALL)).items) == [
            "0",
            "1",
            "one",
            "2",
            "3",
        ]
        await state.sweep(NOW + 40 * DAY, DAY)
        assert await rows(state) == {}


@on_loop
async def test_an_old_conversation_leaves_its_responses_what_is_theirs(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0")])
        response = new(conversation_id=conversation, expires_ms=None)
        await state.begin(response, ALL, NOW, LEASE)
        await state.finish(end(response, turn("1", "one")))
        await state.sweep(2**61, DAY)
        await state.conversation("a", conversation)  # which lives as long as its last turn was to
        await state.delete_conversation("a", conversation)
        assert texts((await state.response_items("a", response.id, Page())).items) == ["one", "1"]


@on_loop
async def test_streams_are_kept_for_a_while(url: str) -> None:
    async with remembering(url) as state:
        response = await queued(state)
        await taken(state)
        for number in range(3):
            await state.append_events("a", response.id, EventRow(number, number, b"[]"), NOW + number)
        await state.finish(end(response))
        await state.sweep(NOW + 12, 10)
        assert [chunk.first for chunk in (await state.events("a", response.id, -1))[1]] == [2]


@on_loop
async def test_stats_are_of_each_tenant(url: str) -> None:
    async with remembering(url) as state:
        await kept(state, "ä", "b")
        await kept(state, tenant="b")
        await talk(state, "b")
        assert [(row.table, row.tenant, row.rows, row.bytes) for row in await state.stats()] == [
            ("conversations", "b", 1, 2),
            ("items", "a", 2, 2 * len('{"text":"b"}') + 1),
            ("items", "b", 2, 2 * len('{"text":"b"}')),
            ("responses", "a", 1, len('{"n":2}')),
            ("responses", "b", 1, len('{"n":2}')),
        ]
