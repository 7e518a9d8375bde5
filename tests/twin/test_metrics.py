"""The twin's metrics: vLLM's names, types and labels, read by the gateway's own eyes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from maitred.app.gateway import GatewayApp
from maitred.config.kinds import Address
from maitred.config.tree import Config, Health, Listen, Model, Scrape
from maitred.control.probe import Patience as ProbePatience
from maitred.control.probe import probe
from maitred.core.words import EndpointState, Facts
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from tests.net.http import connected, post, turns
from tests.proxy.place import in_virtual_time
from tests.twin.place import CHAT, DATA, ENGINES, MODEL, Place, chat, serving

NOT_TOLD = (
    "estimated_flops",
    "estimated_read_bytes",
    "estimated_write_bytes",
    "sleep_mode_operation",
    "admission_rejections",
)
"""Families of a real one that mean nothing here."""
SOURCES = "prompt_tokens_by_source_total"


def kinds(text: str) -> dict[str, str]:
    """Name and type of each of vLLM's families."""
    pairs = (
        line.removeprefix("# TYPE ").split() for line in text.splitlines() if not line.startswith("# HELP")
    )
    return {name: kind for name, kind in (pair for pair in pairs if len(pair) == 2) if "vllm:" in name}


def declared(text: str) -> dict[str, str]:
    return kinds("\n".join(line for line in text.splitlines() if line.startswith("# TYPE")))


def read(text: str) -> dict[str, float]:
    """Samples by name and label values."""
    families = text_string_to_metric_families(text)
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families
        for sample in family.samples
    }


def total(text: str, name: str, **labels: str) -> float:
    """A family's samples with these labels, added up."""
    families = text_string_to_metric_families(text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items()
    )


@in_virtual_time()
async def test_names_and_types_are_vllms() -> None:
    async with serving() as place:
        await place.chat(max_tokens=3)
        mine = declared((await place.get("/metrics")).body.decode())
    real = kinds((DATA / "metric_names_after.txt").read_text())
    expected = {
        name: kind for name, kind in real.items() if not name.removeprefix("vllm:").startswith(NOT_TOLD)
    }
    assert {name: kind for name, kind in mine.items() if "lora" not in name} == expected


@in_virtual_time()
async def test_labels_are_vllms() -> None:
    def labels(text: str) -> dict[str, set[tuple[str, ...]]]:
        return {
            sample.name: {
                tuple(sorted(other.labels)) for other in family.samples if other.name == sample.name
            }
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("vllm:")
        }

    async with serving() as place:
        await place.chat(max_tokens=3)
        mine = labels((await place.get("/metrics")).body.decode())
    real = labels((ENGINES / "vllm_metrics_under_load.txt").read_text())
    own, theirs = mine.pop("vllm:cache_config_info"), real.pop("vllm:cache_config_info")
    assert set(*own) <= set(*theirs)
    del mine["vllm:lora_requests_info"]
    assert mine == {name: labels for name, labels in real.items() if name in mine}


@in_virtual_time()
async def test_work_is_counted() -> None:
    async with serving(sequences_max=1) as place:
        await place.chat(max_tokens=10)
        await place.chat(max_tokens=10)
        clients = [await place.client() for _ in range(3)]
        for client in clients:
            client.send(post(CHAT, chat(max_tokens=100, ignore_eos=True)))
        await asyncio.sleep(0.3)
        text = (await place.get("/metrics")).body.decode()
        for client in clients:
            client.leave()
        await turns()
        after = (await place.get("/metrics")).body.decode()
    assert total(text, "num_requests_running") == 1
    assert total(text, "num_requests_waiting") == 2
    assert total(text, "kv_cache_usage_perc") > 0
    assert total(text, "request_success_total", finished_reason="length") == 2
    assert total(text, "time_to_first_token_seconds_count") == 2
    assert 0 < total(text, "time_to_first_token_seconds_sum") < 0.1
    assert total(text, "inter_token_latency_seconds_bucket", le="0.01") >= 18
    assert total(text, "request_generation_tokens_sum") == 20
    assert total(text, "generation_tokens_total") > 20
    computed = total(text, SOURCES, source="local_compute") + total(text, "generation_tokens_total")
    assert total(text, "iteration_tokens_total_sum") == computed
    assert total(text, "e2e_request_latency_seconds_bucket", le="+Inf") == 2
    assert total(text, "num_requests_waiting_by_reason", reason="capacity") == 2
    assert total(text, "engine_sleep_state", sleep_state="awake") == 1
    assert total(after, "request_success_total", finished_reason="abort") == 3
    assert total(after, "num_requests_running") == 0


@in_virtual_time()
async def test_hits_and_preemptions_are_counted() -> None:
    long = {"messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 250, "ignore_eos": True}
    async with serving(kv_blocks=20) as place:
        await asyncio.gather(*(place.chat(cache_salt=str(number), **long) for number in range(2)))
        usage = (await place.chat(cache_salt="1", **long)).json["usage"]
        text = (await place.get("/metrics")).body.decode()
    prompt, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    assert total(text, "prompt_tokens_total") == 3 * prompt
    assert (
        total(text, SOURCES, source="local_cache_hit") == total(text, "prompt_tokens_cached_total") == cached
    )
    assert total(text, SOURCES, source="local_compute") == 3 * prompt - cached
    assert total(text, "iteration_tokens_total_sum") == 3 * prompt - cached + total(
        text, "generation_tokens_total"
    )
    assert total(text, "num_preemptions_total") > 0
    assert total(text, "prefix_cache_hits_total") > 200
    assert total(text, "prefix_cache_queries_total") > total(text, "prefix_cache_hits_total")
    assert total(text, "request_num_preemptions_sum") == total(text, "num_preemptions_total")


@in_virtual_time()
async def test_what_another_engine_computed_is_not_computed_again() -> None:
    asked = {"max_tokens": 8, "ignore_eos": True, "kv_transfer_params": {"do_remote_prefill": True}}
    async with serving() as place:
        prompt = (await place.chat(**asked)).json["usage"]["prompt_tokens"]
        text = (await place.get("/metrics")).body.decode()
    assert total(text, SOURCES, source="external_kv_transfer") == total(text, "prompt_tokens_total") == prompt
    assert total(text, SOURCES, source="local_compute") == 0
    assert total(text, "external_prefix_cache_hits_total") == prompt
    assert total(text, "iteration_tokens_total_sum") == 8


@in_virtual_time()
async def test_adapters_are_named_while_they_run() -> None:
    async with serving() as place:
        await place.post("/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": "/sql"})
        client = await place.client()
        client.send(post(CHAT, chat(model="sql", max_tokens=100)))
        await asyncio.sleep(0.2)
        text = (await place.get("/metrics")).body.decode()
        client.leave()
    labels = {"max_lora": "2", "running_lora_adapters": "sql", "waiting_lora_adapters": ""}
    assert total(text, "lora_requests_info", **labels) > 1.8e9


# -- the gateway's eyes -------------------------------------------------------------------------------


async def facts(place: Place) -> Facts:
    """What the gateway's probe finds, after it has made a token."""
    sweep = Sweep(asyncio.get_running_loop().time)
    sweep.start()
    pool = Pool(place.network, sweep, Patience())
    found = await probe(pool, place.url, [MODEL], generate=True, patience=ProbePatience())
    pool.close()
    sweep.stop()
    return found[0][1]


@in_virtual_time()
async def test_the_gateways_probe_knows_a_twin_for_a_vllm() -> None:
    async with serving() as place:
        found = await facts(place)
        started_s = place.twin.service.started_s
    assert found == Facts(
        engine="vllm",
        model=MODEL,
        context_tokens=2048,
        version="0.32.0",
        kv_tokens=64 * 32,
        prefix_caching=True,
        started_at=started_s,
    )
    async with serving(prefix_caching=False, ranks=2) as place:
        found = await facts(place)
    assert (found.prefix_caching, found.kv_tokens) == (False, 2 * 64 * 32)


@asynccontextmanager
async def gateway(*places: Place) -> AsyncIterator[GatewayApp]:
    """A gateway before twins on one network, once it has found them."""
    loop = asyncio.get_running_loop()
    config = Config(
        listen=Listen(Address("127.0.0.1", 0)),
        models=(Model(name=MODEL, endpoints=tuple(place.url for place in places)),),
        health=Health(generate=False),
        scrape=Scrape(period_s=1.0),
    )
    app = GatewayApp(config, places[0].network, loop.time, seed=1)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()
        await turns()


async def until(holds: Any) -> None:
    while not holds():
        await asyncio.sleep(0.01)


@in_virtual_time()
async def test_a_gateway_reads_a_twins_load_and_sees_that_it_crashed() -> None:
    async with serving(sequences_max=2) as place, gateway(place) as app:
        table = app.house.gateway.table.by_name
        endpoint = next(iter(table.values()))
        await until(lambda: endpoint.state is EndpointState.READY)
        client = await connected(place.network, app._listener.address)  # type: ignore[union-attr]
        client.send(post(CHAT, chat(max_tokens=300, n=3, stream=True, ignore_eos=True)))
        await asyncio.sleep(2.0)
        load = endpoint.load
        assert load is not None
        assert (load.running, load.waiting) == (2, 1)
        assert load.kv_use is not None
        assert load.kv_use > 0
        known = endpoint.facts.started_at
        await place.post("/twin/crash")
        await client.heard(b"error")
        client.leave()
        await asyncio.sleep(30)
        again = next(iter(table.values()))
        assert again.state is EndpointState.READY
        assert again.facts.started_at is not None
        assert known is not None
        assert again.facts.started_at > known
