"""Conversations on both databases: one turn at a time, and what clients do to the items themselves."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from maitred.store.state_rows import (
    FAILED,
    INCOMPLETE,
    LEFT,
    LOST,
    Bounds,
    ChainBroken,
    Locked,
    Lost,
    NotKept,
    Page,
    TooLong,
)
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


@on_loop
async def test_a_conversation_grows_by_turns_and_by_hand(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0")])
        await spoken(state, conversation, "1", "one")
        added = await state.add_items("a", conversation, [said("by"), said("hand")], NOW, NOW + DAY)
        assert [item.seq for item in added] == [3, 4]
        last = new(conversation_id=conversation)
        history = await state.begin(last, ALL, NOW, LEASE)
        assert (texts(history.items), history.root_id) == (["0", "1", "one", "by", "hand"], conversation)
        await state.finish(end(last, turn("2", "two")))
        listed = await state.conversation_items("a", conversation, Page(limit=3))
        assert (texts(listed.items), listed.more) == (["two", "2", "hand"], True)
        mine = await state.response_items("a", last.id, Page())
        assert texts(mine.items) == ["two", "2"]
        whole = await state.conversation_history("a", conversation, ALL)
        assert texts(whole.items) == ["0", "1", "one", "by", "hand", "2", "two"]


@on_loop
async def test_a_second_turn_is_refused_while_one_is_running_and_so_are_changes(url: str) -> None:
    async with remembering(url) as state, remembering(url) as other:
        conversation = await talk(state, items=[said("0")])
        (first,) = (await state.conversation_items("a", conversation, Page())).items
        running = new(conversation_id=conversation)
        await state.begin(running, ALL, NOW, LEASE)
        for doing in (
            other.begin(new(conversation_id=conversation), ALL, LEASE, LEASE),
            other.add_items("a", conversation, [said("x")], NOW, NOW),
            other.delete_item("a", conversation, first.id, NOW),
        ):
            with pytest.raises(Locked, match=running.id):
                await doing
        await state.update_conversation("a", conversation, b'{"x":"y"}')
        await state.begin(running, ALL, NOW, LEASE)  # it itself, after a commit that was not heard of
        await state.finish(end(running, turn("1", "one")))
        await spoken(other, conversation, "2", "two")
        said_ = (await state.conversation_history("a", conversation, ALL)).items
        assert texts(said_) == ["0", "1", "one", "2", "two"]


@on_loop
async def test_of_many_turns_at_once_one_begins(url: str) -> None:
    async with remembering(url) as state, remembering(url) as other:
        conversation = await talk(state)
        done = await asyncio.gather(
            *(
                (state, other)[n % 2].begin(new(conversation_id=conversation), ALL, NOW, LEASE)
                for n in range(8)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Locked) for one in done) == 7
        assert {(row.table, row.rows) for row in await state.stats()} == {
            ("conversations", 1),
            ("responses", 1),
        }


@on_loop
async def test_a_turn_whose_gateway_died_gives_way_and_cannot_come_back(url: str) -> None:
    async with remembering(url) as dead, remembering(url) as state:
        conversation = await talk(state)
        lost = new(conversation_id=conversation)
        await dead.begin(lost, ALL, NOW, LEASE)
        next_ = new(conversation_id=conversation)
        await state.begin(next_, ALL, LEASE + 1, LEASE + DAY)
        row = await state.response("a", lost.id)
        assert (row.status, row.reason) == (FAILED, LOST)
        with pytest.raises(Lost):
            await dead.finish(end(lost, turn("late", "too late")))
        await state.finish(end(next_, turn("1", "one")))
        assert texts((await state.conversation_history("a", conversation, ALL)).items) == ["1", "one"]


@pytest.mark.parametrize(("status", "reason"), [(FAILED, None), (INCOMPLETE, LEFT)])
def test_what_ended_badly_is_the_responses_alone(url: str, status: str, reason: str | None) -> None:
    @on_loop
    async def main() -> None:
        async with remembering(url) as state:
            conversation = await talk(state)
            bad = new(conversation_id=conversation)
            await state.begin(bad, ALL, NOW, LEASE)
            await state.finish(end(bad, turn("q", "half"), status, reason=reason))
            assert texts((await state.response_items("a", bad.id, Page())).items) == ["half", "q"]
            assert (await state.conversation_history("a", conversation, ALL)).items == []
            await spoken(state, conversation, "1", "one")

    main()


@on_loop
async def test_what_is_anothers_or_unknown_is_not_there_for_anybody(url: str) -> None:
    async with remembering(url) as state:
        mine = await talk(state, items=[said("0")])
        (item,) = (await state.conversation_items("a", mine, Page())).items
        for tenant, id_ in (("b", mine), ("a", "conv_0")):
            for asked in (
                state.conversation(tenant, id_),
                state.conversation_history(tenant, id_, ALL),
                state.conversation_items(tenant, id_, Page()),
                state.item(tenant, id_, item.id),
                state.update_conversation(tenant, id_, b"{}"),
                state.add_items(tenant, id_, [said("x")], NOW, None),
                state.delete_item(tenant, id_, item.id, NOW),
                state.delete_conversation(tenant, id_),
                state.begin(new(tenant, conversation_id=id_), ALL, NOW, LEASE),
            ):
                with pytest.raises(NotKept):
                    await asked
        with pytest.raises(NotKept):
            await state.item("a", mine, "msg_0")
        assert (await state.item("a", mine, item.id)) == item
        assert {row.table for row in await state.stats() if row.tenant == "b"} == set()


@on_loop
async def test_metadata_comes_back_and_is_replaced(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        before = await state.conversation("a", conversation)
        assert (before.metadata, before.created_ms, before.expires_ms) == (b"{}", NOW, NOW + 30 * DAY)
        after = await state.update_conversation("a", conversation, '{"topic":"Möbel"}'.encode())
        assert after == structs.replace(before, metadata='{"topic":"Möbel"}'.encode())
        assert await state.conversation("a", conversation) == after


@on_loop
async def test_an_item_lives_as_long_as_one_of_its_owners(url: str) -> None:
    async with remembering(url) as state:
        one, two = await talk(state, items=[said("0")]), await talk(state)
        of_one = await spoken(state, one, "1", "one")
        of_two = await spoken(state, two, "2", "two")
        await state.delete_conversation("a", one)
        with pytest.raises(NotKept):
            await state.conversation_items("a", one, Page())
        assert texts((await state.response_items("a", of_one.id, Page())).items) == ["one", "1"]
        await state.delete_response("a", of_one.id)
        await state.delete_response("a", of_two.id)
        assert texts((await state.conversation_history("a", two, ALL)).items) == ["2", "two"]
        assert {(row.table, row.rows) for row in await state.stats()} == {("conversations", 1), ("items", 2)}
        await state.delete_conversation("a", two)
        assert await state.stats() == []


@on_loop
async def test_a_deleted_item_is_not_remembered(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0"), said("1")])
        items = (await state.conversation_items("a", conversation, Page())).items
        left = await state.delete_item("a", conversation, items[0].id, NOW)
        assert left.id == conversation
        with pytest.raises(NotKept):
            await state.delete_item("a", conversation, items[0].id, NOW)
        await spoken(state, conversation, "2", "two")
        assert texts((await state.conversation_history("a", conversation, ALL)).items) == ["0", "2", "two"]


@on_loop
async def test_a_conversation_that_is_deleted_during_a_turn_leaves_the_response(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        running = new(conversation_id=conversation)
        await state.begin(running, ALL, NOW, LEASE)
        await state.delete_conversation("a", conversation)
        await state.finish(end(running, turn("1", "one")))
        assert texts((await state.response_items("a", running.id, Page())).items) == ["one", "1"]
        assert {row.table for row in await state.stats()} == {"responses", "items"}


@on_loop
async def test_a_response_of_a_conversation_may_be_built_upon_as_it_was_then(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0")])
        first = await spoken(state, conversation, "1", "one")
        await spoken(state, conversation, "2", "two")
        branch = await kept(state, "x", "y", previous_id=first.id)
        history = await state.history("a", branch.id, ALL)
        assert (texts(history.items), history.root_id) == (["0", "1", "one", "x", "y"], first.id)
        short = await state.history("a", branch.id, Bounds(4, 1000, truncate=True))
        assert (texts(short.items), short.dropped) == (["1", "one", "x", "y"], True)
        with pytest.raises(TooLong):
            await state.history("a", branch.id, Bounds(4, 1000))


@on_loop
async def test_what_builds_upon_a_conversation_that_was_deleted_is_broken_and_not_short(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0")])
        first = await spoken(state, conversation, "1", "one")
        branch = await kept(state, "x", "y", previous_id=first.id)
        await state.delete_conversation("a", conversation)
        for id_ in (first.id, branch.id):
            with pytest.raises(ChainBroken):
                await state.history("a", id_, ALL)
            assert (await state.response("a", id_)).id == id_


@on_loop
async def test_too_much_is_refused_or_its_oldest_dropped_no_turn_in_two(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state, items=[said("0"), said("00")])
        await spoken(state, conversation, "1", "one")
        await spoken(state, conversation, "2", "two")
        size = sum(
            len(item.data) for item in (await state.conversation_history("a", conversation, ALL)).items
        )
        for items_max, bytes_max, left in (
            (5, size, ["00", "1", "one", "2", "two"]),
            (3, size, ["2", "two"]),
            (6, size - 1, ["00", "1", "one", "2", "two"]),
            (1, size, []),
            (6, 1, []),
        ):
            with pytest.raises(TooLong):
                await state.conversation_history("a", conversation, Bounds(items_max, bytes_max))
            with pytest.raises(TooLong):
                await state.begin(new(conversation_id=conversation), Bounds(items_max, bytes_max), NOW, LEASE)
            bounds = Bounds(items_max, bytes_max, truncate=True)
            history = await state.conversation_history("a", conversation, bounds)
            assert (texts(history.items), history.dropped) == (left, True)
        await spoken(state, conversation, "3", "three")  # what was refused holds no turn


@pytest.mark.parametrize("id_", ["resp_\0", "conv_\ud800", "mäg", "x" * 100_000, ""])
def test_what_no_database_can_be_asked_for_is_not_kept(url: str, id_: str) -> None:
    @on_loop
    async def main() -> None:
        async with remembering(url) as state:
            conversation = await talk(state, items=[said("0")])
            response = await kept(state)
            for asked in (
                state.history("a", id_, ALL),
                state.response("a", id_),
                state.response_items("a", response.id, Page(after=id_)),
                state.delete_response("a", id_),
                state.cancel("a", id_),
                state.events("a", id_, 0),
                state.conversation("a", id_),
                state.conversation_history("a", id_, ALL),
                state.conversation_items("a", conversation, Page(after=id_)),
                state.item("a", conversation, id_),
                state.update_conversation("a", id_, b"{}"),
                state.delete_conversation("a", id_),
                state.add_items("a", id_, [said("x")], NOW, None),
                state.delete_item("a", conversation, id_, NOW),
                state.begin(new(conversation_id=id_), ALL, NOW, LEASE),
            ):
                with pytest.raises(NotKept):
                    await asked
            assert await state.items("a", [id_]) == {}

    main()
