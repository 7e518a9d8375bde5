"""Who asks: by which header, by what is known, and what is said to everybody else."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from time import process_time

import pytest

from maitred.control.keys import KeyTable, digest
from maitred.control.known import Known, unauthenticated
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Identity
from maitred.door.identify import ANYBODY, KNOWN_MAX, Fields, Identifier, anybody

PEPPER = b"a pepper of the tests"
KEY = b"mk_0123456789ab_0123456789abcdef0123456789abcdef0123456789abcdef"
ME, HIM = Identity("me", "0123456789ab"), Identity("him")
BEARER = {b"authorization": b"Bearer " + KEY}
TOKEN = b"eyJh.eyJp.c2ln"


class Table(KeyTable):
    """What the store is said to hold."""

    def __init__(self) -> None:
        self.known = {digest(PEPPER, KEY): Known(ME)}
        self.asked = 0
        self.fresh = True

    @property
    def current(self) -> bool:
        return self.fresh

    def find(self, digest_: bytes) -> Known | None:
        self.asked += 1
        return self.known.get(digest_)


class Tokens:
    """An issuer with one token."""

    def __init__(self) -> None:
        self.asked = 0

    def verify(self, token: bytes) -> Known:
        self.asked += 1
        if token != TOKEN:
            raise unauthenticated("the token is not good")
        return Known(HIM, 50.0)


class Place:
    """An identifier, and the time."""

    def __init__(self, keys: bool = True, tokens: bool = True) -> None:
        self.now = 0.0
        self.table, self.tokens = Table(), Tokens()
        self.identifier = Identifier(
            self.table if keys else None, PEPPER, self.tokens if tokens else None, lambda: self.now
        )

    def refused(self, fields: Fields) -> Refusal:
        with pytest.raises(Refusal) as caught:
            self.identifier.identify(fields)
        said = caught.value
        assert (said.outcome is Outcome.UNAUTHENTICATED) == (
            said.headers == (("www-authenticate", "Bearer"),)
        )
        for value in fields.values():
            assert len(value) < 8 or value.decode("latin-1") not in said.message
        return said


@pytest.mark.parametrize(
    "fields",
    [
        BEARER,
        {b"authorization": b"bearer   " + KEY + b" "},
        {b"x-api-key": KEY},
        {b"authorization": b"Basic dTpw", b"x-api-key": KEY},
        {b"authorization": b"Bearer ", b"x-api-key": KEY},
        {b"authorization": b"Bearer " + KEY, b"x-api-key": b"another"},
    ],
)
def test_a_key_is_found_where_clients_put_it(fields: Fields) -> None:
    place = Place()
    for _ in range(3):
        assert place.identifier.identify(fields) is ME


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"authorization": b""},
        {b"authorization": b"Bearer"},
        {b"authorization": b"Bearer  "},
        {b"authorization": b"Basic " + KEY},
        {b"authorization": KEY},
        {b"x-api-key": b""},
    ],
)
def test_who_sends_no_key_is_told_how_to(fields: Fields) -> None:
    refusal = Place().refused(fields)
    assert (refusal.outcome, refusal.message) == (
        Outcome.UNAUTHENTICATED,
        "no key; send Authorization: Bearer KEY, or x-api-key: KEY",
    )


def test_what_let_one_in_by_another_header_lets_nobody_in() -> None:
    place = Place()
    basic = {b"authorization": b"Basic dTpw"}
    place.identifier.identify({**basic, b"x-api-key": KEY})
    assert place.refused(basic).outcome is Outcome.UNAUTHENTICATED
    assert place.refused({b"x-api-key": b"Basic dTpw"}).outcome is Outcome.UNAUTHENTICATED
    assert place.refused({b"x-api-key": b"Bearer " + KEY}).outcome is Outcome.UNAUTHENTICATED


@pytest.mark.parametrize(
    "key", [KEY[:-1], KEY + b"x", b"mk_0123456789ab_", b"sk-other", b"\xff\x00", b"a.b.c"]
)
def test_a_wrong_key_is_401(key: bytes) -> None:
    refusal = Place().refused({b"x-api-key": key})
    assert refusal.outcome is Outcome.UNAUTHENTICATED
    assert "not known here, or was revoked" in refusal.message


def test_b84_a_key_that_cannot_be_looked_up_is_503_and_a_known_one_passes() -> None:
    place = Place()
    place.table.fresh = False
    assert place.identifier.identify(BEARER) is ME
    refusal = place.refused({b"x-api-key": b"another"})
    assert (refusal.outcome, refusal.retryable, refusal.wait_s) == (Outcome.AUTH_UNAVAILABLE, True, 5.0)
    place.table.fresh = True
    assert place.refused({b"x-api-key": b"another"}).outcome is Outcome.UNAUTHENTICATED


def test_who_was_seen_is_not_looked_up_again_until_keys_change() -> None:
    place = Place()
    for _ in range(5):
        place.identifier.identify(BEARER)
    assert place.table.asked == 1
    place.table.known.clear()
    place.identifier.forget()
    assert place.refused(BEARER).outcome is Outcome.UNAUTHENTICATED


def test_a_key_ends_at_its_instant_though_it_was_seen() -> None:
    place = Place()
    place.table.known[digest(PEPPER, KEY)] = Known(ME, 10.0)
    place.now = 9.9
    place.identifier.identify(BEARER)
    place.now = 10.0
    assert "expired" in place.refused(BEARER).message


def test_a_token_is_told_by_its_shape_and_verified_once_until_it_ends() -> None:
    place, fields = Place(), {b"authorization": b"Bearer " + TOKEN}
    for _ in range(3):
        assert place.identifier.identify(fields) is HIM
    assert (place.tokens.asked, place.table.asked) == (1, 0)
    place.now = 50.0
    assert "expired" in place.refused(fields).message
    assert place.tokens.asked == 2
    assert place.refused({b"x-api-key": b"eyJh.eyJp.bad"}).message == "the token is not good"


def test_only_what_is_configured_counts() -> None:
    only_tokens = Place(keys=False)
    assert "token of the identity provider" in only_tokens.refused(BEARER).message
    assert only_tokens.identifier.identify({b"x-api-key": TOKEN}) is HIM
    assert "not known here" in Place(tokens=False).refused({b"x-api-key": TOKEN}).message


def test_what_is_remembered_is_bounded() -> None:
    place = Place()
    for number in range(KNOWN_MAX + 5):
        place.table.known[digest(PEPPER, b"%d" % number)] = Known(ME)
        place.identifier.identify({b"x-api-key": b"%d" % number})
        assert len(place.identifier._known) <= KNOWN_MAX
    asked = place.table.asked
    for number in range(100):  # who is refused is not remembered at all
        place.refused({b"x-api-key": b"wrong %d" % number})
    assert len(place.identifier._known) == 5
    assert place.table.asked == asked + 100
    assert "too long" in place.refused({b"x-api-key": b"x" * 20_000}).message


def test_a_header_is_remembered_only_as_it_is_usually_written() -> None:
    place = Place()
    for blanks in range(2, 50):
        for scheme in (b"Bearer", b"bearer"):
            assert place.identifier.identify({b"authorization": scheme + b" " * blanks + KEY}) is ME
    assert not place.identifier._known
    place.identifier.identify(BEARER)
    place.identifier.identify({b"x-api-key": KEY})
    assert place.identifier._known.keys() == {BEARER[b"authorization"], KEY}


def test_without_auth_everybody_is_anybody() -> None:
    assert anybody({}) is anybody(BEARER) is ANYBODY


def test_a_key_costs_two_microseconds_at_most() -> None:
    place = Place()

    def cost_us(work: Callable[[], object]) -> float:
        return min(timeit.repeat(work, timer=process_time, number=1000, repeat=7)) / 1000 * 1e6

    def least_us(work: Callable[[], object]) -> float:
        """In the best of some tries; each beside how slow the machine is just now, where it was 1."""
        return min(cost_us(work) / max(1.0, cost_us(lambda: sum(range(40))) / 0.25) for _ in range(5))

    assert least_us(lambda: place.identifier.identify(BEARER)) < 1.0
    assert least_us(lambda: place.identifier._by_key(KEY)) < 2.5
    assert least_us(lambda: digest(PEPPER, KEY)) < 2.0
