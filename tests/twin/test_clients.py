"""The official clients against a twin on real sockets and uvloop: they must not see a difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anthropic
import openai
import pytest
import uvloop

from maitred.net.seams import Sockets
from tests.net.http import post
from tests.twin.place import CHAT, MODEL, Place, chat, serving

USER = "Name three colours."


def served(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    """Run a test before a twin on real sockets, whose steps take a millisecond."""

    def run() -> None:
        async def main() -> None:
            async with serving(network=Sockets()) as place:
                await place.post("/twin/slow=0.1")
                await test(place)

        uvloop.run(main())

    return run


def openai_client(place: Place) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{place.url}/v1", api_key="none", max_retries=0)


@served
async def test_openai_chat(place: Place) -> None:
    async with openai_client(place) as client:
        whole = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": USER}], max_tokens=20
        )
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": USER}],
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens == whole.usage.prompt_tokens + 20


@served
async def test_openai_completions_responses_and_embeddings(place: Place) -> None:
    async with openai_client(place) as client:
        text = await client.completions.create(model=MODEL, prompt="Once", max_tokens=5)
        response = await client.responses.create(model=MODEL, input=USER, max_output_tokens=16)
        said, kinds = "", []
        async for event in await client.responses.create(
            model=MODEL, input=USER, max_output_tokens=16, stream=True
        ):
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                said += event.delta
        vectors = await client.embeddings.create(model=MODEL, input=["a", "b"])
        models = await client.models.list()
    assert len(text.choices[0].text.split()) == 5
    assert response.output_text == said
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert len(vectors.data[0].embedding) == 384
    assert [model.id for model in models.data] == [MODEL]


@served
async def test_openai_errors(place: Place) -> None:
    async with openai_client(place) as client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.completions.create(model="nope", prompt="x")
        with pytest.raises(openai.BadRequestError, match="maximum context length is 2048"):
            await client.completions.create(model=MODEL, prompt="word " * 4000, max_tokens=4)
        with pytest.raises(openai.InternalServerError, match="told to fail"):
            await client.completions.create(
                model=MODEL, prompt="x", extra_headers={"x-twin-fail": "status=503"}
            )
        stream = await client.completions.create(
            model=MODEL, prompt="x", stream=True, extra_headers={"x-twin-fail": "reset=3"}
        )
        with pytest.raises(openai.APIConnectionError):
            async for _ in stream:
                pass


@served
async def test_a_reset_is_one_on_the_wire(place: Place) -> None:
    client = await place.client()
    client.send(post(CHAT, chat(stream=True, max_tokens=50), "x-twin-fail: reset=3"))
    await client.closed()
    assert isinstance(client.error, ConnectionResetError)


@served
async def test_anthropic_messages(place: Place) -> None:
    async with anthropic.AsyncAnthropic(base_url=place.url, api_key="none", max_retries=0) as client:
        whole = await client.messages.create(
            model=MODEL, max_tokens=20, messages=[{"role": "user", "content": USER}]
        )
        async with client.messages.stream(
            model=MODEL, max_tokens=20, messages=[{"role": "user", "content": USER}]
        ) as stream:
            said = "".join([text async for text in stream.text_stream])
            final = await stream.get_final_message()
        counted = await client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": USER}]
        )
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await client.messages.create(
                model="nope", max_tokens=2, messages=[{"role": "user", "content": USER}]
            )
    assert whole.content[0].type == "text"
    assert whole.content[0].text == said
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 20
    assert counted.input_tokens == whole.usage.input_tokens
