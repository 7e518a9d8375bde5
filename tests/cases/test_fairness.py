"""Shares go by who asks, and who asks is what the key says."""

from __future__ import annotations

import pytest
from msgspec import structs

from maitred.config.flow import Rates, Tenant
from maitred.config.tree import Queue
from maitred.core.words import Identity
from maitred.observe.exposition import render
from tests.net.http import Client, post, turns
from tests.proxy.place import CHAT, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD

KEYS = {
    b"Bearer sk-polite": Identity("polite", "1"),
    b"Bearer sk-greedy": Identity("greedy", "2"),
    b"Bearer sk-trusted": Identity("greedy", "3", may_set=("tenant", "band", "slo")),
}
NAMES = (
    "x-maitred-tenant",
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-session-token",
    "x-maitred-session",
)


def know(place: Place) -> None:
    """Have the gateway know these keys."""
    front = place.app.front
    front.service = structs.replace(
        front.service, identify=lambda fields: KEYS[fields.get(b"authorization", b"")]
    )


async def send(place: Place, key: str, mark: str) -> Client:
    """Ask with this key, and a name in every header that was ever taken for one."""
    client = await place.client()
    headers = [f"{name}: {mark}" for name in NAMES]
    client.send(post(CHAT, chat(user=mark), f"Authorization: Bearer sk-{key}", *headers))
    await turns(2)
    return client


class TestNamesThatClientsMakeUp:
    """B27: llm-d/llm-d-async#380, llm-d/llm-d-router#2119, vllm-project/aibrix#2682.

    Who made up a new name for each request got a queue of his own each time, and the gateway kept them all.
    """

    @pytest.mark.parametrize("key", ["greedy", "trusted"])
    @in_virtual_time(1000)
    async def test_a_new_name_for_each_request_gets_no_more_than_one_part(self, key: str) -> None:
        model = {"cap": 1, "queue": Queue(wait_s=900.0, requests_max=1000)}
        async with serving([1.0, *GOOD], model=model, tenants={"polite": Tenant()}) as place:
            know(place)
            greedy = [await send(place, key, f"made-up-{number}") for number in range(101)]
            polite = [await send(place, "polite", f"polite-{number}") for number in range(20)]
            for client in polite:
                assert (await client.answer()).status == 200
            served = [b"polite" in asked.body for asked in place.menu.asked[1:]]
            assert 36 <= len(served) <= 42  # each second one was his
            band = place.app.house.gateway._pools["m"].queue._bands["default"]
            assert band._flows.keys() == {"greedy", "polite"}
            for client in greedy:
                client.leave()

    @in_virtual_time()
    async def test_nor_an_account_of_its_own_nor_a_line_anywhere(self) -> None:
        limited = Tenant(limits=Rates(requests_per_min=50))
        async with serving(default_tenant=limited, tenants={"polite": Tenant()}) as place:
            know(place)
            sizes = set()
            for number in range(100):
                client = await send(place, "trusted", f"made-up-{number}")
                answer = await client.answer()
                assert answer.status == (200 if number < 50 else 429)
                sizes.add(b"".join(render(place.app.metrics)).count(b"\n") if number >= 50 else 0)
            assert place.app.house.gateway.limiter._holders.keys() == {"guest greedy"}
            assert len(sizes - {0}) == 1
            assert b"made-up" not in b"".join(render(place.app.metrics))
            assert {line["tenant"] for line in place.lines} == {"greedy"}
