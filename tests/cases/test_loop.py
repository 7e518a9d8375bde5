"""One loop carries every stream: nothing that one request needs may hold up the others."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from maitred.observe.exposition import render
from tests.cases.place import Place, nothing_that_waits, on_sockets, serving, unhurried
from tests.cases.upstream import stream
from tests.net.http import get, post
from tests.proxy.place import CHAT, chat
from tests.proxy.upstream import DONE, JSON, ROLE, word

TOKENS = 30_000
PROMPT = "word " * TOKENS
LONG = chat(
    messages=[{"role": "system", "content": PROMPT}, {"role": "user", "content": "caf\u00e9 " * 1000}]
)


async def probed(place: Place, count: int) -> None:
    """Ask for life and readiness so many times, one after the other, on one connection."""
    client = await place.client()
    for number in range(count):
        client.send(get(("/livez", "/readyz", "/health", "/ping")[number % 4]))
        assert (await client.answer()).status == 200


class TestLongPrompts:
    """B76: vllm-project/production-stack#1016, vllm-project/vllm#24910.

    Tokenizers fetched and prompts encoded or hashed in the middle of the loop starved health probes until
    the platform killed the gateway. Prompts of 30,000 tokens cost the loop next to nothing, and no request
    makes it wait for a file, a name or a process.
    """

    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("alias", ["m", "alias"])
    @on_sockets
    async def test_health_is_answered_among_them(self, streamed: bool, alias: str) -> None:
        body = LONG.replace(
            b'"model": "m"', b'"model": "%b", "stream": %b' % (alias.encode(), str(streamed).lower().encode())
        )
        plan = stream(ROLE, word("ok"), DONE) if streamed else None
        async with serving(*([plan] if plan else []), model={"name": alias, "served_as": "m"}) as place:
            await place.ask(post(CHAT, body))  # what is made once is made now
            async with unhurried():
                with nothing_that_waits():
                    answers = await asyncio.gather(
                        *(place.ask(post(CHAT, body)) for _ in range(20)), probed(place, 40)
                    )
            assert [answer.status for answer in answers[:-1] if answer] == [200] * 20

    @on_sockets
    async def test_all_its_other_paths_wait_for_nothing_either(self) -> None:
        async with serving() as place:
            requests = [
                get("/v1/models"),
                get("/v1/models/m"),
                get("/v1/nothing"),
                post(CHAT, b"no JSON"),
                post(CHAT, chat(model="other")),
                post("/v1/embeddings", b'{"model":"m","input":["a","b"]}'),
                post("/v1/completions", b'{"model":"m","prompt":["a","b"]}'),
            ]
            for request in requests:
                await place.ask(request)
            with nothing_that_waits():
                statuses = [(await place.ask(request)).status for request in requests]
            assert statuses == [200, 200, 404, 400, 404, 200, 200]

    @on_sockets
    async def test_how_late_the_loop_is_can_be_read(self) -> None:
        async with serving() as place:
            assert (await place.ask()).body == JSON
            names = {
                family.name
                for family in text_string_to_metric_families(b"".join(render(place.app.metrics)).decode())
            }
            assert "maitred_loop_lag_seconds" in names
