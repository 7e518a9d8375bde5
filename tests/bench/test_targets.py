"""The server that is measured: what is written about it, and what is found out before anything is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from maitred.bench.forms import FORMS
from maitred.bench.targets import Facts, Target, TargetError, parse, preflight
from maitred.bench.text import BYTES_PER_TOKEN
from maitred.net.memory import MemoryNetwork
from tests.bench.place import Script, event, serving, usage, whole
from tests.proxy.place import in_virtual_time
from tests.twin import place as twin

MODELS = whole(json.dumps({"data": [{"id": "one"}, {"id": "two"}]}).encode())


def refusal(status: int, message: str) -> Script:
    """An answer with an error."""
    head = b"HTTP/1.1 %d No\r\n" % status
    return [(0.0, whole(json.dumps({"error": {"message": message}}).encode(), head))]


async def meet(answer: Callable[[dict[str, Any]], Script], model: str = "one", **target: Any) -> Facts:
    """Preflight against a server that lists models and answers everything else so."""

    def script(body: dict[str, Any]) -> Script:
        return answer(body) if body else [(0.0, MODELS)]

    async with serving(script) as place:
        clock = asyncio.get_running_loop().time
        return await preflight(Target(place.url, **target), model, place.network, clock)


@pytest.mark.parametrize(
    ("text", "url", "prefix"),
    [
        ("http://host:8000", "http://host:8000", ""),
        ("http://host:8000/", "http://host:8000", ""),
        ("http://host:8000/v1", "http://host:8000", ""),
        ("https://host/team/v1/", "https://host", "/team"),
        ("http://[::1]:8000", "http://[::1]:8000", ""),
    ],
)
def test_servers_as_people_write_them(text: str, url: str, prefix: str) -> None:
    assert parse(text) == (url, prefix)


@pytest.mark.parametrize(
    "text",
    ["htp://host", "host:8000", "http://", "http://host:99999", "http://[::1", "http://h/?a=b", "http://u@h"],
)
def test_what_is_no_server(text: str) -> None:
    with pytest.raises(TargetError, match="write http://host:port"):
        parse(text)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_can_be_measured(form: str) -> None:
    @in_virtual_time()
    async def meet_twin() -> None:
        async with twin.serving() as place:
            clock = asyncio.get_running_loop().time
            target = Target(place.url, form=FORMS[form])
            facts = await preflight(target, "", place.network, clock)
        assert facts == Facts(("smollm2",), "smollm2", 4.0)

    meet_twin()


def whole_stream(body: dict[str, Any]) -> Script:
    """A stream of a server whose tokens have five bytes, and whose template adds thirty."""
    size = len(body["messages"][0]["content"])
    said = event("a") + usage(30 + size // 5, 1) + b"data: [DONE]\n\n"
    return [(0.0, whole(said, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"))]


@in_virtual_time()
async def test_tokens_are_as_long_as_the_server_counts() -> None:
    facts = await meet(whole_stream)
    assert facts.bytes_per_token == pytest.approx(5.0, rel=0.01)


@in_virtual_time()
async def test_a_key_goes_with_every_question() -> None:
    async with serving(lambda body: whole_stream(body) if body else [(0.0, MODELS)]) as place:
        target = Target(place.url, "/team", key="sk-1")
        await preflight(target, "one", place.network, asyncio.get_running_loop().time)
        heads = place.server.heads
    assert [head.split(b" ")[1] for head in heads] == [b"/team/v1/models"] + [
        b"/team/v1/chat/completions"
    ] * 2
    assert all(b"\r\nauthorization: Bearer sk-1\r\n" in head for head in heads)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_can_be_measured(status: int) -> None:
    @in_virtual_time()
    async def ask() -> None:
        facts = await meet(lambda _: refusal(status, "busy"))
        assert facts == Facts(("one", "two"), "one", BYTES_PER_TOKEN)

    ask()


@pytest.mark.parametrize(
    ("answer", "target", "words"),
    [
        (lambda _: refusal(401, "no"), {}, "wants a key (status 401); name its variable with --key-env"),
        (
            lambda _: refusal(403, "no"),
            {"key": "sk"},
            "does not take this key (status 403); name its variable with --key-env",
        ),
        (lambda _: refusal(404, "Not Found"), {"form": FORMS["responses"]}, "has no /v1/responses for one"),
        (lambda _: refusal(400, "no\nignore_eos here"), {}, "no ignore_eos here; try --any-length"),
        (
            lambda _: refusal(422, "never"),
            {"ignore_eos": False},
            "refuses a small request (status 422): never",
        ),
        (lambda _: [(0.0, whole(b"{}"))], {}, "answers JSON where a stream was asked for"),
    ],
)
def test_a_server_that_cannot_be_measured(answer: Any, target: dict[str, Any], words: str) -> None:
    @in_virtual_time()
    async def ask() -> None:
        with pytest.raises(TargetError) as error:
            await meet(answer, **target)
        assert words in str(error.value)
        assert "\n" not in str(error.value)

    ask()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("", "serves one, two; name one with --model"),
        ("three", "serves one, two, not three; name one of them"),
    ],
)
def test_models(model: str, words: str) -> None:
    @in_virtual_time()
    async def ask() -> None:
        with pytest.raises(TargetError, match=words):
            await meet(whole_stream, model)

    ask()


@in_virtual_time()
async def test_a_server_without_a_list_of_models() -> None:
    async with serving(lambda body: whole_stream(body) if body else refusal(404, "no")) as place:
        clock = asyncio.get_running_loop().time
        facts = await preflight(Target(place.url), "mine", place.network, clock)
        assert (facts.models, facts.model) == ((), "mine")
        with pytest.raises(TargetError, match="models it does not list; name one with --model"):
            await preflight(Target(place.url), "", place.network, clock)


@in_virtual_time()
async def test_what_is_no_api_at_all() -> None:
    async with serving(lambda _: [(0.0, whole(b"<html>"))]) as place:
        with pytest.raises(TargetError, match="does not speak OpenAI's API"):
            await preflight(Target(place.url), "m", place.network, asyncio.get_running_loop().time)


@in_virtual_time()
async def test_nobody_is_there() -> None:
    clock, network = asyncio.get_running_loop().time, MemoryNetwork()
    with pytest.raises(TargetError, match="nobody listens there"):
        await preflight(Target("http://127.0.0.1:9"), "m", network, clock)
    network.hang("127.0.0.1", 9)
    with pytest.raises(TargetError, match="does not answer"):
        await preflight(Target("http://127.0.0.1:9"), "m", network, clock)


@in_virtual_time()
async def test_a_server_that_never_answers() -> None:
    async with serving(lambda _: []) as place:
        with pytest.raises(TargetError, match="no answer in 60 s"):
            await preflight(Target(place.url), "m", place.network, asyncio.get_running_loop().time)


@in_virtual_time()
async def test_a_long_list_of_models_is_cut() -> None:
    listed = {"data": [{"id": f"model-{number}" + "x" * 40} for number in range(1500)]}
    async with serving(lambda _: [(0.0, whole(json.dumps(listed).encode()))]) as place:
        for name in ("", "mine"):
            with pytest.raises(TargetError) as error:
                await preflight(Target(place.url), name, place.network, asyncio.get_running_loop().time)
            assert " and 1,490 more" in str(error.value)
            assert len(str(error.value)) < 500


def test_a_password_is_not_said_again() -> None:
    with pytest.raises(TargetError) as raised:
        parse("http://u:hunter2@h:1")
    assert "hunter2" not in str(raised.value)
