"""One bucket: a burst of a minute's worth, refilled by time, in debt by what was underestimated."""

from __future__ import annotations

import pytest

from maitred.core.buckets import REQUESTS, TOKENS, Bucket, Level


def taken(bucket: Bucket, units: int, now: float) -> None:
    bucket.full_at = max(bucket.full_at, now) + units * bucket.unit_s


def test_it_starts_full_and_time_refills_it() -> None:
    bucket = Bucket(REQUESTS, 60, 100.0)
    assert bucket.level(100.0) == Level(60, 60, 0.0)
    taken(bucket, 45, 100.0)
    assert bucket.level(100.0) == Level(60, 15, 45.0)
    assert bucket.level(130.0) == Level(60, 45, 15.0)
    assert bucket.level(1000.0) == Level(60, 60, 0.0)


def test_what_is_missing_is_there_after_exactly_that_long() -> None:
    bucket = Bucket(TOKENS, 600, 0.0)
    taken(bucket, 590, 0.0)
    assert bucket.missing_s(10, 0.0) == pytest.approx(0.0)
    assert bucket.missing_s(60, 0.0) == pytest.approx(5.0)
    assert bucket.missing_s(60, 5.0) == pytest.approx(0.0)


def test_a_debt_has_to_flow_in_first() -> None:
    bucket = Bucket(TOKENS, 600, 0.0)
    taken(bucket, 900, 0.0)
    assert bucket.level(0.0) == Level(600, 0, 90.0)
    assert bucket.missing_s(10, 0.0) == pytest.approx(31.0)


@pytest.mark.parametrize("taken_before", [0, 50])
def test_more_than_it_ever_holds_is_missing_for_more_than_a_minute(taken_before: int) -> None:
    bucket = Bucket(TOKENS, 100, 0.0)
    taken(bucket, taken_before, 0.0)
    assert bucket.missing_s(101, 0.0) > 60.0
    assert bucket.missing_s(100, 0.0) < 60.0


@pytest.mark.parametrize(
    ("limit", "remaining"), [(50, 10), (200, 10), (5, 5)], ids=["lower", "higher", "level clamped"]
)
def test_another_limit_leaves_the_level(limit: int, remaining: int) -> None:
    bucket = Bucket(TOKENS, 100, 0.0)
    taken(bucket, 90, 0.0)
    assert bucket.resized(limit, 0.0).level(0.0).remaining == remaining


def test_another_limit_leaves_a_debt() -> None:
    bucket = Bucket(TOKENS, 100, 0.0)
    taken(bucket, 150, 0.0)
    assert bucket.resized(50, 0.0).missing_s(10, 0.0) == pytest.approx(60 / 50 * 60)
