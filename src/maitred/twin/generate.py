"""The paths that put the engine to work."""

from __future__ import annotations

from collections.abc import Callable

from maitred.net.exchange import HttpExchange
from maitred.twin import bodies
from maitred.twin.answers import Answer
from maitred.twin.anthropic import Message
from maitred.twin.bodies import Ask
from maitred.twin.embeddings import Embeddings
from maitred.twin.errors import BAD_REQUEST, INTERNAL, Wrong
from maitred.twin.faults import HEADER, NONE, parse
from maitred.twin.house import House, Route
from maitred.twin.openai import Chat, TextCompletion
from maitred.twin.responses import Response


def _generating(read: Callable[[bytes], Ask], form: type[Answer]) -> Route:
    def handle(house: House, exchange: HttpExchange) -> None:
        ask = read(exchange.body)
        _answer(house, house.service.answer(exchange, ask, form))

    return Route(("POST",), handle)


def _answer(house: House, answer: Answer) -> None:
    """Answer, unless something is wrong."""
    exchange = answer.exchange
    words = exchange.head.fields.get(HEADER)
    try:
        fault = house.meet(parse(words.decode("latin-1")) if words else NONE)
    except ValueError as error:
        raise Wrong(str(error), HEADER.decode()) from error
    if fault.hang or fault.crash:
        return
    if fault.status is not None:
        kind = INTERNAL if fault.status >= 500 else BAD_REQUEST
        raise Wrong("The twin was told to fail.", kind=kind, status=fault.status)
    if fault.reset == 0:
        exchange.reset()
        return
    if fault.reset is not None:
        answer.reset_tokens = fault.reset
    house.service.begin_answer(answer)


ROUTES = {
    "/v1/chat/completions": _generating(bodies.chat, Chat),
    "/v1/completions": _generating(bodies.completions, TextCompletion),
    "/v1/messages": _generating(bodies.messages, Message),
    "/v1/responses": _generating(bodies.responses, Response),
    "/v1/embeddings": _generating(bodies.embeddings, Embeddings),
}
