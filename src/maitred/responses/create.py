"""POST /v1/responses: what is wrong with it is said before anything is done; then it is a turn."""

from __future__ import annotations

from maitred.core.outcome import Outcome
from maitred.responses.asked import Asked
from maitred.responses.background import submit
from maitred.responses.turn import turn
from maitred.wire.responses.create import decode


async def create(asked: Asked) -> Outcome:
    """Answer it."""
    said = decode(asked.exchange.body)
    return await (submit if said.said.background else turn)(asked, said)
