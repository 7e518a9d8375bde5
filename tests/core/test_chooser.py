"""Choosing: the least loaded endpoint with room, in turns among equals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maitred.core.chooser import least_loaded
from maitred.core.words import Api, Endpoint, EndpointState, Identity, PoolSettings, Request, Ticket

CAP = 3
LIMITS = PoolSettings(cap=CAP)
ENDPOINTS = st.lists(
    st.builds(
        Endpoint,
        name=st.sampled_from(["p/a", "p/b", "p/c", "p/d"]),
        pool=st.just("p"),
        url=st.just(""),
        state=st.sampled_from([EndpointState.READY, *EndpointState]),
        running=st.integers(0, CAP + 1),
        turn=st.integers(0, 9),
    ),
    max_size=5,
)


def ticket(*excluded: str) -> Ticket:
    return Ticket(Request("r", Api.CHAT, "m", "p"), Identity(), 0.0, 30.0, excluded=excluded)


@given(ENDPOINTS, st.lists(st.sampled_from(["p/a", "p/b"]), max_size=2))
def test_the_least_loaded_of_those_allowed(endpoints: list[Endpoint], excluded: list[str]) -> None:
    allowed = [
        e for e in endpoints if e.state is EndpointState.READY and e.running < CAP and e.name not in excluded
    ]
    best = min(allowed, key=lambda e: (e.running, e.turn), default=None)
    assert least_loaded(endpoints, ticket(*excluded), LIMITS, 0.0) is best


def test_equals_are_served_in_turns() -> None:
    endpoints = [Endpoint(name, "p", "", state=EndpointState.READY) for name in "abc"]
    served = []
    for turn in range(1, 7):
        chosen = least_loaded(endpoints, ticket(), LIMITS, 0.0)
        assert chosen is not None
        chosen.turn = turn
        served.append(chosen.name)
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_nothing_to_choose_from() -> None:
    assert least_loaded([], ticket(), LIMITS, 0.0) is None
