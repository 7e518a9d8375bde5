"""Responses and their chains, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection, event

from maitred.store import history
from maitred.store.state_rows import (
    CANCELLED,
    FAILED,
    INCOMPLETE,
    LEFT,
    LOST,
    RUNNING,
    Bounds,
    ChainBroken,
    Lost,
    NotChainable,
    NotKept,
    Page,
    Repeated,
    StillRunning,
    TooLong,
)
from tests.store.place import (
    ALL,
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
from tests.store.postgres import Postgres


@on_loop
async def test_a_response_comes_back_as_it_was_kept(url: str) -> None:
    async with remembering(url) as state:
        response = new(background=True, digest=bytes(range(32)), idempotency_key="k", expires_ms=None)
        items = [said("häh? \\u0000 \\ud800"), said("so", output=True)]
        await state.keep(response, end(response, items, INCOMPLETE, reason=LEFT))
        row = await state.response("a", response.id)
        assert (row.id, row.root_id, row.tenant, row.model) == (response.id, response.id, "a", "m")
        assert (row.status, row.reason, row.background) == (INCOMPLETE, LEFT, True)
        assert (row.snapshot, row.digest, row.created_ms) == (b'{"n":2}', bytes(range(32)), NOW)
        assert (row.expires_ms, row.lease_ms, row.previous_id, row.conversation_id) == (None,) * 4
        listed = await state.response_items("a", response.id, Page(descending=False))
        assert [(item.id, item.data, item.output) for item in listed.items] == [
            (item.id, item.data, item.output) for item in items
        ]


@on_loop
async def test_a_chain_is_remembered_from_its_first_turn_on_and_forks_are_apart(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, "1", "one")
        second = await kept(state, "2", "two", previous_id=first.id)
        third = await kept(state, "3", "three", previous_id=second.id)
        fork = await kept(state, "4", "four", previous_id=first.id)
        history = await state.history("a", third.id, ALL)
        assert texts(history.items) == ["1", "one", "2", "two", "3", "three"]
        assert [item.output for item in history.items] == [False, True] * 3
        assert (history.root_id, history.dropped) == (first.id, False)
        assert texts((await state.history("a", fork.id, ALL)).items) == ["1", "one", "4", "four"]
        assert (await state.response("a", fork.id)).root_id == first.id


@on_loop
async def test_what_is_anothers_or_unknown_is_not_there_for_anybody(url: str) -> None:
    async with remembering(url) as state:
        mine = await kept(state)
        for tenant, id_ in (("b", mine.id), ("a", "resp_0"), ("b", "resp_0")):
            for asked in (
                state.history(tenant, id_, ALL),
                state.response(tenant, id_),
                state.response_items(tenant, id_, Page()),
                state.delete_response(tenant, id_),
                state.cancel(tenant, id_),
                state.events(tenant, id_, 0),
            ):
                with pytest.raises(NotKept) as caught:
                    await asked
                assert type(caught.value) is NotKept
                assert caught.value.args == (id_,)
        assert texts((await state.history("a", mine.id, ALL)).items) == ["q", "a"]


@on_loop
async def test_no_chain_leads_to_another_tenant(url: str) -> None:
    async with remembering(url) as state:
        mine = await kept(state)
        theirs = new("b", previous_id=mine.id, root_id=mine.id)  # which nobody lets happen
        await state.keep(theirs, end(theirs, turn("q", "a")))
        with pytest.raises(ChainBroken):
            await state.history("b", theirs.id, ALL)


@on_loop
async def test_what_has_not_ended_well_is_not_built_upon(url: str) -> None:
    async with remembering(url) as state:
        for status, reason in ((FAILED, None), (CANCELLED, None), (INCOMPLETE, LEFT), (FAILED, LOST)):
            ended = new()
            await state.keep(ended, end(ended, turn("q", "a"), status, reason=reason))
            with pytest.raises(NotChainable, match=status):
                await state.history("a", ended.id, ALL)
        cut = new()
        await state.keep(cut, end(cut, turn("q", "a"), INCOMPLETE))
        assert texts((await state.history("a", cut.id, ALL)).items) == ["q", "a"]
        running = new()
        await state.begin(running, ALL, NOW, LEASE)
        with pytest.raises(StillRunning):
            await state.history("a", running.id, ALL)


@on_loop
async def test_a_stream_is_there_from_its_beginning_and_whole_at_its_end(url: str) -> None:
    async with remembering(url) as state:
        response = new()
        assert (await state.begin(response, ALL, NOW, LEASE)).items == ()
        row = await state.response("a", response.id)
        assert (row.status, row.lease_ms, row.snapshot) == (RUNNING, LEASE, b'{"n":1}')
        assert await state.renew([response.id, "resp_0"], LEASE + 1) == {response.id}
        assert (await state.response("a", response.id)).lease_ms == LEASE + 1
        await state.finish(end(response, turn("q", "a")))
        assert (await state.response("a", response.id)).status == "completed"
        assert texts((await state.history("a", response.id, ALL)).items) == ["q", "a"]
        assert await state.renew([response.id], LEASE) == set()


@on_loop
async def test_a_response_ends_once_and_the_same_end_again_changes_nothing(url: str) -> None:
    async with remembering(url) as state:
        response = new()
        await state.begin(response, ALL, NOW, LEASE)
        ended = end(response, turn("q", "a"))
        await state.finish(ended)
        await state.finish(ended)
        with pytest.raises(Lost):
            await state.finish(end(response, turn("x", "y"), FAILED))
        with pytest.raises(Lost):
            await state.finish(end(new(), turn("x", "y")))
        assert texts((await state.history("a", response.id, ALL)).items) == ["q", "a"]
        one = new()
        for _ in range(2):  # as after a commit that was not heard of
            await state.keep(one, end(one, ended.items[:0]))


@on_loop
async def test_a_gateway_does_not_end_what_another_has_taken(url: str) -> None:
    async with remembering(url) as mine, remembering(url) as others:
        response = new()
        await mine.begin(response, ALL, NOW, LEASE)
        assert await others.renew([response.id], LEASE) == set()
        with pytest.raises(Lost):
            await others.finish(end(response))
        await mine.finish(end(response))


@on_loop
async def test_a_deleted_response_is_gone_and_who_builds_upon_it_is_told(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, "1", "one")
        second = await kept(state, "2", "two", previous_id=first.id)
        third = await kept(state, "3", "three", previous_id=second.id)
        await state.delete_response("a", second.id)
        with pytest.raises(NotKept):
            await state.response("a", second.id)
        with pytest.raises(ChainBroken):
            await state.history("a", third.id, ALL)
        assert texts((await state.history("a", first.id, ALL)).items) == ["1", "one"]
        assert {(row.table, row.rows) for row in await state.stats()} == {("responses", 2), ("items", 4)}


@on_loop
async def test_a_running_response_that_is_deleted_is_not_written_any_more(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        response = new(conversation_id=conversation)
        await state.begin(response, ALL, NOW, LEASE)
        await state.delete_response("a", response.id)
        with pytest.raises(Lost):
            await state.finish(end(response, turn("q", "a")))
        await spoken(state, conversation, "next", "one")
        assert {(row.table, row.rows) for row in await state.stats()} == {
            ("conversations", 1),
            ("responses", 1),
            ("items", 2),
        }


@on_loop
async def test_an_idempotency_key_is_a_tenants_and_of_one_response(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, idempotency_key="k", digest=b"d")
        conversation = await talk(state)
        again = new(idempotency_key="k")
        for doing in (
            state.keep(again, end(again)),
            state.begin(again, ALL, NOW, LEASE),
            state.begin(new(idempotency_key="k", conversation_id=conversation), ALL, NOW, LEASE),
        ):
            with pytest.raises(Repeated) as caught:
                await doing
            assert (caught.value.row.id, caught.value.row.digest) == (first.id, b"d")
        assert await state.repeated("a", "k") == await state.response("a", first.id)
        assert await state.repeated("b", "k") is None
        await kept(state, tenant="b", idempotency_key="k")
        await spoken(state, conversation, "q", "a")
        await state.delete_response("a", first.id)
        await kept(state, idempotency_key="k")


@on_loop
async def test_of_many_with_one_key_at_once_one_is_kept(url: str) -> None:
    async with remembering(url) as state, remembering(url) as other:
        started = [new(idempotency_key="k") for _ in range(12)]
        done = await asyncio.gather(
            *((state, other)[n % 2].begin(one, ALL, NOW, LEASE) for n, one in enumerate(started)),
            return_exceptions=True,
        )
        refused = [error for error in done if isinstance(error, Repeated)]
        assert len(refused) == 11
        assert len({error.row.id for error in refused}) == 1


@on_loop
async def test_too_much_is_refused_or_its_oldest_turns_dropped_whole(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, "1", "one")
        second = await kept(state, "2", "two", previous_id=first.id)
        third = await kept(state, "3", "three", previous_id=second.id)
        size = sum(len(item.data) for item in (await state.history("a", third.id, ALL)).items)
        assert len((await state.history("a", third.id, Bounds(6, size))).items) == 6
        for items_max, bytes_max, left in (
            (5, size, ["2", "two", "3", "three"]),
            (4, size, ["2", "two", "3", "three"]),
            (3, size, ["3", "three"]),
            (6, size - 1, ["2", "two", "3", "three"]),
            (1, size, []),
        ):
            with pytest.raises(TooLong):
                await state.history("a", third.id, Bounds(items_max, bytes_max))
            history = await state.history("a", third.id, Bounds(items_max, bytes_max, truncate=True))
            assert (texts(history.items), history.dropped) == (left, True)
            assert history.root_id == first.id


@on_loop
async def test_items_are_listed_in_pages_from_either_end(url: str) -> None:
    async with remembering(url) as state:
        response = new()
        items = [said(str(number), output=number > 3) for number in range(6)]
        await state.keep(response, end(response, items))

        async def page(output: bool | None = None, **asked: object) -> tuple[list[str], bool]:
            listed = await state.response_items("a", response.id, Page(**asked), output)  # type: ignore[arg-type]
            return texts(listed.items), listed.more

        assert await page(limit=4) == (["5", "4", "3", "2"], True)
        assert await page(limit=4, after=items[2].id) == (["1", "0"], False)
        assert await page(limit=6, descending=False) == (["0", "1", "2", "3", "4", "5"], False)
        assert await page(limit=1, descending=False, after=items[4].id) == (["5"], False)
        assert await page(output=False) == (["3", "2", "1", "0"], False)
        assert await page(output=True) == (["5", "4"], False)
        for cursor in ("", "nonsense", (await kept(state)).id, items[5].id):
            with pytest.raises(NotKept):
                await page(output=False, after=cursor)


@on_loop
async def test_items_are_found_wherever_they_are_but_only_ones_own(url: str) -> None:
    async with remembering(url) as state:
        one, other, foreign = said("1"), said("2"), said("3")
        response = new()
        await state.keep(response, end(response, [one]))
        await talk(state, items=[other])
        await talk(state, "b", items=[foreign])
        found = await state.items("a", [one.id, other.id, foreign.id, "msg_0"])
        assert {id_: item.data for id_, item in found.items()} == {one.id: one.data, other.id: other.data}
        assert await state.items("a", []) == {}


@on_loop
async def test_what_was_said_is_found_by_indexes_whatever_a_planner_thinks(server: Postgres) -> None:
    async with remembering(server.make("planned")) as state:
        for _ in range(20):
            await talk(state, items=[said("0") for _ in range(100)])
        first = await kept(state)
        last = await kept(state, previous_id=first.id)

        def plan(connection: Connection) -> str:
            connection.exec_driver_sql("ANALYZE")
            seen: list[str] = []

            @event.listens_for(connection, "before_cursor_execute", retval=True)
            def explained(*asked: Any) -> tuple[str, Any]:
                _, cursor, statement, parameters = asked[:4]
                cursor.execute(f"EXPLAIN {statement}", parameters)
                seen.extend(line for (line,) in cursor.fetchall())
                return statement, parameters

            history.of_chain(connection, "a", last.id, ALL)
            return "\n".join(seen)

        found = await state._read("plan", plan)
        assert "ix_items_response" in found
        assert "Seq Scan" not in found
