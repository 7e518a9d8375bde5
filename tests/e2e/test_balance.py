"""Load goes to the engine that has less of it."""

from __future__ import annotations

from contextlib import ExitStack

from tests.e2e.children import Engine, Gateway, chat, has_content, post, stream


def test_concurrent_requests_spread_evenly_over_the_engines(gateway: Gateway, engines: list[Engine]) -> None:
    with ExitStack() as streams:
        for _ in range(4):
            streams.enter_context(stream(gateway.port, chat(tokens=1000)))
        taken = [gateway.metric("endpoint_in_flight", endpoint=engine.name) for engine in engines]
        assert taken == [2, 2]
        gateway.until(lambda: [engine.busy() for engine in engines] == [2, 2])
    gateway.until(lambda: gateway.metric("in_flight") == 0)


def test_while_one_engine_is_at_work_the_other_gets_what_comes(
    gateway: Gateway, engines: list[Engine]
) -> None:
    with stream(gateway.port, chat(tokens=1000)) as events:
        assert has_content(next(event for event in events if has_content(event)))
        before = gateway.endpoints()
        [idle] = [engine.name for engine in engines if not before[engine.name]["running"]]
        for _ in range(3):
            assert post(gateway.port, "/v1/chat/completions", chat(tokens=1))[0] == 200
        assert gateway.endpoints()[idle]["seated"] == before[idle]["seated"] + 3
