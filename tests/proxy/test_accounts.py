"""What is told of a request is what happened: times, tokens, attempts and how it ended."""

from __future__ import annotations

import asyncio

import pytest

from maitred.config.tree import Drain
from maitred.wire import judge
from tests.net.http import get, turns
from tests.proxy.place import ASKS_USAGE, STREAM, WHOLE, in_virtual_time, serving
from tests.proxy.upstream import DONE, FINISH, GOOD, JSON, ROLE, USAGE, End, Plan, event, stream, whole, word

THOUGHT = event('{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}')


@in_virtual_time()
async def test_the_first_token_is_content_and_not_the_end_of_the_hold() -> None:
    plan: Plan = [*stream(ROLE, end=()), 10.0, *stream(word("late"), FINISH, USAGE, DONE)[1:]]
    async with serving(plan) as place:
        await place.ask(STREAM)
        assert place.lines[0]["ttft_s"] == pytest.approx(10.0, abs=0.01)
        (series,) = place.app.metrics.models.values()
        assert series.ttft.total == pytest.approx(10.0, abs=0.01)


@in_virtual_time()
async def test_the_answer_after_the_thinking_is_seen_in_a_stream_committed_early() -> None:
    rest = stream(THOUGHT, end=()), 3.0, stream(word("so"), FINISH, USAGE, DONE)
    plan: Plan = [*stream(ROLE, end=()), 2.0, *rest[0][1:], rest[1], *rest[2][1:]]
    async with serving(plan) as place:
        await place.ask(STREAM)
        (series,) = place.app.metrics.models.values()
        assert series.ttft.total == pytest.approx(2.0, abs=0.01)
        assert series.answer.total == pytest.approx(5.0, abs=0.01)


@in_virtual_time()
async def test_a_stream_that_fails_after_the_hold_is_not_repeated() -> None:
    async with serving([*stream(ROLE, end=()), 5.0, End.RESET], kitchens=2) as place:
        answer = await place.ask(STREAM)
        assert answer.body.startswith(ROLE)
        assert b'"error"' in answer.body
        await turns(50)
        assert len(place.menu.asked) == 1
        assert [line["attempts"] for line in place.lines] == [1]


@pytest.mark.parametrize("body", [b"", JSON], ids=["nothing", "an answer in one piece"])
@in_virtual_time()
async def test_a_stream_request_answered_without_a_stream_is_a_failure(body: bytes) -> None:
    async with serving((whole(body),), kitchens=2) as place:
        answer = await place.ask(STREAM)
        assert (answer.status, answer.outcome) == (502, "failed_upstream")
        assert len(place.menu.asked) == 2


@in_virtual_time()
async def test_an_engine_that_crashes_at_work_on_a_kept_connection_is_no_stale_connection() -> None:
    async with serving(GOOD, [3.0, End.RESET], GOOD) as place:
        await place.ask(WHOLE)
        answer = await place.ask(WHOLE)
        assert (answer.status, answer.outcome) == (502, "failed_upstream")
        assert len(place.menu.asked) == 2


@pytest.mark.parametrize("request_", [STREAM, ASKS_USAGE], ids=["hidden usage", "usage asked"])
@in_virtual_time()
async def test_tokens_of_a_stream_that_is_left_are_counted(request_: bytes) -> None:
    async with serving([*stream(ROLE, *[word("x")] * 19, word("z"), end=()), 1e6]) as place:
        client = await place.client()
        client.send(request_)
        await client.heard(b'"z"')
        client.leave()
        await turns()
        (line,) = place.lines
        assert (line["outcome"], line["output_tokens"]) == ("client_gone", 20)


@in_virtual_time()
async def test_tokens_of_a_stream_that_is_cut_are_counted() -> None:
    async with serving(
        [*stream(ROLE, *[word("x")] * 19, word("z"), end=()), 1e6], drain=Drain(limit_s=1.0)
    ) as place:
        client = await place.client()
        client.send(STREAM)
        await client.heard(b'"z"')
        await place.app.drain()
        (line,) = place.lines
        assert (line["outcome"], line["output_tokens"]) == ("draining", 20)


@in_virtual_time()
async def test_a_whole_stream_that_ends_in_a_reset_is_whole() -> None:
    async with serving([*stream(end=()), End.CLOSE]) as place:
        answer = await place.ask(STREAM)
        assert answer.body.endswith(DONE)
        assert place.outcomes == ["completed"]


@in_virtual_time()
async def test_a_bug_in_passing_an_answer_ends_the_request_and_frees_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr(judge.WholeJudge, "end", broken)
    large = whole(b'{"x":"' + b"y" * 100_000 + b'"}')
    async with serving([large[:90_000], large[90_000:]]) as place:
        place.bugs = 1
        client = await place.client()
        client.send(WHOLE)
        await client.closed()
        assert place.running == [0]
        assert [line["outcome"] for line in place.lines] == ["failed_internal"]
        assert "a bug of ours" in caplog.text


@in_virtual_time()
async def test_what_was_answered_leaves_before_the_gateway_does() -> None:
    body = b'{"x":"' + b"y" * 300_000 + b'"}'
    async with serving((whole(body),)) as place:
        client = await place.client()
        client.send(WHOLE)
        await client.heard(b"yyy")
        client.transport.pause_reading()
        drain = asyncio.create_task(place.app.drain())
        await asyncio.sleep(5)
        client.transport.resume_reading()
        assert (await client.answer()).body == body
        assert await drain == 0


@in_virtual_time()
async def test_a_model_with_a_slash_in_its_name_is_found() -> None:
    async with serving(model={"name": "org/m", "served_as": "m"}) as place:
        answer = await place.ask(get("/v1/models/org%2Fm"))
        assert (answer.status, answer.json["id"]) == (200, "org/m")


@in_virtual_time()
async def test_an_engine_does_not_say_whether_to_repeat_its_refusal() -> None:
    refusal = whole(
        b'{"error":{"message":"no"}}', "x-should-retry: true", "x-maitred-outcome: mine", status=400
    )
    async with serving((refusal,)) as place:
        answer = await place.ask(WHOLE)
        assert (answer.status, answer.values(b"x-should-retry")) == (400, [b"false"])
        assert answer.values(b"x-maitred-outcome") == []
        assert place.outcomes == ["engine_refused"]
