"""The load: what it sends when, what it writes down, and that it tells the truth about both."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from maitred.bench.forms import FORMS
from maitred.bench.load import TICK_S
from maitred.bench.shot import Ending, Run, Shot
from maitred.bench.targets import Target
from maitred.net.client import ClientConnection
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import Pool
from maitred.net.virtual import VirtualLoop
from tests.bench.place import (
    JSON_HEAD,
    SALT,
    Listed,
    Script,
    arrival,
    loading,
    serving,
    specified,
    streamed,
    whole,
)
from tests.net.http import turns
from tests.proxy.place import in_virtual_time
from tests.twin import place as twin


def about(expected: Any) -> Any:
    """Within two ticks: when it is sent, and when it is seen that it was due."""
    return pytest.approx(expected, abs=2 * TICK_S)


def steady(_: dict[str, Any]) -> Script:
    """An answer of five tokens, the first after 0.2 s, the others 0.1 s apart."""
    return streamed([0.2, 0.3, 0.4, 0.5, 0.6])


def by_number(run: Run) -> list[Shot]:
    """The shots in order of their numbers."""
    return sorted(run.shots, key=lambda shot: shot.number)


# -- what is sent -------------------------------------------------------------------------------------


@in_virtual_time()
async def test_requests_are_sent_when_they_are_due_whatever_becomes_of_the_others() -> None:
    due = [0.0, 0.1, 0.1, 0.1003, 2.0, 50.0]
    async with serving(lambda _: streamed([10.0])) as place:
        begin = asyncio.get_running_loop().time()
        run = await place.run(Listed(*(arrival(n, at) for n, at in enumerate(due, 1))))
        assert [at - begin for at in place.server.came_at] == about(due)
    shots = by_number(run)
    assert [shot.due_at for shot in shots] == due
    assert all(shot.due_at <= shot.sent_at <= shot.due_at + 2 * TICK_S for shot in shots), "never before"
    assert [shot.ending for shot in shots] == [Ending.COMPLETED] * len(due)
    assert run.duration_s == about(60.0)


@in_virtual_time()
async def test_a_run_may_begin_later() -> None:
    """So that several workers begin at once."""
    async with serving(lambda _: streamed([0.5])) as place:
        begin_at = asyncio.get_running_loop().time() + 5.0
        run = await place.load(Listed(arrival(1, 0.0), arrival(2, 2.0))).run(begin_at)
        assert place.server.came_at == about([begin_at, begin_at + 2.0])
    assert [shot.lag_s for shot in run.shots] == about([0.0, 0.0])
    assert run.duration_s == about(2.5)


@in_virtual_time()
async def test_a_burst_lets_the_loop_read_in_between() -> None:
    sent: list[int] = []

    def watch(_: Shot) -> None:
        sent.append(load.progress.sent)

    async with serving(lambda _: streamed([0.0])) as place:
        load = place.load(Listed(*(arrival(n, 1.0) for n in range(600))), watch=watch)
        await load.run()
    assert sent[0] < 300, "the first was answered before half of them were sent"
    assert sent[-1] == 600


@in_virtual_time()
async def test_what_a_request_says() -> None:
    async with serving(steady) as place:
        target = Target(place.url, "/base", key="sk-1", extra={"temperature": 0})
        one = arrival(1, prompt=10, output=7)
        two = arrival(2, prompt=10, output=7, stream=False)
        three = arrival(3, adapter="lora")
        await place.run(Listed(one), target)
        await place.run(Listed(two, three), Target(place.url, model="named", ignore_eos=False))
        assert place.server.heads[0].startswith(
            b"POST /base/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:"
        )
        assert b"\r\nauthorization: Bearer sk-1\r\n" in place.server.heads[0]
        assert b"authorization" not in place.server.heads[1]
        first, second, third = place.server.asked
    (message,) = first.pop("messages")
    assert message["role"] == "user"
    assert len(message["content"]) == 40
    assert first == {
        "model": "smollm2",
        "max_tokens": 7,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    del second["messages"]
    assert second == {"model": "named", "max_tokens": 7}
    assert third["model"] == "lora"


@pytest.mark.parametrize("form", FORMS)
def test_every_api_of_an_engine(form: str) -> None:
    @in_virtual_time()
    async def ask() -> None:
        async with twin.serving() as place:
            target = Target(place.url, form=FORMS[form])
            streams = (True, False)
            asked = (
                arrival(n, n * 1.0, prompt=40, output=6, stream=stream) for n, stream in enumerate(streams, 1)
            )
            run = await loading(Listed(*asked), target, place.network).run()
        for shot, stream in zip(by_number(run), streams, strict=True):
            assert (shot.ending, shot.why) == (Ending.COMPLETED, "")
            assert shot.prompt_tokens >= 40
            assert shot.tokens == (0 if form == "embeddings" else 6)
            assert not shot.counted
            assert (shot.first_at is not None) is (stream and form != "embeddings")

    ask()


@in_virtual_time()
async def test_connections_are_used_again() -> None:
    async with serving(steady) as place:
        run = await place.run(Listed(*(arrival(n, n * 1.0) for n in range(1, 11))))
        assert len(place.server.lines) == 1
    assert (run.own.connects, run.own.connect_failures) == (1, 0)


@in_virtual_time()
async def test_a_warm_up_is_marked_request_by_request() -> None:
    async with serving(steady) as place:
        run = await place.run(Listed(arrival(1, warm_up=True), arrival(2, 1.0)))
    assert [shot.warm_up for shot in run.shots] == [True, False]
    assert [shot.number for shot in run.measured()] == [2]


# -- what is written down -----------------------------------------------------------------------------


@in_virtual_time()
async def test_the_instants_of_an_answer() -> None:
    async with serving(steady) as place:
        place.network.connect_delay_s = 0.05
        (shot,) = (await place.run(Listed(arrival(at=3.0)), trace=True)).shots
    assert shot.connect_s == pytest.approx(0.05)
    assert shot.sent_at == about(3.05)
    assert shot.lag_s == about(0.0)
    assert shot.ttft_s == about(0.25)
    assert shot.reads_at == about([3.25, 3.35, 3.45, 3.55, 3.65])
    assert shot.e2e_s == about(0.65)
    assert shot.tpot_s == pytest.approx(0.1)
    assert (shot.gaps, shot.tokens) == (4, 5)
    assert shot.gap_max_s == pytest.approx(0.1)


@in_virtual_time()
async def test_a_late_client_counts_from_when_it_should_have_sent() -> None:
    """The loop does something else for 2 s; requests due in that time are sent late, and say so."""
    loop = cast("VirtualLoop", asyncio.get_running_loop())

    def stall() -> None:
        loop._clock.now += 2.0

    async with serving(lambda _: streamed([0.2])) as place:
        loop.call_later(1.2, stall)
        run = await place.run(Listed(*(arrival(n, n * 0.5) for n in range(12))))
    shots = by_number(run)
    lags = [3.2 - at if 1.2 < at < 3.2 else 0.0 for at in (n * 0.5 for n in range(12))]
    assert [shot.lag_s for shot in shots] == about(lags)
    assert [shot.ttft_s for shot in shots][4:] == pytest.approx(
        [lag + 0.2 for lag in lags][4:], abs=3 * TICK_S
    )
    assert run.own.stall_s == pytest.approx(2.0, abs=0.01)


def test_a_server_that_stalls(tmp_path: Path) -> None:
    """It does nothing for 2 s of every 10. From when requests were due, mean and p99 are the truth's."""
    latency_s, period_s, stall_s, rate, duration_s = 0.05, 10.0, 2.0, 25, 400

    @in_virtual_time(2 * duration_s)
    async def measure() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()

        def answer(_: dict[str, Any]) -> Script:
            """Work of `latency_s`, but for the time of the stalls, which are at the end of each period."""
            at = (loop.time() - begin) % period_s
            works_s = period_s - stall_s
            stalled_s = max(0.0, period_s - max(at, works_s)) if at + latency_s > works_s else 0.0
            return streamed([latency_s + stalled_s])

        spec = specified(
            tmp_path,
            "traffic: [{name: a, model: m, prompts: {tokens: 10}, output: 1}]\n"
            f"arrivals: {{stages: [{{rate: {rate}/s, duration: {duration_s}s}}], pattern: constant}}",
        )
        async with serving(answer) as place:
            runs.append(await place.run(spec.workload(Random(SALT))))

    runs: list[Run] = []
    measure()
    ttfts = sorted(cast("float", shot.ttft_s) for shot in runs[0].shots)
    assert len(ttfts) == rate * duration_s
    # Who comes in a stall waits for what is left of it, 1 s in the mean; who is at work waits for all of it.
    mean_s = latency_s + (stall_s * stall_s / 2 + latency_s * stall_s) / period_s
    # Beyond p99 are those at work when a stall begins, and the first of those who come in it.
    p99_s = latency_s + stall_s - (0.01 * period_s - latency_s)
    assert sum(ttfts) / len(ttfts) == pytest.approx(mean_s, rel=0.03)
    assert ttfts[math.ceil(0.99 * len(ttfts)) - 1] == pytest.approx(p99_s, rel=0.03)
    assert max(shot.lag_s for shot in runs[0].shots) <= 2 * TICK_S


@in_virtual_time()
async def test_requests_that_wait_in_our_own_buffers_are_seen() -> None:
    async with serving(steady) as place:
        quick = await place.run(Listed(arrival(prompt=50_000)))
        place.network.latency_s = 0.5
        slow = await place.run(Listed(arrival(prompt=50_000)))
        await asyncio.sleep(1.0)  # its end travels too
    assert quick.own.buffered_bytes == 0
    assert slow.own.buffered_bytes >= 200_000


# -- users and conversations --------------------------------------------------------------------------


def test_users_wait_for_their_answers_and_are_never_more(tmp_path: Path) -> None:
    @in_virtual_time()
    async def measure() -> None:
        spec = specified(
            tmp_path,
            "traffic: [{name: a, model: m, prompts: {tokens: 10}, output: 1}]\n"
            "arrivals: {stages: [{users: 5, think: 1s, duration: 60s}]}",
        )
        async with serving(lambda _: streamed([1.0])) as place:
            run = await place.run(spec.workload(Random(SALT)))
        instants = [(shot.due_at, 1) for shot in run.shots] + [(shot.over_at, -1) for shot in run.shots]
        there = most = 0
        for _, change in sorted(instants):
            there += change
            most = max(most, there)
        assert most == 5
        assert len(run.shots) == pytest.approx(5 * 60 / 2, abs=5), "an answer and a thought are 2 s"

    measure()


@in_virtual_time()
async def test_what_follows_an_end_is_sent_after_it() -> None:
    after = {1: [arrival(2, 1.0)], 2: [arrival(3, 0.0)]}
    workload = Listed(arrival(1), after=after)
    async with serving(lambda _: streamed([0.5])) as place:
        run = await place.run(workload)
    assert [shot.due_at for shot in by_number(run)] == about([0.0, 1.5, 2.0])
    assert [number for number, _ in workload.over_at] == [1, 2, 3]
    assert [at for _, at in workload.over_at] == about([0.5, 2.0, 2.5])


@in_virtual_time()
async def test_a_conversation_sends_back_what_was_said() -> None:
    """And so its second turn is found in the cache, answer and all."""
    first = arrival(1, prompt=200, output=100, conversation=1, turn=1)
    second = arrival(2, 1.0, conversation=1, turn=2)
    second.prompt = (*first.prompt, (first.answer, 100), (77, 50))
    async with twin.serving() as place:
        run = await loading(Listed(first, after={1: [second]}), Target(place.url), place.network).run()
    one, two = by_number(run)
    assert one.tokens == 100
    assert two.cached_tokens == (one.prompt_tokens + 99) // 32 * 32


@in_virtual_time()
async def test_a_conversation_goes_on_after_a_failure() -> None:
    def answer(body: dict[str, Any]) -> Script:
        return steady(body) if len(body["messages"]) > 1 else [(0.1, whole(b"{}").replace(b"200", b"500"))]

    first = arrival(1, prompt=10, conversation=1, turn=1)
    second = arrival(2, 1.0, conversation=1, turn=2)
    second.prompt = (*first.prompt, (first.answer, 5), (77, 5))
    async with serving(answer) as place:
        load = place.load(Listed(first, after={1: [second]}))
        run = await load.run()
        assert [m["role"] for m in place.server.asked[1]["messages"]] == ["user", "assistant", "user"]
    assert [shot.ending for shot in run.shots] == [Ending.FAILED, Ending.COMPLETED]
    assert not load._texts._said, "a conversation that is over is forgotten"


# -- what goes wrong ----------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_client_without_patience_leaves() -> None:
    asked = (
        arrival(1, 0.0, patience_s=0.45),
        arrival(2, 1.0, patience_s=0.7),
        arrival(3, 2.0, patience_s=0.1),
    )
    async with serving(steady) as place:
        run = await place.run(Listed(*asked))
        await turns()
        assert [line.transport is None for line in place.server.lines].count(False) == 0
    one, two, three = by_number(run)
    assert (one.ending, one.why) == (Ending.LEFT, "patience")
    assert one.over_at == about(0.45)
    assert one.tokens == 3, "what had come"
    assert two.ending is Ending.COMPLETED
    assert (three.ending, three.first_at) == (Ending.LEFT, None)


@in_virtual_time()
async def test_patience_counts_from_when_it_was_due() -> None:
    loop = cast("VirtualLoop", asyncio.get_running_loop())

    def stall() -> None:
        loop._clock.now += 1.0

    async with serving(steady) as place:
        loop.call_later(0.9, stall)
        (shot,) = (await place.run(Listed(arrival(1, 1.0, patience_s=1.3)))).shots
    assert shot.sent_at == about(1.9)
    assert (shot.ending, shot.over_at) == (Ending.LEFT, about(2.3))


@in_virtual_time()
async def test_patience_counts_while_a_connection_is_opened() -> None:
    async with serving(steady) as place:
        place.network.hang(*place.address)
        run = await place.run(Listed(arrival(patience_s=2.0)), connect_s=60.0)
    (shot,) = run.shots
    assert (shot.ending, shot.over_at) == (Ending.LEFT, about(2.0))


@in_virtual_time()
async def test_nobody_listens() -> None:
    async with serving(steady) as place:
        place.network.refuse(*place.address)
        run = await place.run(Listed(arrival(1), arrival(2, 1.0)))
    assert [(shot.ending, shot.why) for shot in run.shots] == [(Ending.FAILED, "connect")] * 2
    assert (run.own.connects, run.own.connect_failures) == (0, 2)


@in_virtual_time()
async def test_waiting_for_a_connection_that_never_comes_is_not_the_clients_lag() -> None:
    async with serving(steady) as place:
        place.network.hang(*place.address)
        (shot,) = (await place.run(Listed(arrival()), connect_s=5.0)).shots
    assert (shot.ending, shot.over_at) == (Ending.FAILED, about(5.0))
    assert shot.connect_s == about(5.0)
    assert shot.lag_s == about(0.0)


@in_virtual_time()
async def test_a_connection_closed_unnoticed_costs_another_not_the_request() -> None:
    def answer(_: dict[str, Any]) -> Script:
        return [(0.0, None)] if len(place.server.asked) == 2 else streamed([0.1])

    async with serving(answer) as place:
        run = await place.run(Listed(arrival(1), arrival(2, 1.0)))
        assert len(place.server.asked) == 3
    assert [shot.ending for shot in run.shots] == [Ending.COMPLETED] * 2
    assert run.own.connects == 2


@in_virtual_time()
async def test_a_fresh_connection_that_breaks_is_a_failure() -> None:
    async with serving(lambda _: [(0.1, None)]) as place:
        run = await place.run(Listed(arrival()))
    assert [(shot.ending, shot.why) for shot in run.shots] == [(Ending.FAILED, "reset")]


@in_virtual_time()
async def test_connections_that_are_never_of_use_are_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = Pool.connect

    async def lost(pool: Pool, url: str) -> ClientConnection:
        connection = await connect(pool, url)
        connection.abort()
        return connection

    monkeypatch.setattr(Pool, "connect", lost)
    async with serving(steady) as place:
        run = await place.run(Listed(arrival()))
    assert [(shot.ending, shot.why) for shot in run.shots] == [(Ending.FAILED, "stale_connection")]
    assert run.own.connects == 1


@pytest.mark.parametrize(
    ("fault", "ending", "why"),
    [
        ("status=503", Ending.REFUSED, "status_503"),
        ("status=500", Ending.FAILED, "status_500"),
        ("reset=3", Ending.FAILED, "truncated"),
        ("hang", Ending.LEFT, "patience"),
    ],
)
def test_faults_of_an_engine(fault: str, ending: Ending, why: str) -> None:
    @in_virtual_time()
    async def ask() -> None:
        async with twin.serving() as place:
            await place.post(f"/twin/{fault}")
            run = await loading(Listed(arrival(patience_s=5.0)), Target(place.url), place.network).run()
        assert [(shot.ending, shot.why) for shot in run.shots] == [(ending, why)]

    ask()


@in_virtual_time(5000.0)
async def test_silence_has_an_end() -> None:
    async with serving(lambda _: [(0.1, JSON_HEAD + b"content-length: 9\r\n\r\n{")]) as place:
        run = await place.run(Listed(arrival(stream=False)), silence_s=30.0)
    assert [(shot.ending, shot.why) for shot in run.shots] == [(Ending.FAILED, "idle_timeout")]
    assert run.duration_s == pytest.approx(30.0, abs=1.0)


@in_virtual_time(5000.0)
async def test_an_answer_without_end_has_one() -> None:
    async with serving(lambda _: streamed([float(n) for n in range(100)])[:-1]) as place:
        run = await place.run(Listed(arrival()), answer_s=60.0)
    assert [(shot.ending, shot.why) for shot in run.shots] == [(Ending.LEFT, "too_long")]
    assert run.duration_s == about(60.0)


# -- the end ------------------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_run_that_is_ended_keeps_what_there_is() -> None:
    asked = [arrival(n, n * 1.0) for n in range(10)]
    workload = Listed(*asked, after={3: [arrival(99)]})
    async with serving(steady) as place:
        load = place.load(workload)
        asyncio.get_running_loop().call_later(3.35, load.stop)
        run = await load.run()
    assert run.ended_early
    assert run.duration_s == pytest.approx(3.35)
    assert [shot.ending for shot in by_number(run)] == [Ending.COMPLETED] * 3 + [Ending.LEFT]
    assert run.shots[-1].why == "run ended"
    assert [number for number, _ in workload.over_at] == [0, 1, 2], "nothing follows from a cut"
    assert run.shots[-1].tokens == 2


@in_virtual_time()
async def test_a_run_that_is_ended_before_it_began() -> None:
    async with serving(steady) as place:
        load = place.load(Listed(arrival()))
        asyncio.get_running_loop().call_later(1.0, load.stop)
        run = await load.run(asyncio.get_running_loop().time() + 5.0)
    assert (run.shots, run.duration_s, run.ended_early) == ([], 0.0, True)


@in_virtual_time()
async def test_a_cancelled_run_leaves_nothing() -> None:
    async with serving(steady) as place:
        place.network.hang(*place.address)
        running = asyncio.create_task(place.run(Listed(arrival(), arrival(2, 90.0))))
        await asyncio.sleep(1.0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await turns()
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time()
async def test_nothing_to_send() -> None:
    run = await loading(Listed(), Target("http://127.0.0.1:1"), MemoryNetwork()).run()
    assert (run.shots, run.ended_early, run.duration_s) == ([], False, 0.0)


@in_virtual_time()
async def test_how_it_stands_and_what_it_was() -> None:
    seen: list[tuple[int, int, float]] = []

    def watch(shot: Shot) -> None:
        progress = load.progress
        seen.append((shot.number, progress.in_flight, progress.at))

    async with serving(steady) as place:
        load = place.load(
            Listed(arrival(1), arrival(2, 0.1, tenant="t", stage=3)),
            watch=watch,
            name="chat.yaml",
            kinds=("even", "odd"),
            seed=5,
            slo_ttft_s=2.0,
        )
        run = await load.run()
    assert [number for number, _, _ in seen] == [1, 2]
    assert [in_flight for _, in_flight, _ in seen] == [1, 0]
    assert load.progress.endings == [2, 0, 0, 0]
    assert load.progress.sent == 2
    assert [ttft_s for _, ttft_s in load.progress.recent] == about([0.2, 0.2])
    assert [(shot.kind, shot.tenant, shot.stage) for shot in run.shots] == [
        ("even", "anonymous", 0),
        ("odd", "t", 3),
    ]
    assert (run.workload, run.seed, run.slo_ttft_s, run.target) == ("chat.yaml", 5, 2.0, place.url)
