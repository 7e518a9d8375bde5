"""A client that leaves takes its work along, in whatever phase: the engine stops, and nothing stays counted.

An engine learns of it at once while it streams. Before the first token, and until the end of an answer in one
piece, llama.cpp looks for its client only after a second in which nobody else asked it anything, so the tests
of these ask seldom.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.children import MODEL, PATIENCE_S, Engine, Gateway, chat, has_content, request_bytes, stream
from tests.e2e.conftest import Serve

FREE_WITHIN_S = 5.0
QUIET_S = 1.5
LONG = 1900
"""Tokens of an answer that takes an engine some 15 seconds."""


@pytest.fixture(autouse=True)
def gone_before(gateway: Gateway) -> float:
    """How many clients had left before the test; it begins with an idle house."""
    gateway.until(lambda: gateway.metric("in_flight") == 0)
    return gateway.metric("requests_total", outcome="client_gone")


@contextmanager
def waiting_client(port: int, **more: Any) -> Iterator[None]:
    """A client that has sent its request and waits for the first byte; it leaves with the context."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request_bytes(chat(**more)))
        yield


def work(engines: list[Engine]) -> int:
    return sum(engine.busy() for engine in engines)


def forgotten(gateway: Gateway) -> bool:
    names = ("in_flight", "queued", "endpoint_in_flight")
    return not any(gateway.metric(name) for name in names)


def test_in_the_middle_of_a_stream(gateway: Gateway, engines: list[Engine], gone_before: float) -> None:
    with stream(gateway.port, chat(tokens=LONG)) as events:
        next(event for event in events if has_content(event))
        assert work(engines) == 1
    gateway.until(lambda: work(engines) == 0, FREE_WITHIN_S)
    gateway.until(lambda: forgotten(gateway), FREE_WITHIN_S)
    assert gateway.metric("requests_total", outcome="client_gone") == gone_before + 1


def test_before_the_first_token(gateway: Gateway, engines: list[Engine], gone_before: float) -> None:
    with waiting_client(gateway.port, content="The ship sails on. " * 300, tokens=LONG, stream=True):
        gateway.until(lambda: work(engines) == 1)
    gateway.until(lambda: forgotten(gateway), FREE_WITHIN_S)
    gateway.until(lambda: work(engines) == 0, within_s=8 * QUIET_S, pace_s=QUIET_S)
    assert gateway.metric("requests_total", outcome="client_gone") == gone_before + 1


def test_while_an_answer_in_one_piece_is_made(
    gateway: Gateway, engines: list[Engine], gone_before: float
) -> None:
    with waiting_client(gateway.port, tokens=LONG):
        gateway.until(lambda: work(engines) == 1)
    gateway.until(lambda: forgotten(gateway), FREE_WITHIN_S)
    gateway.until(lambda: work(engines) == 0, within_s=8 * QUIET_S, pace_s=QUIET_S)
    assert gateway.metric("requests_total", outcome="client_gone") == gone_before + 1


def test_while_it_waits_for_a_place(serve: Serve, engines: list[Engine]) -> None:
    engine = engines[0]
    narrow = serve(config={"models": [{"name": MODEL, "endpoints": [engine.url], "cap": 1}]})
    narrow.until(lambda: narrow.all_ready(1))
    with stream(narrow.port, chat(tokens=LONG)) as events:
        next(event for event in events if has_content(event))
        with waiting_client(narrow.port, stream=True):
            narrow.until(lambda: narrow.metric("queued") == 1)
        narrow.until(lambda: narrow.metric("queued") == 0, FREE_WITHIN_S)
        assert narrow.metric("requests_total", outcome="client_gone") == 1
        next(event for event in events if has_content(event))  # who had the place keeps it
        assert narrow.endpoints()[engine.name]["seated"] == 1
    narrow.until(lambda: forgotten(narrow), FREE_WITHIN_S)


def test_the_place_of_who_left_goes_to_who_waits(serve: Serve, engines: list[Engine]) -> None:
    narrow = serve(config={"models": [{"name": MODEL, "endpoints": [engines[0].url], "cap": 1}]})
    narrow.until(lambda: narrow.all_ready(1))
    with socket.create_connection(("127.0.0.1", narrow.port)) as second:
        with stream(narrow.port, chat(tokens=LONG)) as events:
            next(event for event in events if has_content(event))
            second.sendall(request_bytes(chat(tokens=1)))
            narrow.until(lambda: narrow.metric("queued") == 1)
        second.settimeout(PATIENCE_S)
        assert second.recv(100).startswith(b"HTTP/1.1 200 ")
