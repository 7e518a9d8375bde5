"""Rolled traces in the simulator and through the real gateway before twins: the same verbs."""

from __future__ import annotations

from itertools import count

import pytest

from tests.equivalence.rolled import Roll, tied
from tests.equivalence.served import serve
from tests.equivalence.simulated import simulate
from tests.equivalence.verbs import compare

SEEDS = range(40)


@pytest.mark.usefixtures("stock_at_each_read")
@pytest.mark.parametrize("seed", SEEDS)
def test_simulator_and_gateway_say_the_same(seed: int) -> None:
    for again in count():
        trace = Roll(f"{seed}/{again}").trace()
        simulated = simulate(trace)
        if not tied(simulated):
            compare(simulated, serve(trace))
            return
