"""Responses and their chains, on both databases."""

from __future__ import annotations

from maitred.store.state_rows import (
    INCOMPLETE,
    LEFT,
    Page,
)
from tests.store.place import (
    ALL,
    NOW,
    end,
    kept,
    new,
    on_loop,
    remembering,
    said,
    texts,
)


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
