"""Reading engines' metrics, in virtual time against engines that answer as they are told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from maitred.app.gateway import GatewayApp
from maitred.config.kinds import Address
from maitred.config.tree import Config, Listen, Model, Scrape
from maitred.control.scrape import AT_ONCE_MAX, Scraper
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Endpoint, EndpointState, Facts, Load, Observed
from maitred.net import virtual
from maitred.observe.findings import Findings
from tests.control.engines import HANG, Answer, Street, models, street

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState


def metrics(running: int = 1, waiting: int = 0, started_at: float | None = None) -> Answer:
    text = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
    if started_at is not None:
        text += f"process_start_time_seconds {started_at}\n"
    return 200, text.encode()


class Watch:
    """A scraper at work and what it told."""

    def __init__(self, place: Street) -> None:
        self.place = place
        self.table = EndpointTable()
        self.findings = Findings()
        self.seen: list[Observed] = []
        self.restarted: list[str] = []
        self.scraper = Scraper(
            place.pool,
            self.table,
            self.seen.append,
            self.restarted.append,
            self.findings,
            Random(1),
            period_s=1.0,
            timeout_s=2.0,
        )

    def add(
        self,
        port: int,
        state: EndpointState = READY,
        engine: str = "vllm",
        pool: str = "q",
        started_at: float | None = None,
    ) -> Endpoint:
        url = f"http://127.0.0.1:{port}"
        facts = Facts(engine=engine, started_at=started_at)
        endpoint = Endpoint(f"{pool}/127.0.0.1:{port}", pool, url, state=state, facts=facts)
        self.table.by_name[endpoint.name] = endpoint
        return endpoint

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings.current()]


@asynccontextmanager
async def watch() -> AsyncIterator[Watch]:
    async with street() as place:
        it = Watch(place)
        task = asyncio.create_task(it.scraper.run())
        yield it
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not [left for left in asyncio.all_tasks() if "Scraper" in repr(left)]


def test_load_is_told_once_a_period_for_each_endpoint_at_an_address() -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {"/metrics": metrics(2, 3)})
            it.add(1, pool="a")
            it.add(1, pool="b", state=EJECTED)
            await asyncio.sleep(20)
            assert 18 <= len(engine.asked) <= 22
            assert it.seen[:2] == [
                Observed("a/127.0.0.1:1", Load(2, 3)),
                Observed("b/127.0.0.1:1", Load(2, 3)),
            ]
            assert len(it.seen) == 2 * len(engine.asked)
            waits = [
                after[2] - before[2] for before, after in zip(engine.asked, engine.asked[1:], strict=False)
            ]
            assert all(0.9 <= wait <= 1.1 for wait in waits)
            assert len(set(waits)) > 10

    virtual.run(main())


@pytest.mark.parametrize("state", [PROBING, DRAINING, GONE])
def test_others_are_left_alone(state: EndpointState) -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {"/metrics": metrics()})
            it.add(1, state=state)
            await asyncio.sleep(5)
            assert engine.asked == []

    virtual.run(main())


def test_addresses_are_never_read_all_at_once() -> None:
    async def main() -> None:
        async with watch() as it:
            engines = [await it.place.open(port, {"/metrics": metrics()}) for port in range(1, 51)]
            for port in range(1, 51):
                it.add(port)
            await asyncio.sleep(10)
            times = sorted(time for engine in engines for _, _, time in engine.asked[:1])
            assert len(set(times)) == 50
            assert times[-1] - times[0] > 0.8

    virtual.run(main())


def test_a_slow_engine_has_one_question_and_a_slow_fleet_eight() -> None:
    async def main() -> None:
        async with street() as place:
            it = Watch(place)
            engine = await place.open(1, {"/metrics": metrics()}, takes_s=1.9)
            for port in range(2, 22):  # all of them this engine
                place.network._listeners["127.0.0.1", port] = place.network._listeners["127.0.0.1", 1]
                it.add(port)
            it.add(1)
            task = asyncio.create_task(it.scraper.run())
            await asyncio.sleep(30)
            assert engine.busy_max == AT_ONCE_MAX
            assert len({observed.endpoint for observed in it.seen}) == 21
            task.cancel()

    virtual.run(main())


@pytest.mark.parametrize(
    ("engine", "answer", "what", "do"),
    [
        ("vllm", (404, b""), "GET /metrics is answered with 404", "--disable-log-stats"),
        ("llamacpp", (501, b"{}"), "GET /metrics is answered with 501", "--metrics"),
        ("sglang", metrics(), "tells no sglang:num_running_reqs", "--enable-metrics"),
        ("trtllm", (200, b""), "GET /prometheus/metrics is answered with 404", "return_perf_metrics"),
        ("vllm", HANG, "no answer in 2 s", "see why it does not answer"),
    ],
)
def test_metrics_that_cannot_be_read_three_times_are_a_finding_until_they_can(
    engine: str, answer: Answer, what: str, do: str
) -> None:
    async def main() -> None:
        async with watch() as it:
            at = await it.place.open(1, {"/metrics": answer})
            it.add(1, engine=engine)
            while len(at.asked) < 3:
                assert it.kinds() == []
                await asyncio.sleep(0.1)
            await asyncio.sleep(2.5)
            (finding,) = it.findings.current()
            assert (finding.kind, finding.where) == ("metrics_stale", "http://127.0.0.1:1")
            assert what in finding.what
            assert do in finding.do
            assert it.seen == []
            if engine == "vllm":
                at.answers["/metrics"] = metrics()
                await asyncio.sleep(20)
                assert it.kinds() == []
                assert it.seen

    virtual.run(main())


def test_an_address_that_fails_is_asked_ever_less_often_and_then_each_minute() -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {"/metrics": (500, b"")})
            it.add(1)
            await asyncio.sleep(1000)
            waits = [
                after[2] - before[2] for before, after in zip(engine.asked, engine.asked[1:], strict=False)
            ]
            for wait, wanted in zip(waits, (2, 4, 8, 16, 32, 60, 60), strict=False):
                assert 0.9 * wanted <= wait <= 1.1 * wanted
            assert max(waits) <= 66
            engine.answers["/metrics"] = metrics()
            await asyncio.sleep(70)
            assert len(it.seen) > 3

    virtual.run(main())


def test_the_finding_goes_with_the_endpoint() -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {})
            endpoint = it.add(1)
            await asyncio.sleep(10)
            assert it.kinds() == ["metrics_stale"]
            del it.table.by_name[endpoint.name]
            await asyncio.sleep(1.5)
            assert it.kinds() == []
            asked = len(engine.asked)
            await asyncio.sleep(200)
            assert len(engine.asked) == asked

    virtual.run(main())


def test_of_an_ejected_endpoint_nothing_is_found() -> None:
    async def main() -> None:
        async with watch() as it:
            it.add(1, state=EJECTED)
            await asyncio.sleep(30)
            assert it.kinds() == []

    virtual.run(main())


def test_an_unknown_engine_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with watch() as it:
            stranger = await it.place.open(1, {})
            vllm_like = await it.place.open(2, {"/metrics": metrics()})
            endpoint = it.add(1, engine="")
            it.add(2, engine="")
            await asyncio.sleep(30)
            assert stranger.paths() == ["/metrics"]
            assert len(vllm_like.asked) > 20
            assert it.kinds() == []
            stranger.answers["/metrics"] = metrics()
            endpoint.facts = Facts(engine="vllm")
            await asyncio.sleep(3)
            assert len(stranger.asked) > 1

    with caplog.at_level(logging.WARNING):
        virtual.run(main())
    assert caplog.messages == []


def test_an_unknown_engine_that_told_its_load_once_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with watch() as it:
            stranger = await it.place.open(1, {"/metrics": metrics()})
            it.add(1, engine="")
            await asyncio.sleep(5)
            stranger.answers["/metrics"] = (500, b"")
            await asyncio.sleep(60)
            assert it.kinds() == ["metrics_stale"]
            stranger.answers["/metrics"] = metrics(7)
            await asyncio.sleep(70)
            assert it.kinds() == []
            assert it.seen[-1].load == Load(7, 0)

    virtual.run(main())


def test_a_changed_period_and_timeout_hold_from_the_next_reading_on() -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {"/metrics": metrics()}, takes_s=0.5)
            it.add(1)
            await asyncio.sleep(5)
            it.scraper.period_s = 10.0
            await asyncio.sleep(2)
            engine.asked.clear()
            await asyncio.sleep(100)
            assert 9 <= len(engine.asked) <= 11
            it.seen.clear()
            it.scraper.timeout_s = 0.4
            await asyncio.sleep(100)
            assert it.seen == []

    virtual.run(main())


@pytest.mark.parametrize("known", [100.0, None], ids=["known by a probe", "known by the first look"])
def test_a_later_start_of_the_process_is_told_once(known: float | None) -> None:
    async def main() -> None:
        async with watch() as it:
            engine = await it.place.open(1, {"/metrics": metrics(started_at=100.0)})
            it.add(1, started_at=known)
            for started_at, told in ((100.9, 0), (200.0, 1), (200.0, 1), (150.0, 1), (200.0, 1), (201.5, 2)):
                await asyncio.sleep(3)
                engine.answers["/metrics"] = metrics(started_at=started_at)
                await asyncio.sleep(3)
                assert it.restarted == ["http://127.0.0.1:1"] * told

    virtual.run(main())


def test_a_start_between_probe_and_first_look_is_told() -> None:
    async def main() -> None:
        async with watch() as it:
            await it.place.open(1, {"/metrics": metrics(started_at=200.0)})
            it.add(1, started_at=100.0)
            await asyncio.sleep(3)
            assert it.restarted == ["http://127.0.0.1:1"]

    virtual.run(main())


def test_the_whole_gateway_knows_a_new_process_within_a_reading() -> None:
    """Long before discovery would look at it again by itself."""

    async def main() -> None:
        async with street() as place:
            token = (200, b'{"choices": []}')
            answers = {
                "/v1/models": models("q"),
                "/v1/completions": token,
                "/metrics": metrics(started_at=100.0),
            }
            engine = await place.open(1, answers)
            config = Config(
                listen=Listen(Address("127.0.0.1", 0)),
                models=(Model("q", ("http://127.0.0.1:1",)),),
                scrape=Scrape(period_s=1.0),
            )
            app = GatewayApp(config, place.network, asyncio.get_running_loop().time)
            await app.start()
            await asyncio.sleep(4)
            (endpoint,) = app.house.gateway.table.by_name.values()
            assert (endpoint.state, endpoint.incarnation, endpoint.load) == (READY, 0, Load(1, 0))
            engine.answers["/metrics"] = metrics(started_at=200.0)
            await asyncio.sleep(3)
            assert (endpoint.state, endpoint.incarnation) == (READY, 1)
            await app.stop()

    virtual.run(main())
