"""What users of the official client see, on a model under its own name and on a renamed one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.children import MODEL, Gateway, post

SAY: Any = [{"role": "user", "content": "Tell me a story of a ship."}]
EXACTLY: Any = {"max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(params=[MODEL, "small", "default"])
def model(request: pytest.FixtureRequest) -> str:
    """A model under its engines' name, one that is served as another, and its alias."""
    name: str = request.param
    return name


def chat_chunks(client: OpenAI, model: str, **more: Any) -> Iterator[Any]:
    stream: Any = client.chat.completions.create(
        model=model, messages=SAY, stream=True, **{**EXACTLY, **more}
    )
    with stream:
        yield from stream


def test_a_chat(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=SAY, **EXACTLY)
    assert answer.model == model
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_a_chat_as_a_stream_has_the_same_text_and_no_usage_unasked(client: OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=SAY, **EXACTLY)
    chunks = list(chat_chunks(client, model))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert {chunk.model for chunk in chunks} == {model}
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_usage_of_a_stream_comes_when_asked_for(client: OpenAI, model: str) -> None:
    *chunks, last = chat_chunks(client, model, stream_options={"include_usage": True})
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert (last.choices, last.model, last.usage.completion_tokens) == ([], model, 6)


def test_a_completion(client: OpenAI, model: str) -> None:
    answer = client.completions.create(model=model, prompt="The ship", **EXACTLY)
    assert answer.model == model
    assert answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_a_completion_as_a_stream_has_the_same_text(client: OpenAI, model: str) -> None:
    whole = client.completions.create(model=model, prompt="The ship", **EXACTLY)
    chunks = list(client.completions.create(model=model, prompt="The ship", stream=True, **EXACTLY))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert {chunk.model for chunk in chunks} == {model}


def test_two_answers_at_once(client: OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=SAY, n=2, **EXACTLY)
    assert [choice.index for choice in whole.choices] == [0, 1]
    finished = [c.choices[0] for c in chat_chunks(client, model, n=2) if c.choices[0].finish_reason]
    assert sorted(choice.index for choice in finished) == [0, 1]


def test_what_the_gateway_does_not_know_reaches_the_engine_and_comes_back(client: OpenAI, model: str) -> None:
    for _engine in range(2):  # they take turns; afterwards each remembers the prompt
        client.chat.completions.create(model=model, messages=SAY, **EXACTLY)

    def cached(**more: Any) -> int:
        answer = client.chat.completions.create(
            model=model, messages=SAY, max_tokens=1, extra_body={"ignore_eos": True, **more}
        )
        assert "timings" in (answer.model_extra or {})  # the engine's own addition
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return answer.usage.prompt_tokens_details.cached_tokens or 0

    assert cached() > 0
    assert cached(cache_prompt=False) == 0


def test_the_models_are_listed_with_what_the_engine_says_of_them(client: OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert set(listed) == {MODEL, "small", "default"}
    assert {model.owned_by for model in listed.values()} == {"llamacpp"}


def test_a_model_is_described(client: OpenAI, model: str) -> None:
    described = client.models.retrieve(model)
    assert (described.id, described.object) == (model, "model")


def test_an_unknown_model_is_an_error_that_is_not_repeated(client: OpenAI, gateway: Gateway) -> None:
    before = gateway.metric("requests_total", outcome="model_not_found")
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-9", messages=SAY)
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    assert gateway.metric("requests_total", outcome="model_not_found") == before + 1
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_an_engines_own_refusal_is_passed_on_and_not_repeated(client: OpenAI, gateway: Gateway) -> None:
    before = gateway.metric("requests_total", api="embeddings")
    with pytest.raises(openai.InternalServerError) as error:
        client.embeddings.create(model=MODEL, input="a ship")
    assert (error.value.status_code, error.value.code) == (501, "501")
    assert gateway.metric("requests_total", api="embeddings") == before + 1  # the client did not repeat it
    assert gateway.all_ready(4)  # nor is an engine shut out for what it cannot do


def test_a_prompt_beyond_the_context_is_the_engines_own_error(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="context") as error:
        client.completions.create(model=model, prompt="ship " * 3000, max_tokens=1)
    assert error.value.type == "exceed_context_size_error"


def test_broken_json_is_told_where_it_breaks(gateway: Gateway) -> None:
    status, headers, body = post(gateway.port, "/v1/chat/completions", b'{"model": "small", oops}')
    assert status == 400
    assert headers["x-maitred-outcome"] == "bad_request"
    error = json.loads(body)["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert "(byte 19)" in error["message"]
