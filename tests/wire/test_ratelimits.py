"""What is left, in the headers each client's library reads."""

from __future__ import annotations

import pytest

from maitred.core.buckets import Level
from maitred.core.holders import Holder, Party
from maitred.core.limiter import Limiter
from maitred.core.limits import FREE, UNLIMITED, Levels, Limits
from maitred.core.words import Api
from maitred.wire.ratelimits import duration, lines, told

NOON = 1_764_504_000.0  # 2025-11-30T12:00:00Z


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, b"0ms"),
        (0.1195, b"120ms"),
        (1.0, b"1s"),
        (1.2, b"2s"),
        (30.000000001, b"30s"),
        (59.5, b"1m0s"),
        (360.0, b"6m0s"),
        (3600.0, b"1h0m0s"),
        (3661.0, b"1h1m1s"),
    ],
)
def test_durations(seconds: float, text: bytes) -> None:
    assert duration(seconds) == text


def test_openai_s_form() -> None:
    levels = Levels(requests=Level(60, 59, 1.0), tokens=Level(150_000, 149_984, 0.006))
    assert lines(levels, Api.CHAT, NOON) == (
        b"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"
        b"x-ratelimit-reset-requests: 1s\r\n"
        b"x-ratelimit-limit-tokens: 150000\r\nx-ratelimit-remaining-tokens: 149984\r\n"
        b"x-ratelimit-reset-tokens: 6ms\r\n"
    )


def test_openai_s_form_knows_one_kind_of_tokens() -> None:
    levels = Levels(tokens=Level(100, 50, 30.0), output_tokens=Level(90, 9, 54.0))
    assert lines(levels, Api.COMPLETIONS, NOON).split(b"\r\n") == [
        b"x-ratelimit-limit-tokens: 90",
        b"x-ratelimit-remaining-tokens: 9",
        b"x-ratelimit-reset-tokens: 54s",
        b"",
    ]


def test_anthropic_s_form() -> None:
    levels = Levels(
        requests=Level(60, 59, 0.5),
        tokens=Level(7, 6, 60.0),
        prompt_tokens=Level(5, 4, 0.0),
        output_tokens=Level(3, 2, 86_400.0),
    )
    expected = [
        b"anthropic-ratelimit-%b-limit: %d\r\nanthropic-ratelimit-%b-remaining: %d\r\n"
        b"anthropic-ratelimit-%b-reset: %b\r\n" % (what, limit, what, limit - 1, what, reset)
        for what, limit, reset in [
            (b"requests", 60, b"2025-11-30T12:00:01Z"),
            (b"tokens", 7, b"2025-11-30T12:01:00Z"),
            (b"input-tokens", 5, b"2025-11-30T12:00:00Z"),
            (b"output-tokens", 3, b"2025-12-01T12:00:00Z"),
        ]
    ]
    assert lines(levels, Api.MESSAGES, NOON) == b"".join(expected)


def test_what_is_not_limited_is_not_told() -> None:
    assert lines(Levels(requests=Level(1, 1, 0.0)), Api.MESSAGES, NOON).count(b"\r\n") == 3
    assert lines(Levels(requests=Level(1, 1, 0.0)), Api.CHAT, NOON).count(b"\r\n") == 3


@pytest.mark.parametrize("api", [Api.CHAT, Api.MESSAGES])
@pytest.mark.parametrize("now", [0.5, 6.0, 59.0, 60.0, 61.0, 1000.0])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(requests_per_min=60),
        Limits(tokens_per_min=100, concurrent=5),
        Limits(requests_per_min=60, tokens_per_min=100, prompt_tokens_per_min=80, output_tokens_per_min=80),
    ],
)
def test_who_has_all_is_told_as_who_has_not(limits: Limits, now: float, api: Api) -> None:
    both = [("tenant a", limits), ("key k", Limits(requests_per_min=61, output_tokens_per_min=80))]
    for who in (both[:1], both):
        hold = Limiter().take(Party(who), 10, 5, FREE, 0.0)
        levels = hold.levels(now)
        assert levels is not None
        assert told(hold.holders, api, now, lambda: NOON) == lines(levels, api, NOON)


def test_who_has_no_rates_is_told_nothing() -> None:
    for limits in (UNLIMITED, Limits(concurrent=1, tokens_per_day=5)):
        assert told([Holder.of(limits)], Api.CHAT, 0.0, lambda: NOON) is None
        assert told([Holder.of(limits)], Api.MESSAGES, 0.0, lambda: NOON) is None
