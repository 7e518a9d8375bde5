"""An engine dies in the middle of traffic: who has part of an answer is told, nobody else notices."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.children import MODEL, Engine, Gateway, chat, has_content, post, stopped, stream

CHAT = "/v1/chat/completions"


def at_work(gateway: Gateway, engine: Engine) -> int:
    running: int = gateway.endpoints()[engine.name]["running"]
    return running


def test_streams_with_content_end_in_an_error_event_and_others_go_on(
    gateway: Gateway, engines: list[Engine]
) -> None:
    victim, _survivor = engines
    with ExitStack() as opened:
        streams = [opened.enter_context(stream(gateway.port, chat(tokens=150))) for _ in range(4)]
        for events in streams:
            next(event for event in events if has_content(event))
        with stopped(engines):
            assert at_work(gateway, victim) == 2
            victim.kill()
        with ThreadPoolExecutor(len(streams)) as readers:
            ends = list(readers.map(lambda events: [*events, time.monotonic()][-2:], streams))
    done = [at for event, at in ends if event == "[DONE]"]
    broken = [(event, at) for event, at in ends if event != "[DONE]"]
    assert len(broken) == len(done) == 2
    for event, at in broken:
        assert json.loads(event)["error"]["code"] in {"upstream_failed", "stream_truncated"}
        assert at < min(done), "it is told at once, before the others have all of theirs"


def test_the_official_client_raises_on_such_a_stream(
    client: OpenAI, gateway: Gateway, engines: list[Engine]
) -> None:
    body: Any = chat(tokens=1000)
    del body["ignore_eos"]
    with client.chat.completions.create(**body, stream=True, extra_body={"ignore_eos": True}) as chunks:
        next(chunk for chunk in chunks if chunk.choices[0].delta.content)
        [victim] = [engine for engine in engines if at_work(gateway, engine)]
        victim.kill()
        with pytest.raises(openai.APIError, match=r"engine|stream"):
            list(chunks)


def test_requests_of_which_nothing_was_delivered_succeed_elsewhere(
    gateway: Gateway, engines: list[Engine]
) -> None:
    victim, _survivor = engines
    retries = gateway.metric("retries_total")

    def streamed() -> list[str]:
        with stream(gateway.port, chat(tokens=3)) as events:
            return list(events)

    with ThreadPoolExecutor(4) as clients:
        with stopped(engines):
            wholes = [clients.submit(post, gateway.port, CHAT, chat(tokens=30)) for _ in range(2)]
            streams = [clients.submit(streamed) for _ in range(2)]
            gateway.until(lambda: at_work(gateway, victim) == 2)
            victim.kill()
        for whole in wholes:
            status, _, body = whole.result()
            assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 30)
        for events in streams:
            assert events.result()[-1] == "[DONE]"
            assert any(map(has_content, events.result()))
    assert gateway.metric("retries_total") == retries + 2


def test_the_dead_engine_is_left_out_and_comes_back(gateway: Gateway, engines: list[Engine]) -> None:
    victim, survivor = engines
    life = gateway.endpoints()[victim.name]["incarnation"]
    victim.kill()
    for _ in range(4):  # one of them finds the engine gone; its client does not notice
        assert post(gateway.port, CHAT, chat(tokens=1))[0] == 200
    states = {name: row["state"] for name, row in gateway.endpoints().items() if name.startswith(MODEL)}
    assert states == {victim.name: "ejected", survivor.name: "ready"}
    assert gateway.metric("endpoint_state", endpoint=victim.name, state="ejected") == 1
    assert gateway.ready()

    victim.start()
    gateway.until(lambda: gateway.endpoints()[victim.name]["state"] == "ready")
    back = gateway.endpoints()[victim.name]
    assert back["incarnation"] == life + 1
    for _ in range(2):
        assert post(gateway.port, CHAT, chat(tokens=1))[0] == 200
    assert gateway.endpoints()[victim.name]["seated"] == back["seated"] + 1


def test_without_any_engine_the_answer_is_that_there_is_none(gateway: Gateway, engines: list[Engine]) -> None:
    for engine in engines:
        engine.kill()
    answers = [post(gateway.port, CHAT, chat(tokens=1)) for _ in range(4)]
    assert {status for status, _, _ in answers} <= {502, 503}
    status, headers, body = answers[-1]
    assert (status, json.loads(body)["error"]["code"]) == (503, "no_endpoint")
    assert int(headers["retry-after"]) >= 1
