"""POST /v1/responses: what is wrong with it is said before anything is done; then it is a turn."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.aside import BYTES_MAX, aside
from maitred.responses.asked import Asked
from maitred.responses.background import submit
from maitred.responses.turn import turn
from maitred.wire.responses.create import decode

NAME_CHARS_MAX = 256
"""No model's name is longer."""


async def create(asked: Asked) -> Outcome:
    """Answer it."""
    body = asked.exchange.body
    said = await aside(lambda: decode(body), large=len(body) > BYTES_MAX)
    if asked.exchange.gone:  # and its body with it
        return Outcome.CLIENT_GONE
    name = said.said.model
    if len(name) > NAME_CHARS_MAX or not name.isprintable():  # it may be written down before it is looked for
        raise Refusal(Outcome.MODEL_NOT_FOUND, "the model does not exist here", param="model")
    return await (submit if said.said.background else turn)(asked, said)
