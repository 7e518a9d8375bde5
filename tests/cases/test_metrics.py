"""Numbers and lines: whoever asks, and however often, there are not more of them than were configured."""

from __future__ import annotations

from maitred.config.flow import Tenant
from maitred.observe.exposition import render
from tests.cases.place import Place, on_sockets, serving
from tests.net.http import post
from tests.proxy.place import CHAT, chat

CANARY = "canary-7f3a"


def text(place: Place) -> str:
    return b"".join(render(place.app.metrics)).decode()


class TestLabels:
    """B28: BerriAI/litellm#12159, BerriAI/litellm#27272, BerriAI/litellm#39136, llm-d/llm-d-router#1909.

    Each new user id or model that does not exist made a series for ever, until memory was gone. Only what is
    configured becomes a label; nothing of what a client says does.
    """

    @on_sockets
    async def test_clients_cannot_make_series(self) -> None:
        async with serving(tenants={"support": Tenant()}) as place:
            sizes = set()
            for number in range(200):
                mark = f"{CANARY}-{number}"
                headers = (
                    *(f"{name}: {mark}" for name in ("x-maitred-tenant", "x-llm-d-inference-fairness-id")),
                    *(f"{name}: {mark}" for name in ("x-maitred-band", "x-llm-d-inference-objective")),
                    f"x-request-id: {mark}",
                )
                for body in (chat(user=mark, metadata={"user": mark}), chat(model=mark)):
                    await place.ask(post(f"{CHAT}?user={mark}", body, *headers))
                sizes.add(text(place).count("\n"))
            assert len(sizes) == 1
            assert CANARY not in text(place)
            assert 'tenant="other"' in text(place)

    @on_sockets
    async def test_nothing_that_ranks_a_request_reaches_the_engine(self) -> None:
        async with serving() as place:
            names = ("x-maitred-tenant", "x-maitred-band", "x-slo-ttft-ms", "authorization", "x-api-key")
            await place.ask(post(CHAT, chat(), *(f"{name}: {CANARY}" for name in names)))
            asked = await place.script.called()
            assert CANARY.encode() not in asked.raw_head + asked.body
            assert all(CANARY not in str(line) for line in place.lines)

    @on_sockets
    async def test_clients_that_come_again_are_counted(self) -> None:
        async with serving() as place:
            for said in ("0", "1", "2"):
                await place.ask(post(CHAT, chat(), f"x-stainless-retry-count: {said}"))
            await place.ask(post(CHAT, chat(n=0), "x-stainless-retry-count: 1"))
            assert 'maitred_client_retries_total{model="m"} 2.0' in text(place)
