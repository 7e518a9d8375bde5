"""The end of a gateway: what runs may finish, for a while; a second signal does not wait."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.children import Engine, Gateway, chat, get, has_content, post, stopped, stream
from tests.e2e.conftest import Serve

LONG = 1900
"""Tokens of an answer that nobody here waits for: some 15 seconds."""


def started(serve: Serve, engines: list[Engine], drain: dict[str, str]) -> Gateway:
    urls = [engine.url for engine in engines]
    gateway = serve(config={"endpoints": urls, "drain": drain})
    gateway.until(gateway.all_ready)
    return gateway


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_stream_finishes_while_nothing_new_is_let_in(
    serve: Serve, engines: list[Engine], number: signal.Signals
) -> None:
    gateway = started(serve, engines, {})
    with stream(gateway.port, chat(tokens=150)) as events:
        next(event for event in events if has_content(event))
        with stopped(engines):
            gateway.signal(number)
            gateway.expect(f"{number.name}: draining")
            assert get(gateway.port, "/readyz")[0] == 503
            assert get(gateway.port, "/livez")[0] == 200
            status, headers, body = post(gateway.port, "/v1/chat/completions", chat())
            assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
            assert (headers["connection"], headers["x-should-retry"]) == ("close", "true")
        *rest, done = events
    assert done == "[DONE]"
    assert sum(map(has_content, rest)) > 50
    assert gateway.wait() == 0


def test_for_the_time_of_the_notice_requests_are_still_served(serve: Serve, engines: list[Engine]) -> None:
    gateway = started(serve, engines, {"notice": "1m"})
    gateway.signal(signal.SIGTERM)
    gateway.expect("SIGTERM: draining")
    assert get(gateway.port, "/readyz")[0] == 503
    assert post(gateway.port, "/v1/chat/completions", chat())[0] == 200
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0


def test_an_idle_gateway_ends_at_once(serve: Serve, engines: list[Engine]) -> None:
    gateway = started(serve, engines, {})
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0  # by itself that takes two minutes


def test_a_second_signal_ends_at_once(serve: Serve, engines: list[Engine]) -> None:
    gateway = started(serve, engines, {})
    with stream(gateway.port, chat(tokens=LONG)) as events:
        next(event for event in events if has_content(event))
        gateway.signal(signal.SIGTERM)
        gateway.expect("SIGTERM: draining")
        gateway.signal(signal.SIGTERM)
        *_, last = events
        assert json.loads(last)["error"]["code"] == "draining"  # never taken for a whole answer
        assert gateway.wait() == 0
    engines[0].child.until(lambda: not any(engine.busy() for engine in engines))


def test_past_the_limit_a_stream_ends_in_an_error_event(serve: Serve, engines: list[Engine]) -> None:
    gateway = started(serve, engines, {"limit": "300ms"})
    with stream(gateway.port, chat(tokens=LONG)) as events:
        next(event for event in events if has_content(event))
        gateway.signal(signal.SIGTERM)
        *_, last = events
    assert json.loads(last)["error"]["code"] == "draining"
    assert gateway.wait() == 0
    engines[0].child.until(lambda: not any(engine.busy() for engine in engines))
