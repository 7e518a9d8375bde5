"""Where a request goes is the operator's choice: nothing in it makes anybody else be called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.config.tree import Media
from tests.cases.place import Place, nothing_that_waits, on_sockets, opened
from tests.cases.upstream import GOOD, Engine
from tests.net.http import Answer, get, post
from tests.proxy.place import CHAT, WHOLE, chat
from tests.proxy.upstream import JSON, head

TARGETS = (
    "api_base",
    "base_url",
    "api_host",
    "endpoint",
    "target",
    "proxy",
    "litellm_params",
    "custom_llm_provider",
)
"""Members by which one gateway or another could be sent elsewhere."""


def picture(url: str) -> bytes:
    """A chat request about a picture at this address."""
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return chat(messages=[{"role": "system", "content": "see"}, {"role": "user", "content": parts}])


async def asks(place: Place, request: bytes) -> Answer:
    """Ask once with all connections open, so that another one would be noticed."""
    await place.ask()
    with nothing_that_waits():
        return await place.ask(request)


class TestClientsDoNotChooseTheUpstream:
    """B61: BerriAI/litellm#24952, songquanpeng/one-api#2387.

    An address in the body sent the call, with credentials, wherever the client liked; and a picture's address
    was fetched from inside the network.
    """

    @pytest.mark.parametrize("member", TARGETS)
    @on_sockets
    async def test_an_address_in_the_body_is_text(self, member: str) -> None:
        decoy, engine = Engine(), Engine()
        await decoy.open()
        async with opened([engine]) as place:
            body = chat(**{member: decoy.url})
            assert (await asks(place, post(CHAT, body))).body == JSON
            assert engine.script.asked[-1].body == body
        assert decoy.received == []

    @on_sockets
    async def test_an_address_in_the_head_is_not_even_that(self) -> None:
        decoy, engine = Engine(), Engine()
        await decoy.open()
        authority = decoy.url.removeprefix("http://")
        headers = [
            f"X-Gateway-Destination-Endpoint: {authority}",
            f"X-Prefiller-Host-Port: {authority}",
            f"X-Api-Base: {decoy.url}",
            f"X-Forwarded-Host: {authority}",
            f"Forwarded: host={authority}",
        ]
        async with opened([engine]) as place:
            assert (await asks(place, post(CHAT, chat(), *headers))).body == JSON
            assert authority.encode() not in bytes(engine.received[-1])
        assert decoy.received == []

    @on_sockets
    async def test_nor_is_the_host_of_an_absolute_target(self) -> None:
        decoy, engine = Engine(), Engine()
        await decoy.open()
        async with opened([engine]) as place:
            target = f"{decoy.url}{CHAT}"
            answer = await asks(place, post(target, chat()))
            assert answer.status in (200, 400)
            assert (await place.ask(get(f"{decoy.url}/v1/models"))).status in (200, 400)
            assert (await place.ask(get(decoy.url.removeprefix("http://"), method="CONNECT"))).status in (
                400,
                405,
            )
        assert decoy.received == []

    @on_sockets
    async def test_an_engine_that_redirects_is_not_followed(self) -> None:
        decoy, engine = (
            Engine(),
            Engine(GOOD, [head(307, "content-length: 0", "location: http://127.0.0.1:1/")]),
        )
        await decoy.open()
        async with opened([engine]) as place:
            engine.script.set(GOOD, [head(307, f"location: {decoy.url}{CHAT}", "content-length: 0")])
            answer = await asks(place, WHOLE)
            assert (answer.status, answer.values(b"location")) == (502, [])
        assert decoy.received == []


NEVER_FETCHED = [
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1/x.png",
    "http://2852039166/x",
    "http://0xa9fea9fe/x",
    "http://0251.0376.0251.0376/x",
    "http://127.1/x",
    "http://[::1]/x",
    "http://[::ffff:169.254.169.254]/x",
    "https://images.example@169.254.169.254/x",
    "https://169.254.169.254#@images.example/x",
    "https://169.254.169.254\\@images.example/x",
    "https://user:secret@images.example/x",
    "https://elsewhere.example/x.png",
    "https://images.example.elsewhere.example/x.png",
    "https://notimages.example/x.png",
    "https://localhost/x",
    "//images.example/x",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "/etc/passwd",
    "ftp://images.example/x",
    "gopher://images.example/x",
    " http://169.254.169.254/",
    "http:169.254.169.254",
]


class TestPicturesAreNotFetchedFromInside:
    """B61, its second half: engines fetch media themselves, and stand where nobody outside should be."""

    @pytest.mark.parametrize("url", NEVER_FETCHED)
    @pytest.mark.parametrize("domains", [(), ("images.example",)], ids=["none", "one"])
    @on_sockets
    async def test_what_is_no_listed_host_is_refused(self, url: str, domains: tuple[str, ...]) -> None:
        async with opened([Engine()], media=Media(domains)) as place:
            answer = await asks(place, post(CHAT, picture(url)))
            assert (answer.status, answer.outcome) == (400, "bad_request")
            assert answer.json["error"]["param"].startswith("messages[1].content[1]")
            assert len(place.script.asked) == 1
            assert url.encode() not in answer.body

    @pytest.mark.parametrize(
        "url",
        ["https://images.example/x.png", "http://a.images.example:8080/x?y=z", "data:image/png;base64,AAAA"],
    )
    @on_sockets
    async def test_what_is_listed_or_inline_passes_as_it_is(self, url: str) -> None:
        async with opened([Engine()], media=Media(("images.example",))) as place:
            body = picture(url)
            assert (await asks(place, post(CHAT, body))).body == JSON
            assert place.script.asked[-1].body == body

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "image_url", "image_url": "http://169.254.169.254/"},
            {"type": "input_image", "image_url": "http://169.254.169.254/"},
            {"type": "video_url", "video_url": {"url": "http://169.254.169.254/"}},
            {"type": "audio_url", "audio_url": {"url": "http://169.254.169.254/"}},
            {"type": "file_url", "file_url": {"url": "http://169.254.169.254/"}},
            {"image_url": {"url": "http://169.254.169.254/"}},
            {"type": "text", "text": "x", "image_url": {"url": "http://169.254.169.254/"}},
        ],
    )
    @on_sockets
    async def test_in_whatever_kind_of_part(self, part: dict[str, Any]) -> None:
        async with opened([Engine()]) as place:
            answer = await asks(place, post(CHAT, chat(messages=[{"role": "user", "content": [part]}])))
            assert (answer.status, answer.outcome) == (400, "bad_request")

    @on_sockets
    async def test_nor_through_the_other_api(self) -> None:
        source = {"type": "url", "url": "http://169.254.169.254/"}
        inner = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image", "source": source}]}
        async with opened([Engine()]) as place:
            for part in ({"type": "image", "source": source}, inner):
                body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [part]}]}
                answer = await asks(place, post("/v1/messages", json.dumps(body).encode()))
                assert answer.status == 400
                assert answer.json["error"]["type"] == "invalid_request_error"

    @on_sockets
    async def test_addresses_that_are_only_talked_about_are_text(self) -> None:
        url = "http://169.254.169.254/latest"
        tool = {
            "id": "x",
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps({"image_url": url})},
        }
        body = chat(
            messages=[
                {"role": "system", "content": f"never fetch {url}"},
                {"role": "assistant", "content": None, "tool_calls": [tool]},
                {"role": "tool", "tool_call_id": "x", "content": url},
                {"role": "user", "content": [{"type": "text", "text": f"what is {url}?"}]},
            ]
        )
        async with opened([Engine()]) as place:
            assert (await asks(place, post(CHAT, body))).body == JSON
