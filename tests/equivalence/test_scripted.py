"""One trace in the simulator and through the real gateway before twins: the same verbs."""

from __future__ import annotations

import pytest

from tests.equivalence.scripted import TRACE, happened
from tests.equivalence.served import serve
from tests.equivalence.simulated import simulate
from tests.equivalence.verbs import compare, without_progress

EVERYTHING = {
    "accepted",
    "refused queue_full",
    "refused no_endpoint",
    "stopped queue_deadline",
    "left queued",
    "left seated",
    "left streaming",
    "status_5xx again",
    "status_5xx",
    "connect again",
    "unreachable again",
    "reset again",
    "reset",
    "truncated again",
    "truncated final",
    "first_byte_timeout",
    "idle_timeout",
    "idle_timeout final",
    "incarnation 0",
    "incarnation 1",
    "Endpoints",
    "Settings",
    "Held",
    "Probed True",
    "Probed False",
}


def test_simulator_and_gateway_say_the_same() -> None:
    simulated = simulate(TRACE)
    assert EVERYTHING - happened(simulated) == set()
    compare(simulated, serve(TRACE))
