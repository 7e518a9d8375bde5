"""The paths of what is remembered: which there are, what they take, and whose pages may ask."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from maitred.config.flow import Band
from maitred.config.responses import Responses
from maitred.config.tree import Http
from maitred.responses.paths import Paths
from tests.proxy.place import WHOLE, Door
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    call,
    in_real_time,
    remembering,
    says,
    text_of,
    turn,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/maitred.db"


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (RESPONSES, ("POST",)),
        (f"{RESPONSES}/resp_1", ("GET", "DELETE")),
        (f"{RESPONSES}/resp_1/cancel", ("POST",)),
        (f"{RESPONSES}/resp_1/input_items", ("GET",)),
        (CONVERSATIONS, ("POST",)),
        (f"{CONVERSATIONS}/conv_1", ("GET", "POST", "DELETE")),
        (f"{CONVERSATIONS}/conv_1/items", ("GET", "POST")),
        (f"{CONVERSATIONS}/conv_1/items/msg_1", ("GET", "DELETE")),
        (f"{RESPONSES}/", None),
        (f"{RESPONSES}//cancel", None),
        (f"{RESPONSES}/resp_1/other", None),
        (f"{RESPONSES}/resp_1/cancel/", None),
        (f"{CONVERSATIONS}/conv_1/items/msg_1/more", None),
        ("/v1/conversationsx", None),
        ("/v2/responses", None),
    ],
)
@in_real_time
async def test_a_path_takes_what_it_takes(url: str, path: str, methods: tuple[str, ...] | None) -> None:
    async with remembering(url) as it:
        site = Paths(it.place.app.site)
        assert site.methods(path) == methods
        refused = await it.ask(call("PUT", path))
        assert refused.status == (404 if methods is None else 405)
        assert refused.value(b"allow").decode() == ", ".join(methods or ())


@in_real_time
async def test_where_it_is_off_there_is_nothing_and_it_can_be_turned_on(url: str) -> None:
    async with remembering(url, says("x"), responses=Responses(enabled=False)) as it:
        assert (await it.ask(turn())).status == 404
        assert (await it.ask(WHOLE)).status == 200
        app = it.place.app
        app.apply(structs.replace(app.config, responses=Responses()))
        client = await it.place.client()
        client.send(turn())
        assert (await client.answer()).status == 200
        app.apply(structs.replace(app.config, responses=Responses(enabled=False)))
        client.send(turn())  # whose head was let in before
        assert (await client.answer()).status == 404


@in_real_time
async def test_pages_of_listed_origins_may_ask_and_delete(url: str) -> None:
    page = "https://app.example"
    async with remembering(url, says("x"), http=Http(cors=(page,))) as it:
        asked = ("origin: " + page, "access-control-request-method: DELETE")
        allowed = await it.ask(call("OPTIONS", f"{RESPONSES}/resp_1", None, *asked))
        assert allowed.value(b"access-control-allow-methods") == b"GET, DELETE"
        answer = await it.ask(turn("hi", "origin: " + page))
        assert answer.value(b"access-control-allow-origin") == page.encode()


@in_real_time
async def test_a_packed_body_is_unpacked(url: str) -> None:
    async with remembering(url, says("Hello")) as it:
        body = gzip.compress(json.dumps({"model": "m", "input": "hi"}).encode())
        head = call("POST", RESPONSES, None, "content-encoding: gzip", f"content-length: {len(body)}")
        answer = await it.ask(head + body)
        assert text_of(answer.json) == "Hello"
        assert it.told.said == [("user", "hi")]


@in_real_time
async def test_whoever_may_not_ask_any_more_once_it_is_unpacked_is_refused(
    url: str,
) -> None:
    async with remembering(url, says("x")) as it:
        door = Door(it.place)

        async def inflate(body: bytes) -> bytes:
            door.shut = True
            return gzip.decompress(body)

        app = it.place.app
        app.front.service = app.site.service = structs.replace(app.site.service, inflate=inflate)
        body = gzip.compress(b'{"metadata":{}}')
        head = call("POST", CONVERSATIONS, None, "content-encoding: gzip", f"content-length: {len(body)}")
        assert (await it.ask(head + body)).status == 401
        assert it.rows("conversations") == []


@pytest.mark.parametrize("members", [{}, {"service_tier": "flex"}])
@in_real_time
async def test_whoever_may_not_ask_any_more_in_the_midst_of_a_turn_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, members: dict[str, Any]
) -> None:
    async with remembering(url, bands=(Band(name="chat", service_tiers=("flex",)),)) as it:
        door = Door(it.place)

        async def check() -> None:
            door.shut = True

        await it.get(f"{RESPONSES}/resp_1")
        monkeypatch.setattr(it.place.app.site.memory.opened, "check", check)
        assert (await it.ask(turn(**members))).status == 401
        assert it.place.menu.asked == []


@in_real_time
async def test_a_body_that_is_no_json_is_refused_by_its_head_or_by_its_words(url: str) -> None:
    async with remembering(url) as it:
        typed = call("POST", RESPONSES, None, "content-type: text/plain", "content-length: 2") + b"{}"
        assert (await it.ask(typed)).status == 415
        broken = await it.ask(call("POST", RESPONSES, None, "content-length: 1") + b"{")
        assert (broken.status, broken.json["error"]["code"]) == (400, "invalid_request")


@in_real_time
async def test_a_bug_of_ours_is_a_500_and_no_silence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(url, says("x")) as it:
        store = it.place.app.memory.opened

        async def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(store, "keep", broken)
        it.place.bugs = 0  # the line of the request is its model call's
        answer = await it.ask(turn())
        assert (answer.status, answer.json["error"]["code"]) == (500, "failed_internal")
        monkeypatch.setattr(store, "finish", broken)
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        assert (await it.ask(turn(conversation=conversation))).status == 500
        assert it.place.app.site.running == {}  # so its lease lapses
