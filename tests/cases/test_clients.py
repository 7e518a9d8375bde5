"""What the two official clients raise for each fault: its class, status, code or type, and the request's id.

Programs catch these classes and people quote these ids, so they are part of what the gateway promises. Each
fault is met by both clients, since the same fault reads differently in the two APIs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic

from maitred.config.tree import Drain, Queue, Upstream
from tests.cases.place import Place, on_sockets, serving
from tests.cases.upstream import GOOD, SILENCE, Plan, stream
from tests.net.http import Client
from tests.proxy.faults import ERROR_BODY
from tests.proxy.place import WHOLE
from tests.proxy.upstream import DONE, ERROR, LAST, ROLE, End, head, whole, word
from tests.wire.streams import captured

SAY: Any = [{"role": "user", "content": "hi"}]
HOST = "http://10.0.0.1/"
MESSAGE: Plan = [whole(captured("vllm_messages").replace(b'"smollm2"', b'"m"'))]
EVENTS = captured("vllm_messages_stream").replace(b'"smollm2"', b'"m"').split(b"\n\n")
BEGUN = b"\n\n".join([*EVENTS[:3], b""])
"""A stream of messages up to its first word."""
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'


class Told(NamedTuple):
    """What a program and its user see of an error. `code`: the type where the API has no codes."""

    kind: type[Exception]
    status: int | None
    code: str | None


async def ask_openai(place: Place, retries: int = 0, **more: Any) -> list[str]:
    """One chat of the official client; the words of a stream. Raises what it raises."""
    async with place.openai(retries) as client:
        answer: Any = await client.chat.completions.create(**{"model": "m", "messages": SAY, **more})
        if more.get("stream"):
            return [one.choices[0].delta.content async for one in answer if one.choices]
    return [answer.id]


async def ask_anthropic(place: Place, retries: int = 0, **more: Any) -> list[str]:
    """The same of the other one."""
    url = f"http://127.0.0.1:{place.port}"
    async with AsyncAnthropic(base_url=url, api_key="sk-of-the-client", max_retries=retries) as client:
        answer: Any = await client.messages.create(**{"model": "m", "max_tokens": 9, "messages": SAY, **more})
        if more.get("stream"):
            return [one.type async for one in answer]
    return [answer.id]


Ask = Callable[..., Awaitable[list[str]]]
ASKS: dict[str, Ask] = {"openai": ask_openai, "anthropic": ask_anthropic}
both = pytest.mark.parametrize("name", ASKS)


async def error_of(place: Place, name: str, **more: Any) -> Any:
    """The error of one request, which carries the id of its line in the log where it is a status's."""
    seen = len(place.lines)
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await ASKS[name](place, **more)
    await place.until(lambda: len(place.lines) > seen)
    error: Any = raised.value
    if isinstance(error, openai.APIStatusError | anthropic.APIStatusError):
        assert error.request_id == place.lines[-1]["id"]
    return error


def told(error: Any) -> Told:
    by_code = isinstance(error, openai.APIError)
    return Told(type(error), getattr(error, "status_code", None), error.code if by_code else error.type)


FAILED = {
    "openai": Told(openai.InternalServerError, 502, "upstream_failed"),
    "anthropic": Told(anthropic.InternalServerError, 502, "api_error"),
}
BUSY = {
    "openai": Told(openai.RateLimitError, 429, "server_overloaded"),
    "anthropic": Told(anthropic.OverloadedError, 529, "overloaded_error"),
}
REFUSED = {
    "openai": Told(openai.BadRequestError, 400, "invalid_request"),
    "anthropic": Told(anthropic.BadRequestError, 400, "invalid_request_error"),
}
AWAY = {
    "openai": Told(openai.InternalServerError, 503, "no_endpoint"),
    "anthropic": Told(anthropic.OverloadedError, 529, "overloaded_error"),
}
CLOSING = {**AWAY, "openai": Told(openai.InternalServerError, 503, "draining")}
LATE = {
    "openai": Told(openai.InternalServerError, 504, "deadline_exceeded"),
    "anthropic": Told(anthropic.GatewayTimeoutError, 504, "timeout_error"),
}
BROKEN_OFF = {
    "openai": Told(openai.APIError, None, "stream_truncated"),
    "anthropic": Told(anthropic.APIStatusError, 200, "api_error"),
}
NO_MODEL = {
    "openai": Told(openai.NotFoundError, 404, "model_not_found"),
    "anthropic": Told(anthropic.NotFoundError, 404, "not_found_error"),
}

ILL: dict[str, Plan] = {
    "500": [whole(ERROR_BODY, status=500)],
    "503": [head(503, "content-length: 0")],
    "reset": [End.RESET],
    "closed": [End.CLOSE],
    "garbage": [b"\x16\x03\x01\x02\x00\x01\x00garbage\r\n\r\n"],
    "redirect": [head(302, "location: http://elsewhere/", "content-length: 0")],
}


@both
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fault", ILL)
@on_sockets
async def test_a_failed_engine_is_one_error_that_no_client_repeats(
    name: str, streamed: bool, fault: str
) -> None:
    async with serving(ILL[fault], engines=2) as place:
        await place.drop_idle()  # one that dies at once is none of the attempts
        error = await error_of(place, name, retries=2, stream=streamed)
        assert told(error) == FAILED[name]
        assert len(place.script.asked) == 2, "the gateway's own two attempts and not one more"
        assert place.outcomes == ["failed_upstream"]


@both
@pytest.mark.parametrize("status", [429, 529])
@on_sockets
async def test_an_engine_that_is_busy_says_when_to_come_back(name: str, status: int) -> None:
    async with serving([whole(ERROR_BODY, "retry-after: 7", status=status)]) as place:
        error = await error_of(place, name)
        assert told(error) == BUSY[name]
        headers = error.response.headers
        assert (headers["retry-after"], headers["x-should-retry"]) == ("7", "true")
        assert place.outcomes == ["engine_overloaded"]


@both
@on_sockets
async def test_and_a_client_that_comes_back_is_served(name: str) -> None:
    answer = GOOD if name == "openai" else MESSAGE
    async with serving([whole(ERROR_BODY, status=429)], answer) as place:
        await ASKS[name](place, retries=1)
        assert place.outcomes == ["engine_overloaded", "completed"]


@both
@on_sockets
async def test_an_engine_that_is_not_there(name: str) -> None:
    async with serving() as place:
        place.engines[0].close()
        assert told(await error_of(place, name)) == FAILED[name]  # it is found out by this request
        error = await error_of(place, name)
        assert told(error) == AWAY[name]
        assert error.response.headers["x-should-retry"] == "true"
        assert place.outcomes == ["failed_upstream", "no_endpoint"]


@both
@on_sockets
async def test_an_engine_that_never_answers(name: str) -> None:
    async with serving(SILENCE, upstream=Upstream(first_byte_s=0.1)) as place:
        assert told(await error_of(place, name, retries=2)) == LATE[name]
        assert len(place.script.asked) == 1, "a repeat would pay for the generation again"


@both
@on_sockets
async def test_a_client_that_waits_no_longer_leaves_the_engine_too(name: str) -> None:
    async with serving(SILENCE) as place:
        error = await error_of(place, name, timeout=1.0)
        assert isinstance(error, openai.APITimeoutError | anthropic.APITimeoutError)
        await (await place.script.called()).lost.wait()
        assert place.outcomes == ["client_gone"]


SAID = {"openai": (ROLE, word("Hello")), "anthropic": (BEGUN,)}
CUT: dict[str, Plan] = {"close": [End.CLOSE], "reset": [End.RESET], "no end": [LAST]}


@both
@pytest.mark.parametrize("cut", CUT)
@on_sockets
async def test_a_stream_that_breaks_off(name: str, cut: str) -> None:
    async with serving(stream(*SAID[name], end=CUT[cut])) as place:
        assert told(await error_of(place, name, retries=2, stream=True)) == BROKEN_OFF[name]
        assert len(place.script.asked) == 1
        assert place.outcomes == ["failed_truncated"]


@both
@on_sockets
async def test_an_error_in_the_stream_is_the_engines_own(name: str) -> None:
    own = {"openai": (ERROR, DONE), "anthropic": (OVERLOADED,)}[name]
    async with serving(stream(*SAID[name], *own)) as place:
        error = await error_of(place, name, stream=True)
        expected = {
            "openai": Told(openai.APIError, None, "500"),
            "anthropic": Told(anthropic.APIStatusError, 200, "overloaded_error"),
        }
        assert told(error) == expected[name]


@both
@on_sockets
async def test_an_error_before_content_is_a_status(name: str) -> None:
    start = {"openai": (ROLE, ERROR), "anthropic": (EVENTS[0] + b"\n\n", OVERLOADED)}[name]
    async with serving(stream(*start)) as place:
        assert told(await error_of(place, name, stream=True)) == FAILED[name]


ANTHROPIC_KINDS = {400: "invalid_request_error", 501: "api_error"}


@both
@pytest.mark.parametrize("status", ANTHROPIC_KINDS)
@on_sockets
async def test_what_the_engine_refuses_keeps_its_words(name: str, status: int) -> None:
    """llama.cpp answers Anthropic's clients in OpenAI's shape; they get their own.

    A 501 would be repeated by both if nothing told them that it is no use.
    """
    own = b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}'
    kinds = {"openai": "exceed_context_size_error", "anthropic": ANTHROPIC_KINDS[status]}
    async with serving([whole(own, "request-id: theirs", status=status)]) as place:
        error = await error_of(place, name, retries=2)
        assert (error.status_code, error.type) == (status, kinds[name])
        assert "too long" in str(error)
        assert len(place.script.asked) == 1
        assert place.outcomes == ["engine_refused"]


TOO_LONG = {
    "openai": Told(openai.BadRequestError, 400, "400"),
    "anthropic": Told(anthropic.BadRequestError, 400, "invalid_request_error"),
}


@both
@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
@pytest.mark.parametrize("streamed", [False, True])
@on_sockets
async def test_a_prompt_that_is_too_long(name: str, engine: str, streamed: bool) -> None:
    own = captured(f"{engine}_err_overlong")
    async with serving([whole(own, status=400)]) as place:
        error = await error_of(place, name, stream=streamed)
        assert told(error) == TOO_LONG[name]
        if name == "anthropic":
            assert re.search(r"prompt is too long: \d+ tokens > 2048 maximum", str(error))
        else:
            assert error.response.content == own


IMAGE = {"type": "image", "source": {"type": "url", "url": HOST}}
NOT_LET_IN: dict[str, tuple[dict[str, Any], str]] = {
    "a field that steers": ({"extra_body": {"priority": 1}}, "priority"),
    "an image elsewhere": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": HOST}}]}]},
        "messages[0].content[0].image_url",
    ),
    "an image of the other API": (
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages[0].content[0].source",
    ),
    "no list of messages": ({"messages": "hi"}, "messages"),
    "no messages": ({"messages": None}, "messages"),
}


@both
@pytest.mark.parametrize("wrong", NOT_LET_IN)
@on_sockets
async def test_what_is_refused_at_the_door_names_the_place(name: str, wrong: str) -> None:
    more, param = NOT_LET_IN[wrong]
    async with serving() as place:
        error = await error_of(place, name, retries=2, **more)
        assert told(error) == REFUSED[name]
        assert f"{param}: " in str(error)
        if name == "openai":
            assert error.param == param
        assert (len(place.script.asked), place.outcomes) == (0, ["bad_request"])


@both
@on_sockets
async def test_a_model_that_is_not_here(name: str) -> None:
    async with serving() as place:
        assert told(await error_of(place, name, model="gpt-9")) == NO_MODEL[name]


async def running(place: Place) -> Client:
    """A request that the engine is busy with."""
    client = await place.client()
    client.send(WHOLE)
    await place.script.called()
    return client


@both
@on_sockets
async def test_a_full_queue(name: str) -> None:
    async with serving(SILENCE, model={"cap": 1, "queue": Queue(requests_max=1)}) as place:
        await running(place)
        waiting = await place.client()
        waiting.send(WHOLE)
        await place.until(lambda: place.waiting == 1)
        error = await error_of(place, name)
        assert told(error) == BUSY[name]
        assert error.response.headers["x-should-retry"] == "true"
        assert 1 <= int(error.response.headers["retry-after"]) <= 60
        assert place.outcomes == ["queue_full"]


@both
@on_sockets
async def test_a_gateway_that_is_closing(name: str) -> None:
    async with serving(SILENCE, drain=Drain(limit_s=60.0)) as place:
        client = await running(place)
        draining = asyncio.create_task(place.app.drain())
        await place.until(lambda: not place.app.house.gateway.settings.accepting)
        error = await error_of(place, name)
        assert told(error) == CLOSING[name]
        assert error.response.headers["x-should-retry"] == "true"
        client.leave()
        await draining


class TestWhatIsNotSpoken:
    """Other parts of the clients find nothing here, in words they understand, and their ids too."""

    @on_sockets
    async def test_images(self) -> None:
        async with serving() as place, place.openai(2) as client:
            with pytest.raises(openai.NotFoundError) as raised:
                await client.images.generate(model="m", prompt="a cat")
            assert told(raised.value).code == "path_not_found"
            assert raised.value.request_id == place.lines[0]["id"]
            assert place.outcomes == ["path_not_found"]

    @pytest.mark.parametrize("what", ["batches", "files", "a model"])
    @on_sockets
    async def test_of_the_other_api(self, what: str) -> None:
        url = "http://127.0.0.1:"
        async with (
            serving() as place,
            AsyncAnthropic(base_url=f"{url}{place.port}", api_key="x", max_retries=2) as client,
        ):
            calls: dict[str, Callable[[], Any]] = {
                "batches": client.messages.batches.list,
                "files": client.beta.files.list,
                "a model": lambda: client.models.retrieve("gpt-9"),
            }
            with pytest.raises(anthropic.NotFoundError) as raised:
                await calls[what]()
            assert told(raised.value) == NO_MODEL["anthropic"]
            assert raised.value.request_id == place.lines[0]["id"]
            assert len(place.lines) == 1
