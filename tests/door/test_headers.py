"""Headers: what is read of everybody, what of those who may, and that nonsense counts as not said."""

from __future__ import annotations

import pytest

from maitred.core.words import Identity
from maitred.door import headers
from maitred.door.headers import BAND, TENANT, TTFT

TRUSTED = Identity("team", "k1", bands=("chat", "batch"), may_set=("tenant", "band", "slo"))
TENANTS = {"team", "team-b"}


@pytest.mark.parametrize(
    ("said", "tries"), [(b"0", 0), (b"2", 2), (b"-1", 0), (b"two", 0), (b"", 0), (b"9" * 5, 0), (b"\xb2", 0)]
)
def test_tries_are_counted_by_the_client(said: bytes, tries: int) -> None:
    assert headers.retries({b"x-stainless-retry-count": said}) == tries
    assert headers.retries({}) == 0


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        (b"600", 600.0),
        (b"0.5", 0.5),
        (b"NOT_GIVEN", None),
        (b"0", None),
        (b"-1", None),
        (b"nan", None),
        (b"inf", None),
        (b"", None),
        (b"1e300", headers.SECONDS_MAX),
    ],
)
def test_patience_is_the_read_timeout(said: bytes, wait_s: float | None) -> None:
    assert headers.patience_s({b"x-stainless-read-timeout": said}) == wait_s
    assert headers.patience_s({}) is None


@pytest.mark.parametrize("name", TENANT)
def test_the_tenant_is_set_by_those_who_may(name: bytes) -> None:
    fields = {name: b"team-b"}
    assert headers.on_behalf(fields, TRUSTED, TENANTS).tenant == "team-b"
    assert headers.on_behalf(fields, TRUSTED, TENANTS).key == "k1"
    other = Identity("team", may_set=("band", "slo"))
    assert headers.on_behalf(fields, other, TENANTS) is other


def test_a_tenant_nobody_has_named_cannot_be_made_up() -> None:
    for number in range(3):
        assert headers.on_behalf({TENANT[0]: b"team-%d" % number}, TRUSTED, TENANTS) is TRUSTED


@pytest.mark.parametrize("said", [b"", b"a b", b"a" * 65, b'a"', "é".encode(), b"a\n"])
def test_a_tenant_is_short_and_harmless_or_not_said(said: bytes) -> None:
    anything = {said.decode(), "", "a"}
    assert headers.on_behalf({TENANT[0]: said}, TRUSTED, anything) is TRUSTED


@pytest.mark.parametrize("name", BAND)
def test_a_band_is_one_of_those_it_may_use(name: bytes) -> None:
    assert headers.band({name: b"batch"}, TRUSTED) == "batch"
    assert headers.band({name: b"vip"}, TRUSTED) == ""
    assert headers.band({name: b"\xff"}, TRUSTED) == ""
    assert headers.band({name: b"batch"}, Identity(may_set=("band",))) == "batch"
    assert headers.band({name: b"a" * 65}, Identity(may_set=("band",))) == ""
    assert headers.band({name: b"batch"}, Identity(bands=("batch",), may_set=("tenant", "slo"))) == ""
    assert headers.band({}, TRUSTED) == ""


def test_a_receipt_is_for_those_who_may_ask() -> None:
    asks = Identity(may_set=("receipt",))
    assert headers.wants_receipt({b"x-maitred-receipt": b"1"}, asks)
    assert not headers.wants_receipt({b"x-maitred-receipt": b"0"}, asks)
    assert not headers.wants_receipt({}, asks)
    assert not headers.wants_receipt({b"x-maitred-receipt": b"1"}, TRUSTED)


@pytest.mark.parametrize("name", TTFT)
def test_a_time_to_first_token_is_in_milliseconds(name: bytes) -> None:
    assert headers.ttft_s({name: b"1500"}, TRUSTED) == 1.5
    assert headers.ttft_s({name: b"soon"}, TRUSTED) is None
    assert headers.ttft_s({name: b"1500"}, Identity(may_set=("tenant", "band"))) is None
    assert headers.ttft_s({}, TRUSTED) is None


def test_our_own_name_counts_before_others() -> None:
    assert headers.band({BAND[2]: b"chat", BAND[0]: b"batch"}, TRUSTED) == "batch"
