"""Pools come when they are asked for, and go when nobody lists them and nobody is there any more."""

from __future__ import annotations

from maitred.core.endpoints import EndpointTable
from maitred.core.pools import Pools
from maitred.core.queue import NEVER
from maitred.core.words import PoolSettings, Settings
from tests.core.places import endpoint, ticket

SETTINGS = Settings(pools={"p": PoolSettings(cap=3)}, default=PoolSettings(cap=5))


def pools() -> Pools:
    """Those of a table with one endpoint, of the pool p."""
    table, one = EndpointTable(), endpoint("p/a:1")
    table.by_name[one.name], table.by_pool["p"] = one, [one]
    return Pools(SETTINGS, table)


def test_a_pool_is_made_once_with_its_settings_and_endpoints() -> None:
    known = pools()
    assert known["p"] is known["p"]
    assert (known["p"].limits.cap, known["q"].limits.cap) == (3, 5)
    assert [each.name for each in known["p"].endpoints] == ["p/a:1"]
    assert not known["q"].endpoints


def test_one_that_is_made_for_a_moment_is_not_kept() -> None:
    known = pools()
    assert known.new("p").limits.cap == 3
    assert not known


def test_pools_that_nobody_lists_go_but_for_those_where_somebody_is() -> None:
    known = pools()
    assert [known[name].name for name in "pqrs"] == [*"pqrs"]
    known["r"].queue.push(ticket(), known["r"].limits)
    known.follow({"s"})
    assert list(known) == ["p", "r", "s"], "p has an endpoint that is served"
    assert list(known.closed) == ["r"]
    known.follow({"r"})
    assert (list(known), list(known.closed)) == (["p", "r"], [])


def test_new_settings_are_for_all_and_for_those_to_come() -> None:
    known = pools()
    place = known["p"].endpoints[0]
    place.begun = 4
    known.apply(Settings(default=PoolSettings(cap=7, routing="least-requests")))
    assert (known["p"].limits.cap, known["q"].limits.cap) == (7, 7)
    assert place.begun == 0


def test_something_is_due_only_where_somebody_waits() -> None:
    known = pools()
    known["p"].queue.opens_at = 1.0
    assert known.next_at() == NEVER
    known["p"].queue.push(ticket(), known["p"].limits)
    known["p"].queue.opens_at = NEVER
    assert known.next_at() == 30.0
    known["p"].queue.opens_at = 20.0
    assert known.next_at() == 20.0
