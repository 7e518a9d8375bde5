"""The endpoint table: every state under every sign, and keeping to a set of addresses."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.endpoints import EndpointTable, Sign, name_of
from maitred.core.words import Endpoint, EndpointState, Facts

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState

# A probe's answer makes an endpoint ready, unless it is on its way out; silence and failures take only work
# that was given; leaving the set or the operator's word drains whatever is there; only a draining endpoint
# can come back or go.
AFTER: dict[EndpointState, dict[Sign, EndpointState]] = {
    PROBING: {Sign.ANSWERED: READY, Sign.REMOVED: DRAINING, Sign.HELD: DRAINING},
    READY: {Sign.SILENT: EJECTED, Sign.FAILING: EJECTED, Sign.REMOVED: DRAINING, Sign.HELD: DRAINING},
    EJECTED: {Sign.ANSWERED: READY, Sign.REMOVED: DRAINING, Sign.HELD: DRAINING},
    DRAINING: {Sign.LISTED: PROBING, Sign.LET_IN: PROBING, Sign.EMPTY: GONE},
    GONE: {},
}
URLS = st.lists(st.sampled_from([f"http://h:{port}" for port in range(4)]), max_size=4).map(tuple)
POOLS = st.dictionaries(st.sampled_from("pq"), URLS, max_size=2)


def listed(table: EndpointTable, pools: dict[str, tuple[str, ...]]) -> list[tuple[str, Sign | None]]:
    return [(endpoint.name, sign) for endpoint, sign in table.replace(pools)]


def one() -> tuple[EndpointTable, Endpoint]:
    table = EndpointTable()
    listed(table, {"p": ("http://a:1",)})
    return table, table.by_name["p/a:1"]


@pytest.mark.parametrize(("state", "sign"), list(itertools.product(EndpointState, Sign)))
def test_every_state_under_every_sign(state: EndpointState, sign: Sign) -> None:
    table, endpoint = one()
    endpoint.state, endpoint.why = state, "before"
    after = AFTER[state].get(sign)
    assert table.move(endpoint, sign, "because") == (None if after is None else state)
    assert endpoint.state is (state if after is None else after)
    assert endpoint.why == ("before" if after is None else "because")
    assert endpoint.incarnation == ((state, sign) == (EJECTED, Sign.ANSWERED))
    assert ("p/a:1" in table.by_name) == ("p" in table.by_pool) == (after is not GONE)


def test_the_last_of_a_pool_takes_the_pool_along() -> None:
    table = EndpointTable()
    listed(table, {"p": ("http://a:1", "http://b:1")})
    for name, left in (("p/a:1", ["p/b:1"]), ("p/b:1", [])):
        endpoint = table.by_name[name]
        table.move(endpoint, Sign.REMOVED)
        table.move(endpoint, Sign.EMPTY)
        assert [e.name for e in table.by_pool.get("p", [])] == list(table.by_name) == left
    assert table.by_pool == {}


@given(POOLS, POOLS)
def test_replacing_names_the_old_first_and_adds_the_new(
    before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]]
) -> None:
    table = EndpointTable()
    names = [name_of(pool, url) for pool, urls in before.items() for url in urls]
    assert listed(table, before) == [(name, None) for name in dict.fromkeys(names)]
    wanted = dict.fromkeys(name_of(pool, url) for pool, urls in after.items() for url in urls)
    old = [(name, Sign.LISTED if name in wanted else Sign.REMOVED) for name in table.by_name]
    new = [(name, None) for name in wanted if name not in table.by_name]
    assert listed(table, after) == old + new
    by_pool = [endpoint for endpoints in table.by_pool.values() for endpoint in endpoints]
    assert sorted(e.name for e in by_pool) == sorted(table.by_name)


def test_a_new_endpoint_knows_its_address_and_is_asked_first() -> None:
    _, endpoint = one()
    assert (endpoint.pool, endpoint.url, endpoint.state) == ("p", "http://a:1", PROBING)
    assert (endpoint.running, endpoint.incarnation) == (0, 0)


def test_an_address_that_changes_its_scheme_is_reached_by_the_new_one() -> None:
    table, _ = one()
    listed(table, {"p": ("https://a:1",)})
    assert table.by_name["p/a:1"].url == "https://a:1"


def test_a_different_model_at_the_address_is_a_new_incarnation() -> None:
    table, endpoint = one()
    for model, incarnation in (("m", 0), ("m", 0), ("other", 1), ("other", 1)):
        table.learn(endpoint, Facts("vllm", model, 2048))
        assert (endpoint.facts.model, endpoint.incarnation) == (model, incarnation)


@pytest.mark.parametrize(
    ("url", "name"),
    [("http://127.0.0.1:8001", "p/127.0.0.1:8001"), ("https://[::1]:80", "p/[::1]:80")],
)
def test_names_are_pool_and_address(url: str, name: str) -> None:
    assert name_of("p", url) == name
