"""Numbers and lines: whoever asks, and however often, there are not more of them than were configured."""

from __future__ import annotations

from msgspec import structs

from maitred.config.flow import Band, Rates, Tenant
from maitred.config.tree import Slo
from maitred.control.watch import ANSWERS_MIN
from maitred.observe.exposition import render
from tests.cases.place import Place, on_sockets, serving
from tests.cases.upstream import stream
from tests.net.http import get, post
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
                await place.ask(get(f"/v1/models/{mark}", *headers))
                await place.ask(post(f"/v1/{mark}", chat(), *headers))
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

    @on_sockets
    async def test_what_is_refused_is_told_by_tenant_and_band(self) -> None:
        tenants = {"anonymous": Tenant(bands=("batch",), limits=Rates(requests_per_min=1))}
        async with serving(bands=(Band("chat"), Band("batch")), tenants=tenants) as place:
            for _ in range(2):
                await place.ask(post(CHAT, chat(), "x-stainless-retry-count: 1"))
            told = text(place)
            for sample in (
                'maitred_tenant_requests_total{class="completed",tenant="anonymous"} 1.0',
                'maitred_tenant_requests_total{class="refused",tenant="anonymous"} 1.0',
                'maitred_band_requests_total{band="batch",outcome="completed"} 1.0',
                'maitred_band_requests_total{band="batch",outcome="rate_limited"} 1.0',
                'maitred_client_retries_total{model="m"} 2.0',
            ):
                assert sample in told
            assert [(line["tenant"], line["band"]) for line in place.lines] == [("anonymous", "batch")] * 2
            place.app.apply(structs.replace(place.app.config, tenants={}))
            await place.ask(post(CHAT, chat()))
            assert 'maitred_tenant_requests_total{class="completed",tenant="other"} 1.0' in text(place)
            assert "anonymous" not in text(place)


class TestLateAnswers:
    """Users waited 55 s for the first token while every status stayed 200."""

    @on_sockets
    async def test_streams_that_are_answered_but_late_are_a_finding(self) -> None:
        async with serving(stream(), model={"slo": Slo(ttft_s=1e-6)}) as place:
            for _ in range(ANSWERS_MIN):
                assert (await place.ask(post(CHAT, chat(stream=True)))).status == 200
            assert [kind for kind, *_ in place.app.watch.look()] == ["ttft_missed"]
