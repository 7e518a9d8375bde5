"""What is one tenant's does not exist for another: the same answer as to an id that nobody has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.net.http import Answer
from tests.proxy.upstream import ROLE, stream, word
from tests.responses.place import CONVERSATIONS, RESPONSES, call, in_real_time, remembering, says, turn

OTHER = "x-tenant: b"


def asked_of(response: str, conversation: str, item: str) -> Iterator[bytes]:
    """Everything that can be asked by an id, as another tenant."""
    of_response, of_conversation = f"{RESPONSES}/{response}", f"{CONVERSATIONS}/{conversation}"
    yield call("GET", of_response, None, OTHER)
    yield call("GET", f"{of_response}?stream=true", None, OTHER)
    yield call("POST", f"{of_response}/cancel", None, OTHER)
    yield call("GET", f"{of_response}/input_items", None, OTHER)
    yield call("GET", f"{of_response}/input_items?after={item}", None, OTHER)
    yield call("DELETE", of_response, None, OTHER)
    yield call("GET", of_conversation, None, OTHER)
    yield call("POST", of_conversation, {"metadata": {}}, OTHER)
    yield call("GET", f"{of_conversation}/items", None, OTHER)
    yield call("POST", f"{of_conversation}/items", {"items": [{"role": "user", "content": "x"}]}, OTHER)
    yield call("GET", f"{of_conversation}/items/{item}", None, OTHER)
    yield call("DELETE", f"{of_conversation}/items/{item}", None, OTHER)
    yield call("DELETE", of_conversation, None, OTHER)
    options: tuple[dict[str, Any], ...] = ({}, {"stream": True}, {"store": False}, {"background": True})
    for more in options:
        yield turn("x", OTHER, previous_response_id=response, **more)
    for store in (True, False):
        yield turn("x", OTHER, conversation=conversation, store=store)
        yield turn([{"type": "item_reference", "id": item}], OTHER, store=store)


def told(answer: Answer, *ids: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """What an answer says, whatever the request's id was."""
    assert not any(id_.encode() in answer.body for id_ in ids)
    headers = [line for line in answer.headers if line[0] != b"x-request-id"]
    return answer.status, answer.body, headers


@in_real_time
async def test_another_tenant_is_told_what_anybody_is_told_of_nothing(url: str) -> None:
    """B79: BerriAI/litellm#39559, smg-project/smg#546, praxis-proxy/ai#489.

    Whoever knew an id went on with a stranger's conversation.
    """
    async with remembering(url, says("secret")) as it:
        it.tell_tenants_apart()
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        response = (await it.turn(conversation=conversation))["id"]
        item = (await it.get(f"{CONVERSATIONS}/{conversation}/items")).json["data"][0]["id"]
        ids = (response, conversation, item)
        nobodys = tuple(id_[:-4] + "0000" for id_ in ids)
        before = {table: it.rows(table) for table in ("responses", "items", "conversations")}
        for foreign, unknown in zip(asked_of(*ids), asked_of(*nobodys), strict=True):
            theirs = told(await it.ask(foreign), *ids)
            assert theirs[0] == 404, foreign
            assert theirs == told(await it.ask(unknown), *nobodys)
        assert {table: it.rows(table) for table in before} == before
        assert len(it.place.menu.asked) == 1


@in_real_time
async def test_another_tenant_has_idempotency_keys_of_its_own(url: str) -> None:
    async with remembering(url, says("x")) as it:
        it.tell_tenants_apart()
        mine = await it.turn("hi", "idempotency-key: k")
        theirs = await it.turn("other", "idempotency-key: k", OTHER)
        assert mine["id"] != theirs["id"]


@in_real_time
async def test_another_tenant_does_not_stop_what_runs(url: str) -> None:
    async with remembering(url, [*stream(ROLE, word("Hel"), end=()), 1e6]) as it:
        it.tell_tenants_apart()
        client = await it.place.client()
        client.send(turn(stream=True))
        await client.heard(b"Hel")
        id_: Any = it.rows("responses")[0]["id"]
        assert (await it.ask(call("DELETE", f"{RESPONSES}/{id_}", None, OTHER))).status == 404
        await asyncio.sleep(0.02)
        assert not it.place.menu.asked[0].lost.is_set()
