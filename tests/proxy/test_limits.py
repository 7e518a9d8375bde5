"""Limits as clients see them: what is left in each answer, and who has too little is told how long."""

from __future__ import annotations

from maitred.config.flow import ModelLimits
from tests.net.http import post
from tests.proxy.place import CHAT, STREAM, WHOLE, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD, GOOD_STREAM

LIMITS = {"limits": ModelLimits(requests_per_min=2, tokens_per_min=60_000)}


@in_virtual_time()
async def test_answers_tell_what_is_left() -> None:
    async with serving(GOOD, GOOD_STREAM, model=LIMITS) as place:
        first, second = await place.ask(WHOLE), await place.ask(STREAM)
        assert first.value(b"x-ratelimit-limit-requests") == b"2"
        assert first.value(b"x-ratelimit-remaining-requests") == b"1"
        assert first.value(b"x-ratelimit-reset-requests") == b"30s"
        assert second.value(b"x-ratelimit-remaining-requests") == b"0"
        assert 59_000 < int(second.value(b"x-ratelimit-remaining-tokens")) < 60_000


@in_virtual_time()
async def test_who_has_too_little_is_told_how_long() -> None:
    async with serving(GOOD, GOOD, model=LIMITS) as place:
        for _ in range(2):
            assert (await place.ask(WHOLE)).status == 200
        refused = await place.ask(WHOLE)
        assert (refused.status, refused.outcome) == (429, "rate_limited")
        assert refused.json["error"]["code"] == "rate_limit_exceeded"
        assert refused.json["error"]["message"] == "this model has 0 left of 2 requests a minute"
        assert (refused.value(b"retry-after"), refused.value(b"x-should-retry")) == (b"30", b"true")
        assert refused.value(b"x-ratelimit-reset-requests") == b"1m0s"


@in_virtual_time()
async def test_what_is_larger_than_the_limit_is_not_tried_again() -> None:
    async with serving(model=LIMITS) as place:
        refused = await place.ask(post(CHAT, chat(messages=[{"role": "user", "content": "ab " * 200_000}])))
        assert (refused.status, refused.outcome) == (429, "rate_limited")
        assert refused.value(b"x-should-retry") == b"false"
        assert "the request is estimated at " in refused.json["error"]["message"]


@in_virtual_time()
async def test_without_limits_nothing_is_told() -> None:
    async with serving(GOOD) as place:
        answer = await place.ask(WHOLE)
        assert not [name for name, _ in answer.headers if b"ratelimit" in name]
