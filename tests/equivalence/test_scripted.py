"""One trace in the simulator and through the real gateway before twins: the same verbs."""

from __future__ import annotations

import pytest

from tests.equivalence.scripted import TRACE, happened
from tests.equivalence.served import serve
from tests.equivalence.simulated import simulate
from tests.equivalence.trace import routed
from tests.equivalence.verbs import Different, Verb, compare

EVERYTHING = {
    "refused queue_full",
    "refused no_endpoint",
    "stopped queue_deadline",
    "stopped no_endpoint",
    "left queued",
    "left seated",
    "left streaming",
    "status_5xx",
    "status_5xx again",
    "connect again",
    "unreachable again",
    "reset",
    "reset again",
    "truncated again",
    "truncated final",
    "first_byte_timeout",
    "idle_timeout",
    "idle_timeout final",
    "incarnation 1",
    "Endpoints",
    "Settings",
    "Held",
    "Probed True",
    "Probed False",
}
"""What the trace is for; see `happened`."""


@pytest.mark.usefixtures("stock_at_each_read")
def test_simulator_and_gateway_say_the_same() -> None:
    simulated = simulate(TRACE)
    assert EVERYTHING - happened(simulated) == set()
    compare(simulated, serve(TRACE))


@pytest.mark.usefixtures("stock_at_each_read")
def test_and_so_they_do_where_caches_decide() -> None:
    trace = routed(TRACE, "default")
    simulated = simulate(trace)
    with pytest.raises(Different):
        compare(simulated, simulate(TRACE))
    compare(simulated, serve(trace))


def test_what_is_told_of_progress_does_not_depend_on_how_often_stock_is_taken() -> None:
    simulated, served = simulate(TRACE), serve(TRACE)
    assert _progress(simulated) == _progress(served)
    assert any(len(totals) > 2 for totals in _progress(served).values())
    compare(_others(simulated), _others(served))


def _progress(verbs: list[Verb]) -> dict[int, list[int]]:
    """The totals told of each leg."""
    totals: dict[int, list[int]] = {}
    for verb in verbs:
        if verb.name == "progress":
            leg, total = verb.given
            totals.setdefault(leg, []).append(total)
    return totals


def _others(verbs: list[Verb]) -> list[Verb]:
    return [verb for verb in verbs if verb.name != "progress"]
