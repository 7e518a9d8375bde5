"""Ways to break the gateway's shell that must show: a comparison that finds none of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maitred.core.outcome import Outcome
from maitred.core.words import Change, Failure, Leg, Ticket, Usage
from maitred.door.house import House
from maitred.proxy.relay import Relay
from tests.equivalence.scripted import TRACE
from tests.equivalence.served import serve
from tests.equivalence.simulated import simulate
from tests.equivalence.verbs import Different, compare

Mutant = Callable[[pytest.MonkeyPatch], None]


def no_finish_on_cancel(patch: pytest.MonkeyPatch) -> None:
    finish = House.finish

    def mutant(house: House, ticket: Ticket, outcome: Outcome, usage: Usage | None) -> Outcome:
        return outcome if outcome is Outcome.CLIENT_GONE else finish(house, ticket, outcome, usage)

    patch.setattr(House, "finish", mutant)


def no_pump_after_fail(patch: pytest.MonkeyPatch) -> None:
    def mutant(house: House, leg: Leg, failure: Failure) -> bool:
        return house.gateway.fail(leg, failure, house.clock())

    patch.setattr(House, "fail", mutant)


def release_before_update(patch: pytest.MonkeyPatch) -> None:
    def mutant(house: House, change: Change) -> None:
        now = house.clock()
        house._pump(now)
        house.gateway.update(change, now)

    patch.setattr(House, "update", mutant)


def progress_by_read(patch: pytest.MonkeyPatch) -> None:
    def mutant(relay: Relay) -> None:
        relay._house.progress(relay._leg, relay._passing.stock())

    patch.setattr(Relay, "_take_stock", mutant)


@pytest.mark.usefixtures("stock_at_each_read")
@pytest.mark.parametrize(
    "mutant", [no_finish_on_cancel, no_pump_after_fail, release_before_update, progress_by_read]
)
def test_it_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Different):
        compare(simulate(TRACE), serve(TRACE))
