"""Repeats: not before an engine wants them, not more than it can bear, and nothing of one in the next."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from time import time

import openai
import pytest

from maitred.config.flow import ModelLimits
from maitred.config.tree import Health, Queue
from tests.cases.place import on_sockets
from tests.cases.place import serving as serving_on_sockets
from tests.net.http import post
from tests.proxy.faults import ATTEMPT, ERROR_BODY
from tests.proxy.place import CHAT, STREAM, WHOLE, chat, in_virtual_time, serving, took
from tests.proxy.upstream import (
    ERROR,
    GOOD,
    GOOD_STREAM,
    JSON,
    LAST,
    ROLE,
    SEEN,
    End,
    Menu,
    Plan,
    chunk,
    head,
    whole,
)
from tests.proxy.upstream import STREAM as STREAM_HEAD


def telling(plan: Plan, *lines: str) -> Plan:
    """This plan, with these lines in the head of its answer."""
    first, *rest = plan
    assert isinstance(first, bytes)
    return [first.replace(b"\r\n", "\r\n".join(["", *lines, ""]).encode(), 1), *rest]


def busy(status: int = 429, *headers: str) -> Plan:
    """An engine that asks to be left alone."""
    return [whole(ERROR_BODY, *(headers or ("retry-after: 7",)), status=status)]


class TestRetryAfter:
    """B33: lightseekorg/smg (its defaults), sgl-project/sglang#15585.

    Five attempts in 0.4 s went to an engine that had asked for seven. It is kept, for 429 and for 5xx;
    another engine may be asked at once, and where there is none the client is told.
    """

    @in_virtual_time()
    async def test_the_only_engines_429_is_told_and_nobody_is_sent_there_before_its_time(self) -> None:
        async with serving(busy(), GOOD) as place:
            refused = await place.ask()
            assert (refused.status, refused.value(b"retry-after")) == (429, b"7")
            assert len(place.menu.asked) == 1
            assert await took(place.ask()) == pytest.approx(7)
            assert len(place.menu.asked) == 2
            assert place.outcomes == ["engine_overloaded", "completed"]

    @pytest.mark.parametrize("status", [429, 500, 503, 529])
    @in_virtual_time()
    async def test_another_engine_gets_the_work_until_then(self, status: int) -> None:
        async with serving(busy(status), GOOD, kitchens=2) as place:
            assert await took(place.ask()) == 0
            first, second = place.menu.asked
            assert first.kitchen != second.kitchen
            for _ in range(6):
                await asyncio.sleep(1)
                assert (await place.ask()).status == 200
            assert {asked.kitchen for asked in place.menu.asked[1:]} == {second.kitchen}
            await asyncio.sleep(1)
            for _ in range(2):
                await place.ask()
            assert {asked.kitchen for asked in place.menu.asked[-2:]} == {0, 1}

    @in_virtual_time()
    async def test_two_engines_that_are_both_busy_are_asked_once_each(self) -> None:
        async with serving(busy(), busy(429, "retry-after: 3"), GOOD, kitchens=2) as place:
            refused = await place.ask()
            assert (refused.status, refused.value(b"retry-after")) == (429, b"3")
            assert await took(place.ask()) == pytest.approx(3)
            assert len(place.menu.asked) == 3

    @in_virtual_time()
    async def test_who_cannot_wait_so_long_is_told_how_long_it_will_be(self) -> None:
        async with serving(busy(429, "retry-after: 40"), GOOD, model={"queue": Queue(wait_s=2.0)}) as place:
            assert (await place.ask()).value(b"retry-after") == b"40"
            late = await place.ask()
            assert (late.status, late.outcome) == (429, "queue_deadline")
            assert 38 <= int(late.value(b"retry-after")) <= 60


class TestAmplification:
    """B34: HKUDS/nanobot#2760, kubernetes-sigs/gateway-api#3488, joshrotenberg/tower-resilience#171.

    A client tries three times, a gateway five: fifteen calls at engines that are down. Repeats after an
    answer have a budget, and a client is told that a repeat of its own would not help.
    """

    @on_sockets
    async def test_an_outage_is_hardly_more_calls_than_there_are_requests(self) -> None:
        down = Health(failures_max=10_000, generate=False)  # so that only the budget bounds repeats
        async with serving_on_sockets([whole(ERROR_BODY, status=500)], engines=4, health=down) as place:
            async with place.openai(retries=2) as client:
                for number in range(100):
                    with pytest.raises(openai.InternalServerError) as failed:
                        await client.chat.completions.create(
                            model="m", messages=[{"role": "user", "content": f"hi {number}"}]
                        )
                    assert failed.value.status_code == 502
                    assert failed.value.response.headers["x-should-retry"] == "false"
            assert place.outcomes == ["failed_upstream"] * 100  # the client came once for each
            assert 100 < len(place.script.asked) <= 120

    @in_virtual_time()
    async def test_a_repeat_says_that_it_is_one(self) -> None:
        async with serving(busy(500), GOOD, kitchens=2) as place:
            await place.ask(post(CHAT, chat(), "x-stainless-retry-count: 1", f"{ATTEMPT}: 9"))
            assert [asked.values(ATTEMPT) for asked in place.menu.asked] == [[], ["2"]]


LEVELS = (
    "x-ratelimit-limit-requests: 60",
    "x-ratelimit-remaining-requests: 3",
    "x-ratelimit-reset-requests: 9s",
)


class TestWhatIsToldOfWaits:
    """B35: BerriAI/litellm#21553, BerriAI/litellm#27823, BerriAI/litellm#5957.

    Waits were told by other names, so that clients came back blindly. An engine's and ours are told alike.
    """

    @pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
    @in_virtual_time()
    async def test_an_engines_429_keeps_its_wait_and_what_is_left(self, request_: bytes) -> None:
        async with serving(busy(429, "retry-after: 7", *LEVELS)) as place:
            refused = await place.ask(request_)
            assert refused.status == 429
            told = ("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-remaining-requests")
            assert [refused.value(name.encode()) for name in told] == [b"7", b"7000", b"true", b"3"]
            assert refused.value(b"x-ratelimit-reset-requests") == b"9s"

    @pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
    @in_virtual_time()
    async def test_so_does_its_answer(self, request_: bytes) -> None:
        plan = telling(GOOD_STREAM if request_ is STREAM else GOOD, *LEVELS)
        async with serving(plan) as place:
            answer = await place.ask(request_)
            assert (answer.status, answer.value(b"x-ratelimit-remaining-requests")) == (200, b"3")

    @pytest.mark.parametrize("status", [200, 429, 400])
    @in_virtual_time()
    async def test_where_a_rate_is_limited_here_that_is_told_instead(self, status: int) -> None:
        model = {"limits": ModelLimits(requests_per_min=100)}
        async with serving([whole(JSON, *LEVELS, status=status)], model=model) as place:
            answer = await place.ask()
            assert (answer.status, answer.value(b"x-ratelimit-remaining-requests")) == (status, b"99")
            assert answer.value(b"x-ratelimit-limit-requests") == b"100"

    @in_virtual_time()
    async def test_our_own_429_tells_both_too_whatever_its_reason(self) -> None:
        model = {"cap": 1, "queue": Queue(requests_max=1, wait_s=5.0)}
        limits = {"limits": ModelLimits(requests_per_min=3)}
        async with serving([50.0, *GOOD], model={**model, **limits}) as place:
            clients = [await place.client() for _ in range(3)]
            for client in clients:
                client.send(WHOLE)
                await asyncio.sleep(0.01)
            full, late = await clients[2].answer(), await clients[1].answer()
            assert (full.outcome, late.outcome) == ("queue_full", "queue_deadline")
            for refused, left in ((full, b"1"), (late, b"2")):  # who was never seated has taken nothing
                assert refused.value(b"x-ratelimit-remaining-requests") == left
                wait_s = int(refused.value(b"retry-after"))
                assert refused.value(b"retry-after-ms") == b"%d" % (wait_s * 1000)
                assert 1 <= wait_s <= 60
            clients[0].leave()

    @in_virtual_time()
    async def test_a_wait_is_never_told_shorter_than_it_is(self) -> None:
        async with serving(model={"limits": ModelLimits(requests_per_min=7)}) as place:
            for _ in range(7):
                assert (await place.ask()).status == 200
            for _ in range(3):
                refused = await place.ask()
                assert refused.outcome == "rate_limited"
                await asyncio.sleep(int(refused.value(b"retry-after")))
                assert (await place.ask()).status == 200

    @in_virtual_time()
    async def test_an_instant_is_a_wait_as_well(self) -> None:
        async with serving(busy(429, f"retry-after: {formatdate(time() + 20, usegmt=True)}")) as place:
            refused = await place.ask()
            assert 18 <= int(refused.value(b"retry-after")) <= 20


class TestOneError:
    """B36: BerriAI/litellm#40405, BerriAI/litellm#7822.

    One 401 of an engine closed a model for everybody; or a dead engine was tried first, every time.
    """

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 422, 302, 501])
    @in_virtual_time()
    async def test_what_the_only_engine_refuses_closes_nothing(self, status: int) -> None:
        refusals = [busy(status)] * 12
        async with serving(*refusals, GOOD) as place:
            for number in range(12):
                refused = await place.ask(post(CHAT, chat(seed=number)))
                assert refused.status == (502 if status == 302 else status)
            assert await took(place.ask()) == 0
            assert place.outcomes[-1] == "completed"
            assert [line["attempts"] for line in place.lines] == [1] * 13
            assert [state.label for state in place.states] == ["ready"]

    @pytest.mark.parametrize("fault", ["refuses", "hangs", "resets", "500", "429"])
    @in_virtual_time(200)
    async def test_in_a_minute_without_one_engine_the_other_serves_at_once(self, fault: str) -> None:
        plans = {"resets": [End.RESET], "500": busy(500, "x: y"), "429": busy()}
        quiet = Health(generate=False, failures_max=3)
        async with serving(kitchens=2, health=quiet) as place:
            ill = place.kitchens[0]
            if fault in plans:
                ill.menu = Menu(plans[fault])
            elif fault == "refuses":
                place.memory.refuse(*ill.address)
            else:
                place.memory.hang(*ill.address)
            await place.drop_idle()
            waits = []
            for number in range(60):
                waits.append(await took(place.ask(post(CHAT, chat(seed=number)))))
                await asyncio.sleep(1 - min(1, waits[-1]))
            assert place.outcomes == ["completed"] * 60
            assert sum(wait_s > 0 for wait_s in waits) <= 2  # a connect that hangs is tried twice
            assert max(waits) <= 2
            retried = [line["attempts"] for line in place.lines].count(2)
            assert 1 <= retried <= 9  # it answers when it is asked how it is, and so is tried now and then


LEAKS = ("x-vendor-secret: 1", "set-cookie: a=b", "retry-after: 1", "x-ratelimit-remaining-requests: 0")


class TestAttemptsApart:
    """B37: maximhq/bifrost#6973, maximhq/bifrost#6966.

    Headers of the engine that failed reached the client with another one's body, and the second attempt went
    to the first address again.
    """

    @pytest.mark.parametrize(
        ("request_", "fails"),
        [
            (WHOLE, busy(500, *LEAKS)),
            (WHOLE, busy(429, *LEAKS)),
            (WHOLE, [head(200, *LEAKS, "content-length: 100"), b"{", End.CLOSE]),
            (STREAM, busy(500, *LEAKS)),
            (STREAM, [whole(JSON, *LEAKS)]),
            (STREAM, telling([STREAM_HEAD, chunk(ROLE), chunk(ERROR), LAST], *LEAKS)),
        ],
    )
    @in_virtual_time()
    async def test_only_the_winners_head_and_body_arrive(self, request_: bytes, fails: Plan) -> None:
        good = GOOD_STREAM if request_ is STREAM else GOOD
        async with serving(fails, telling(good, "x-winner: 1"), kitchens=2) as place:
            answer = await place.ask(
                request_.replace(b"Host:", b"Authorization: Bearer sk-client\r\nHost:", 1)
            )
            assert (answer.status, answer.value(b"x-winner")) == (200, b"1")
            assert answer.body == (SEEN if request_ is STREAM else JSON)
            names = {name for name, _ in answer.headers}
            assert not names & {line.partition(":")[0].encode() for line in LEAKS}
            assert [line["attempts"] for line in place.lines] == [2]
            assert place.lines[0].get("output_tokens") == 2  # of the second alone

    @pytest.mark.parametrize("request_", [WHOLE, STREAM], ids=["whole", "stream"])
    @in_virtual_time()
    async def test_the_second_attempt_is_the_first_but_for_its_target(self, request_: bytes) -> None:
        async with serving(busy(500), GOOD_STREAM if request_ is STREAM else GOOD, kitchens=2) as place:
            secret = b"Authorization: Bearer sk-client\r\nCookie: a=b\r\nTraceparent: 00-1\r\nHost:"
            assert (await place.ask(request_.replace(b"Host:", secret, 1))).status == 200
            first, second = place.menu.asked
            for asked in (first, second):
                url = place.kitchens[asked.kitchen].url
                assert asked.values("host") == [url.removeprefix("http://")]
                assert b"sk-client" not in asked.raw_head + asked.body
                assert asked.values("cookie") == []
            kept = [
                [line for line in asked.headers if line[0] not in ("host", ATTEMPT)]
                for asked in (first, second)
            ]
            assert kept[0] == kept[1]
            assert (first.body, first.target) == (second.body, second.target)

    @in_virtual_time()
    async def test_the_first_address_is_not_asked_again_though_it_is_the_emptier(self) -> None:
        async with serving(GOOD, kitchens=2) as place:
            fails, works = place.kitchens
            works.menu, fails.menu = Menu([5.0, *GOOD]), Menu(busy(500, "x-y: 1"))
            clients = [await place.client() for _ in range(6)]
            for number, client in enumerate(clients):
                client.send(post(CHAT, chat(seed=number)))
                await asyncio.sleep(0.1)
            for client in clients:
                assert (await client.answer()).status == 200
            assert len(works.menu.asked) == 6
            bodies = [asked.body for asked in fails.menu.asked]
            assert len(bodies) == len(set(bodies)) >= 3

    @in_virtual_time()
    async def test_when_all_fail_nothing_of_any_is_told(self) -> None:
        async with serving(busy(500, *LEAKS), kitchens=2) as place:
            refused = await place.ask()
            assert refused.status == 502
            names = {name for name, _ in refused.headers}
            assert not names & {line.partition(":")[0].encode() for line in LEAKS}
