"""One request's life when engines fail: mended before content, never after it, and told once."""

from __future__ import annotations

import asyncio

import pytest

from maitred.config.tree import Health, Upstream
from maitred.core.words import EndpointState
from tests.proxy.faults import (
    AFTER_CONTENT,
    BEFORE_ANY_ANSWER,
    BEFORE_CONTENT,
    CUT_WHOLE,
    ERROR_BODY,
    SPOKEN,
    broken_off,
    cut,
    last_resort,
    mended,
)
from tests.proxy.place import ASKS_USAGE, STREAM, WHOLE, in_virtual_time, serving, took
from tests.proxy.upstream import (
    DONE,
    ERROR,
    GOOD,
    GOOD_STREAM,
    JSON,
    ROLE,
    SILENCE,
    End,
    chunk,
    head,
    stream,
    whole,
)

EJECTED, READY = EndpointState.EJECTED, EndpointState.READY


# -- before content: mended elsewhere, invisibly ------------------------------------------------------


@pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", BEFORE_ANY_ANSWER)
@in_virtual_time()
async def test_a_failure_before_any_answer_is_mended(fault: str, request_: bytes) -> None:
    plan = BEFORE_ANY_ANSWER[fault]
    async with serving(plan, last_resort(request_), kitchens=2) as place:
        await place.drop_idle()
        await mended(place, request_)


@pytest.mark.parametrize("fault", BEFORE_CONTENT)
@in_virtual_time()
async def test_a_failure_of_a_stream_before_its_content_is_mended(fault: str) -> None:
    async with serving(BEFORE_CONTENT[fault], GOOD_STREAM, kitchens=2) as place:
        await mended(place, STREAM)


@pytest.mark.parametrize("fault", CUT_WHOLE)
@in_virtual_time()
async def test_a_whole_answer_that_breaks_off_is_mended(fault: str) -> None:
    async with serving(CUT_WHOLE[fault], GOOD, kitchens=2) as place:
        await mended(place, WHOLE)


# -- when no seat is left -----------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", sorted(BEFORE_ANY_ANSWER.keys() - {"429"}))
@in_virtual_time()
async def test_when_both_endpoints_fail_the_client_is_told_once(fault: str, request_: bytes) -> None:
    async with serving(BEFORE_ANY_ANSWER[fault], kitchens=3) as place:
        await place.drop_idle()
        answer = await place.ask(request_)
        assert answer.status == 502
        assert answer.value(b"x-should-retry") == b"false"
        assert answer.value(b"content-type") == b"application/json"
        assert answer.values(b"retry-after") == answer.values(b"x-leak") == []
        assert answer.json["error"]["type"] == "server_error"
        assert isinstance(answer.json["error"]["code"], str)
        assert answer.value(b"x-request-id").decode() == place.lines[0]["id"]
        assert len({asked.kitchen for asked in place.menu.asked}) == len(place.menu.asked) == 2
        assert [answer.outcome] == place.outcomes
        cut = fault == "head only" and request_ is WHOLE  # to a stream request it is no stream, and refused
        assert answer.outcome == ("failed_truncated" if cut else "failed_upstream")


@pytest.mark.parametrize("fault", BEFORE_CONTENT)
@in_virtual_time()
async def test_a_stream_that_fails_at_the_only_endpoint_is_an_error_answer(fault: str) -> None:
    async with serving(BEFORE_CONTENT[fault]) as place:
        answer = await place.ask(STREAM)
        assert answer.status == 502
        assert answer.value(b"content-type") == b"application/json"
        assert answer.value(b"x-should-retry") == b"false"
        assert place.outcomes == [answer.outcome]
        assert answer.outcome in ("failed_upstream", "failed_truncated")
        assert b"fire" not in answer.body  # the engine's words may hold the client's


@pytest.mark.parametrize(
    ("after", "waits"),
    [("7", b"7"), ("0", b"1"), ("99", b""), ("Wed, 21 Oct 2015 07:28:00 GMT", b"1"), ("", b"1")],
)
@in_virtual_time()
async def test_the_only_endpoints_429_is_passed_on_with_its_wait(after: str, waits: bytes) -> None:
    lines = [f"retry-after: {after}"] if after else []
    async with serving([whole(ERROR_BODY, *lines, status=429)]) as place:
        answer = await place.ask(STREAM)
        assert answer.status == 429
        assert answer.json["error"]["code"] == "server_overloaded"
        assert answer.value(b"retry-after") == waits
        assert answer.value(b"retry-after-ms") == (waits + b"000" if waits else b"")
        assert answer.value(b"x-should-retry") == (b"true" if waits else b"false")
        assert place.outcomes == [answer.outcome] == ["engine_overloaded"]


@in_virtual_time()
async def test_how_often_a_request_is_seated_is_a_setting() -> None:
    async with serving([End.RESET], kitchens=3, upstream=Upstream(attempts=1)) as place:
        await place.drop_idle()
        assert (await place.ask()).status == 502
        assert len(place.menu.asked) == 1


# -- after content: told in the stream, never repeated ------------------------------------------------


@pytest.mark.parametrize("request_", [STREAM, ASKS_USAGE], ids=["usage hidden", "usage asked for"])
@pytest.mark.parametrize("fault", AFTER_CONTENT)
@in_virtual_time()
async def test_a_failure_after_content_ends_the_stream_with_an_error(fault: str, request_: bytes) -> None:
    plan, outcome = AFTER_CONTENT[fault]
    async with serving(plan, GOOD, kitchens=2) as place:
        assert await took(broken_off(place, outcome, request_)) <= 1.0


@in_virtual_time()
async def test_an_engines_own_error_after_content_is_passed_on_and_counted() -> None:
    async with serving(stream(*SPOKEN, ERROR, DONE), kitchens=2) as place:
        answer = await place.ask(STREAM)
        assert answer.body == b"".join((*SPOKEN, ERROR, DONE))
        assert place.outcomes == ["failed_upstream"]
        assert len(place.menu.asked) == 1


@pytest.mark.parametrize("until_close", [False, True])
@in_virtual_time()
async def test_a_committed_whole_answer_that_breaks_off_does_not_look_whole(until_close: bool) -> None:
    body = b'{"x":"' + b"y" * 100_000 + b'"}'
    framing = "transfer-encoding: chunked" if until_close else f"content-length: {len(body)}"
    part = chunk(body[:80_000]) if until_close else body[:80_000]
    async with serving([head(200, framing), part, 0.5, End.CLOSE], kitchens=2) as place:
        answer = await cut(place, WHOLE)
        assert body.startswith(answer.body)
        assert place.outcomes == ["failed_truncated"]
        assert len(place.menu.asked) == 1


@in_virtual_time()
async def test_bytes_after_the_end_of_an_answer_reach_nobody() -> None:
    async with serving([whole(JSON) + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"], GOOD) as place:
        answer = await place.ask()
        assert b"poison" not in answer.body
        assert (await place.ask()).body == JSON
        assert place.menu.asked[0].connection != place.menu.asked[1].connection


@in_virtual_time()
async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async with serving(
        [whole(JSON), 0.5, b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"], GOOD
    ) as place:
        assert (await place.ask()).body == JSON
        await place.menu.asked[0].lost.wait()
        assert (await place.ask()).body == JSON


# -- connecting ---------------------------------------------------------------------------------------


@in_virtual_time()
async def test_an_endpoint_that_refuses_connections_is_left_alone_until_a_probe_is_answered() -> None:
    async with serving(kitchens=2, health=Health(generate=False, slow_start_s=0.0)) as place:
        gone, other = place.kitchens
        place.memory.refuse(*gone.address)
        await place.drop_idle()
        for _ in range(4):
            assert (await place.ask()).status == 200
        assert {asked.kitchen for asked in place.menu.asked} == {other.number}
        assert sorted(place.states) == [READY, EJECTED]
        assert sorted(line["attempts"] for line in place.lines) == [1, 1, 1, 2]
        probes = gone.probes
        place.memory.heal(*gone.address)
        assert await took(place.until(lambda: place.states == [READY] * 2)) <= 1.1
        assert gone.probes == probes + 1
        for _ in range(4):
            assert (await place.ask()).status == 200
        assert {asked.kitchen for asked in place.menu.asked[4:]} == {0, 1}


@in_virtual_time()
async def test_when_nobody_is_left_requests_are_refused_at_once() -> None:
    async with serving() as place:
        place.memory.refuse(*place.kitchens[0].address)
        await place.drop_idle()
        assert (await place.ask()).outcome == "failed_upstream"
        answer = await place.ask()
        assert (answer.status, answer.outcome) == (503, "no_endpoint")
        assert answer.value(b"retry-after") == b"1"
        assert place.outcomes == ["failed_upstream", "no_endpoint"]


@in_virtual_time()
async def test_a_connect_that_hangs_is_given_up_after_two_seconds() -> None:
    async with serving(kitchens=2) as place:
        place.memory.hang(*place.kitchens[0].address)
        await place.drop_idle()
        waits = [await took(place.ask()) for _ in range(4)]
        assert sorted(waits) == [0, 0, 2.0, 2.0]
        assert place.outcomes == ["completed"] * 4
        assert sorted(place.states) == [READY, EJECTED]


# -- pooled connections -------------------------------------------------------------------------------


@in_virtual_time()
async def test_connections_are_used_again() -> None:
    async with serving() as place:
        for _ in range(5):
            assert (await place.ask()).body == JSON
        assert len({asked.connection for asked in place.menu.asked}) == 1
        assert place.app.pool.open == place.app.pool.idle == 1


@pytest.mark.parametrize("status", [429, 503])
@in_virtual_time()
async def test_a_connection_on_which_an_engine_refused_is_used_again(status: int) -> None:
    async with serving([whole(ERROR_BODY, status=status)]) as place:
        for _ in range(3):
            await place.ask()
        assert len(place.menu.asked) == 3
        assert len({asked.connection for asked in place.menu.asked}) == 1
        assert place.app.pool.open == place.app.pool.idle == 1


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
@in_virtual_time()
async def test_a_pooled_connection_that_dies_unanswered_is_replaced_once(end: End) -> None:
    async with serving(GOOD, [end], GOOD) as place:
        assert (await place.ask()).body == JSON
        assert (await place.ask()).body == JSON
        assert len(place.menu.asked) == 3
        assert [line["attempts"] for line in place.lines] == [1, 1]
        assert place.outcomes == ["completed"] * 2


@in_virtual_time()
async def test_a_fresh_connection_that_dies_too_is_a_failure() -> None:
    async with serving(GOOD, [End.RESET]) as place:
        assert (await place.ask()).body == JSON
        assert (await place.ask()).status == 502
        assert len(place.menu.asked) == 3
        assert place.outcomes == ["completed", "failed_upstream"]


@in_virtual_time()
async def test_an_engine_that_closes_what_is_idle_costs_nobody_anything() -> None:
    async with serving([whole(JSON), 1.0, End.CLOSE]) as place:
        for _ in range(4):
            assert (await place.ask()).body == JSON
            await asyncio.sleep(1.5)
        assert place.outcomes == ["completed"] * 4
        assert all(line["attempts"] == 1 for line in place.lines)


@in_virtual_time()
async def test_an_idle_connection_is_closed_before_the_engine_would() -> None:
    async with serving() as place:
        await place.ask()
        assert 3.7 <= await took(place.menu.asked[0].lost.wait()) <= 4.5
        assert place.app.pool.open == 0


# -- an engine that says nothing ----------------------------------------------------------------------


@pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
@in_virtual_time(1000)
async def test_no_answer_within_the_first_bytes_time_is_a_deadline(request_: bytes) -> None:
    async with serving(SILENCE, kitchens=2) as place:
        client = await place.client()
        client.send(request_)
        assert 600 <= await took(client.answer()) <= 600.5
        assert place.outcomes == ["failed_deadline"]
        assert place.lines[0]["status"] == 504
        assert len(place.menu.asked) == 1  # a repeat would pay the generation again
        assert place.menu.asked[0].lost.is_set()


@in_virtual_time(1000)
async def test_silence_after_the_head_is_a_failure() -> None:
    async with serving([head(200, "content-length: 100")], kitchens=2) as place:
        client = await place.client()
        client.send(WHOLE)
        assert 300 <= await took(client.heard(b"502")) <= 300.5
        assert place.outcomes == ["failed_upstream"]
        assert len(place.menu.asked) == 1


@in_virtual_time(1000)
async def test_silence_within_a_stream_ends_it_with_an_error() -> None:
    async with serving([*stream(*SPOKEN, ROLE[:50], end=()), 1e6], GOOD, kitchens=2) as place:
        assert 300 <= await took(broken_off(place, "failed_upstream")) <= 300.5


@in_virtual_time(3000)
async def test_a_slow_stream_may_last() -> None:
    slow = [step for part in stream(*SPOKEN * 5, end=()) for step in (part, 250.0)]
    async with serving([*slow, *stream()[1:]]) as place:
        client = await place.client()
        client.send(STREAM)
        assert await took(client.answer()) == 2750
        assert place.outcomes == ["completed"]
