"""Rolled traces in the simulator and through the real gateway before twins: the same verbs."""

from __future__ import annotations

from itertools import count

import pytest

from tests.equivalence.rolled import Roll, tied
from tests.equivalence.served import serve
from tests.equivalence.simulated import simulate
from tests.equivalence.verbs import compare

SEEDS = range(40)


@pytest.mark.usefixtures("stock_at_each_read", "nobody_called_silent")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("precise", [False, True])
def test_simulator_and_gateway_say_the_same(seed: int, precise: bool) -> None:
    for again in count():
        trace = Roll(f"{seed}/{again}", precise=precise).trace()
        simulated = simulate(trace)
        if not tied(simulated):
            tells = any("KvEvents" in verb.given[0].values() for verb in simulated if verb.name == "update")
            assert tells is precise
            compare(simulated, serve(trace))
            return
