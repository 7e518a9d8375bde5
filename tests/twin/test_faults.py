"""Failures on demand: one vocabulary, by flag, by header and by call, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.twin.faults import NONE, Fault, parse
from maitred.twin.twin import Options
from tests.net.http import Broken, post, turns
from tests.proxy.place import in_virtual_time, took
from tests.twin.place import CHAT, Place, chat, events, serving


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("", NONE),
        ("status=503", Fault(status=503)),
        (" status=429 , rate=0.25 ", Fault(status=429, rate=0.25)),
        ("hang,metrics-stop", Fault(hang=True, metrics_stop=True)),
        ("crash", Fault(crash=True)),
        ("reset=0,slow=2.5", Fault(reset=0, slow=2.5)),
    ],
)
def test_words_are_read(words: str, fault: Fault) -> None:
    assert parse(words) == fault


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("explode", "there are status=503, reset=20, slow=3, rate=0.1, hang, crash, metrics-stop"),
        ("status", "status takes a number from 400 to 599, as in status=503"),
        ("status=200", "from 400 to 599"),
        ("rate=1.5", "from 0 to 1"),
        ("slow=0", "slow takes a number from 0.001"),
        ("slow=nan", "slow takes a number"),
        ("hang=1", "no failure"),
    ],
)
def test_other_words_are_refused_with_those_there_are(words: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(words)


FAULTS = st.builds(
    Fault,
    status=st.none() | st.integers(400, 599),
    hang=st.booleans(),
    reset=st.none() | st.integers(0, 1000),
    slow=st.none() | st.integers(1, 50).map(float),
    crash=st.booleans(),
    metrics_stop=st.booleans(),
    rate=st.sampled_from([0.0, 0.25, 1.0]),
)


@given(FAULTS)
def test_words_are_written_as_they_are_read(fault: Fault) -> None:
    assert parse(fault.words) == fault
    assert bool(fault) == (fault != NONE)
    assert (fault | NONE, NONE | fault) == (fault, fault)


# -- what a request meets -----------------------------------------------------------------------------


@in_virtual_time()
async def test_a_header_is_about_its_request_alone() -> None:
    async with serving() as place:
        failed = await place.chat("x-twin-fail: status=503", max_tokens=2)
        served = await place.chat(max_tokens=2)
        refused = await place.chat("x-twin-fail: explode", max_tokens=2)
    assert failed.status == 503
    assert failed.json["error"]["type"] == "InternalServerError"
    assert served.status == 200
    assert (refused.status, refused.json["error"]["param"]) == (400, "x-twin-fail")


@in_virtual_time()
async def test_a_flag_is_about_every_request_or_a_share_of_them() -> None:
    async with serving(Options(fault=parse("status=500"))) as place:
        assert [(await place.chat(max_tokens=1)).status for _ in range(3)] == [500] * 3
        assert (await place.get("/health")).status == 200
    async with serving(Options(fault=parse("status=500,rate=0.3"), seed=1)) as place:
        statuses = [(await place.chat(max_tokens=1)).status for _ in range(100)]
        by_header = [
            (await place.chat("x-twin-fail: status=404,rate=0", max_tokens=1)).status for _ in range(9)
        ]
    assert 20 <= statuses.count(500) <= 40
    assert 404 not in by_header


@pytest.mark.parametrize("stream", [False, True])
def test_a_hanging_request_is_never_answered(stream: bool) -> None:
    @in_virtual_time()
    async def hang() -> None:
        async with serving() as place:
            client = await place.client()
            client.send(post(CHAT, chat(stream=stream), "x-twin-fail: hang"))
            await asyncio.sleep(60)
            assert not client.received
            assert not client.over
            assert (await place.chat(max_tokens=1)).status == 200
            client.leave()

    hang()


@pytest.mark.parametrize("after", [0, 1, 7, 50])
def test_a_connection_is_reset_after_so_many_tokens(after: int) -> None:
    @in_virtual_time()
    async def break_off() -> None:
        async with serving() as place:
            client = await place.client()
            client.send(post(CHAT, chat(stream=True, max_tokens=50), f"x-twin-fail: reset={after}"))
            with pytest.raises(Broken):
                await client.answer()
            assert bytes(client.received).count(b'"token_ids"') == after
            assert not place.twin.service.live.tracks
            whole = await place.client()
            whole.send(post(CHAT, chat(max_tokens=50), f"x-twin-fail: reset={after}"))
            with pytest.raises(Broken):
                await whole.answer()
            assert not whole.received

    break_off()


# -- what the engine meets ----------------------------------------------------------------------------


@in_virtual_time()
async def test_a_slow_engine_takes_so_many_times_as_long() -> None:
    async with serving(prefix_caching=False) as place:
        usual_s = await took(place.chat(max_tokens=20))
        state = (await place.post("/twin/slow=3")).json
        slow_s = await took(place.chat(max_tokens=20))
        await place.post("/twin/recover")
        again_s = await took(place.chat(max_tokens=20))
    assert state["fault"] == "slow=3"
    assert slow_s == pytest.approx(3 * usual_s)
    assert again_s == pytest.approx(usual_s)


@in_virtual_time()
async def test_a_request_may_make_the_engine_slow() -> None:
    async with serving(prefix_caching=False) as place:
        usual_s = await took(place.chat(max_tokens=20))
        await place.chat("x-twin-fail: slow=2", max_tokens=1)
        assert await took(place.chat(max_tokens=20)) == pytest.approx(2 * usual_s)
        assert (await place.get("/twin")).json["fault"] == "slow=2"


@in_virtual_time()
async def test_a_hung_engine_stands_still_and_goes_on() -> None:
    async with serving() as place:
        running = await place.client()
        running.send(post(CHAT, chat(stream=True, max_tokens=50, ignore_eos=True)))
        await asyncio.sleep(0.2)
        await place.post("/twin/hang")
        waits = await place.client()
        waits.send(post(CHAT, chat(max_tokens=1)))
        await turns()
        had = len(running.received)
        await asyncio.sleep(60)
        assert len(running.received) == had
        assert not waits.received
        assert (await place.get("/health")).status == 200, "as of a real one that hangs"
        assert (await place.get("/metrics")).status == 200
        await place.post("/twin/recover")
        assert len(events((await running.answer()).body)) == 52
        waits.leave()
        running.leave()


@in_virtual_time()
async def test_metrics_stop_alone() -> None:
    async with serving() as place:
        await place.post("/twin/metrics-stop")
        assert (await place.get("/metrics")).status == 500
        assert (await place.chat(max_tokens=1)).status == 200
        await place.post("/twin/recover")
        assert (await place.get("/metrics")).status == 200


async def phases(place: Place, times: int) -> list[str]:
    """What the twin says it is at, each half second."""
    seen = []
    for _ in range(times):
        seen.append((await place.get("/twin")).json["phase"])
        await asyncio.sleep(0.5)
    return seen


@pytest.mark.parametrize("by", ["call", "header"])
def test_a_crash_resets_everybody_and_starts_anew(by: str) -> None:
    @in_virtual_time()
    async def crash() -> None:
        long = {"messages": [{"role": "user", "content": "word " * 100}], "max_tokens": 50}
        async with serving() as place:
            await place.chat(**long)
            clients = [await place.client() for _ in range(3)]
            for client in clients[:2]:
                client.send(post(CHAT, chat(stream=True, **long)))
            await asyncio.sleep(0.3)
            killer = await place.client()
            killer.send(
                post("/twin/crash", b"") if by == "call" else post(CHAT, chat(), "x-twin-fail: crash")
            )
            await turns()
            assert [client.over for client in clients] == [True] * 3
            if by == "call":  # who asks for it is told
                assert (await killer.answer()).json["phase"] == "process"
            else:
                assert killer.over
            killer.leave()
            assert (await place.get("/health")).status == 503
            assert (await place.chat(max_tokens=1)).status == 503
            await asyncio.sleep(0.1)
            assert await phases(place, 7) == ["process"] * 2 + ["weights"] * 4 + ["ready"]
            assert (await place.get("/health")).status == 200
            assert place.twin.service.live.counts.ends["abort"] == 0, "they died with those who counted"
            usage = (await place.chat(**long)).json["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0

    crash()


@in_virtual_time()
async def test_a_crash_in_the_middle_of_telling_others() -> None:
    async with serving() as place:
        first = await place.client()
        first.send(post(CHAT, chat(max_tokens=50, stream=True)))
        await asyncio.sleep(0.05)  # the others come into one step, and end in one
        client = await place.client()
        crash = post(CHAT, chat(), "x-twin-fail: crash")
        client.send(post(CHAT, chat(max_tokens=5)) + crash)
        others = [await place.client() for _ in range(2)]
        for other in others:
            other.send(post(CHAT, chat(max_tokens=5, stream=True)))
        for one in (first, client, *others):
            await one.closed()
        live = place.twin.service.live
        assert not live.tracks
        assert not any(sum(histogram.counts) for histogram in live.counts.histograms.values())
        assert not any(live.counts.ends.values())


@in_virtual_time()
async def test_what_was_told_to_a_process_is_lost_with_it_but_not_what_is_wrong() -> None:
    async with serving() as place:
        await place.post("/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": "/sql"})
        await place.post("/sleep")
        await place.post("/twin/slow=2,crash")
        await asyncio.sleep(3.0)
        assert (await place.get("/is_sleeping")).json == {"is_sleeping": False}
        assert (await place.chat(model="sql")).status == 404
        assert (await place.get("/twin")).json["fault"] == "slow=2"
        slow_s = await took(place.chat(max_tokens=20))
        await place.post("/twin/recover")
        assert slow_s == pytest.approx(2 * await took(place.chat(max_tokens=20)))


@in_virtual_time()
async def test_a_crash_may_be_the_end() -> None:
    async with serving() as place:
        ends: list[str] = []
        place.twin._died = lambda: ends.append("over")
        await place.post("/twin/crash")
        assert ends == ["over"]


@in_virtual_time()
async def test_a_cold_twin_begins_with_its_start() -> None:
    async with serving(Options(cold=True)) as place:
        assert (await place.get("/v1/models")).status == 503
        await asyncio.sleep(3.0)
        assert (await place.get("/v1/models")).status == 200


@in_virtual_time()
async def test_an_admin_call_takes_words_as_path_or_body_and_says_how_it_is() -> None:
    async with serving() as place:
        by_body = await place.post("/twin/fail", b"status=503,rate=0.1")
        by_path = await place.post("/twin/status=429,rate=0.5")
        wrong = await place.post("/twin/explode")
        state = (await place.get("/twin")).json
    assert by_body.json["fault"] == "status=503,rate=0.1"
    assert by_path.json["fault"] == state["fault"] == "status=429,rate=0.5"
    assert wrong.status == 400
    assert state["phase"] == "ready"
