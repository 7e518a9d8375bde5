"""The house: what the core decides reaches whom it is about, also before he has come to wait for it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Abilities, Api, Endpoints, Identity, PoolSettings, Probed, Request, Settings
from maitred.door.house import House
from maitred.net.virtual import run

ALONE = Settings(default=PoolSettings(cap=1))


def house() -> House:
    """One engine with one place, which is taken."""
    made = House(Gateway(ALONE, Abilities(), Random(1)), asyncio.get_running_loop().time, lambda _event: None)
    made.update(Endpoints({"p": ("http://a:1",)}))
    made.update(Probed("p/a:1", ok=True))
    made.accept(Request("first", Api.CHAT, "p", "p"), Identity())
    return made


async def stopped(place: House, deadline_s: float) -> Refusal:
    """What one gets that gives up so long after it came."""
    ticket = place.accept(Request("r", Api.CHAT, "p", "p", deadline_s=deadline_s), Identity())
    with pytest.raises(Refusal) as caught:
        await place.seated(ticket)
    return caught.value


def test_who_is_stopped_as_he_comes_learns_as_much_as_who_has_waited() -> None:
    async def main() -> None:
        place = house()
        for deadline_s in (0.0, 5.0):
            refusal = await stopped(place, deadline_s)
            assert refusal.outcome is Outcome.QUEUE_DEADLINE
            assert "waited too long" in refusal.message
            assert 1.0 <= (refusal.retry_after_s or 0.0) <= 60.0
            assert not place._stopped

    run(main())
