"""Ten minutes of everything at once: whatever goes wrong, each request has one end and nothing is left of it.

`SOAK_S` sets another duration in seconds, `SOAK_SEED` another seed. Run it by `make test-slow`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom
from statistics import linear_regression
from typing import Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.children import Gateway, get
from tests.slow.book import COMPLETED, Book
from tests.slow.crowd import KINDS, Visit
from tests.slow.engines import Engine
from tests.slow.weather import Weather, endpoints

DURATION_S = float(os.environ.get("SOAK_S", "600"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or SystemRandom().randrange(1, 10**6)
ENGINES, POOLS = 4, 2
VISITS_PER_S = 45.0
"""Each is two or three requests on average."""
AT_ONCE_MAX = 300
VISIT_S_MAX = 40.0
"""No visit takes so long, unless something hangs."""
LEAVING_S = 30.0
SAMPLE_S, REPORT_S = 1.0, 30.0
GROWTH_BYTES_MAX = 8 * 1024 * 1024
GAUGES = {
    f"maitred_{name}"
    for name in ("in_flight", "queued", "endpoint_in_flight", "client_connections", "upstream_connections")
}

Say = Callable[[str], object]


class Watch:
    """What the gateway's process takes, each second: since when, resident bytes, open files."""

    def __init__(self, gateway: Gateway) -> None:
        self.samples: list[tuple[float, int, int]] = []
        self._proc = Path(f"/proc/{gateway.process.pid}")
        self._began = time.monotonic()
        self.files = self.open_files()

    def open_files(self) -> int:
        """How many it has open now."""
        return len(os.listdir(self._proc / "fd"))  # noqa: PTH208 - only their number is of use

    def look(self) -> None:
        """Take a sample."""
        pages = int((self._proc / "statm").read_text().split()[1])
        age_s = time.monotonic() - self._began
        self.samples.append((age_s, pages * os.sysconf("SC_PAGE_SIZE"), self.open_files()))

    def growth_bytes(self) -> float:
        """By how much it grew from the end of the first fifth to the last sample, by the line of best fit."""
        settled = [sample for sample in self.samples if sample[0] > self.samples[-1][0] / 5]
        line = linear_regression([age_s for age_s, _, _ in settled], [rss for _, rss, _ in settled])
        return line.slope * (settled[-1][0] - settled[0][0])

    def __str__(self) -> str:
        age_s, rss, files = self.samples[-1]
        return f"{age_s:4.0f} s: {rss / 2**20:.1f} MiB, {files} files"


@asynccontextmanager
async def serving(engines: list[Engine]) -> AsyncIterator[None]:
    """Have the engines open, and see that nothing went wrong that nobody would hear of."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    try:
        for engine in engines:
            await engine.open()
        yield
    finally:
        for engine in engines:
            engine.close()
    assert not faults, faults


async def visit(number: int, book: Book, port: int) -> None:
    """One visit, whose kind and course depend only on the seed and its number."""
    rng = Random(f"{SEED}/{number}")
    ((_, kind),) = rng.choices(KINDS, [weight for weight, _ in KINDS])
    visit = Visit(book, port, rng)
    try:
        async with asyncio.timeout(VISIT_S_MAX):
            await kind(visit)
    except BaseException as error:
        error.add_note(f"in visit {number} with seed {SEED}: {kind.__name__}")
        raise
    finally:
        visit.leave()


async def crowd(book: Book, port: int) -> None:
    """Visits at random instants for as long as it is to take, and until the last is over."""
    rng, until, number = Random(SEED), time.monotonic() + DURATION_S, 0
    places = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(number: int) -> None:
        async with places:
            await visit(number, book, port)

    async with asyncio.TaskGroup() as group:
        while time.monotonic() < until:
            number += 1
            group.create_task(one(number))
            await asyncio.sleep(rng.expovariate(VISITS_PER_S))


async def report(watch: Watch, book: Book, say: Say) -> None:
    """Look each second, and say each half minute how it goes."""
    told_s = 0.0
    while True:
        watch.look()
        if watch.samples[-1][0] - told_s >= REPORT_S:
            told_s = watch.samples[-1][0]
            say(f"{watch}, {book.seen.total()} requests: {dict(book.seen.most_common())}")
        await asyncio.sleep(SAMPLE_S)


async def settled(left_over: Callable[[], object]) -> None:
    """Wait until nothing is left over."""
    deadline = time.monotonic() + LEAVING_S
    while left := await asyncio.to_thread(left_over):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)


def gauges(gateway: Gateway) -> dict[str, float]:
    """Those that must be zero when nobody is there, whatever their labels."""
    families = text_string_to_metric_families(get(gateway.admin_port, "/metrics")[2].decode())
    return {one.name: sum(sample.value for sample in one.samples) for one in families if one.name in GAUGES}


def at_work(gateway: Gateway) -> dict[str, float]:
    """Those of them that are not."""
    return {name: value for name, value in gauges(gateway).items() if value}


def unready(gateway: Gateway) -> list[str]:
    """The endpoints that are not ready, or not even there."""
    rows = endpoints(gateway)
    missing = ["(missing)"] * (ENGINES * POOLS - len(rows))
    return [row["name"] for row in rows if row["state"] != "ready"] + missing


async def soak(gateway: Gateway, engines: list[Engine], weather: Weather, book: Book, say: Say) -> None:
    """Everything at once, and then what is left of it: nothing."""
    await settled(lambda: unready(gateway))
    await settled(lambda: at_work(gateway))
    watch = Watch(gateway)
    changes: list[Coroutine[None, None, None]] = [
        weather.outages(), weather.drains(gateway), weather.moves(), weather.reconfigurations(gateway)
    ]  # fmt: skip
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(report(watch, book, say))
        changing = [group.create_task(change) for change in changes]
        await crowd(book, gateway.port)
        weather.calm.set()
        await asyncio.wait(changing)
        reporting.cancel()
    await settled(lambda: unready(gateway))
    await settled(lambda: at_work(gateway))
    assert gauges(gateway).keys() == GAUGES
    await settled(
        lambda: max(0, watch.open_files() - watch.files)
    )  # an engine may have been asked at the start
    assert [engine.busy for engine in engines] == [0] * ENGINES
    say(f"{watch}, growth {watch.growth_bytes() / 2**20:.1f} MiB")
    assert watch.growth_bytes() < GROWTH_BYTES_MAX


def check_log(gateway: Gateway, book: Book, counted: float) -> None:
    """Log, metrics and clients agree, and nothing is said of a bug."""
    assert "Traceback" not in gateway.output
    lines = [json.loads(line) for line in gateway.lines]
    serious = [line for line in lines if line.get("level") in ("error", "critical")]
    assert serious == []
    assert book.audit(line for line in lines if "outcome" in line) == counted
    assert book.seen[COMPLETED] > counted / 3, "most engines are well most of the time"


@pytest.mark.slow
def test_whatever_goes_wrong_each_request_has_one_end_and_nothing_is_left_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(words: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\nsoak: {words}")
            sys.stdout.flush()

    async def main() -> None:
        say(f"{DURATION_S:g} s, seed {SEED}")
        book, rng = Book(), Random(f"{SEED}/weather")
        engines = [Engine(book, Random(f"{SEED}/engine {number}")) for number in range(ENGINES)]
        async with serving(engines):
            weather = Weather(tmp_path, engines, rng)
            with Gateway("serve", "-c", str(weather.config), cwd=tmp_path) as gateway:
                await soak(gateway, engines, weather, book, say)
                counted = gateway.metric("requests_total")
                assert gateway.metric("access_log_dropped_total") == 0
                gateway.signal(signal.SIGTERM)
                assert await asyncio.to_thread(gateway.wait) == 0
                check_log(gateway, book, counted)
                say(f"{counted:g} requests, reloads {weather.reloads}, {dict(book.seen.most_common())}\n")

    uvloop.run(main())
