"""What users of Anthropic's official client see, on a model under its own name and on a renamed one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.e2e.children import MODEL, Engine, Gateway

SAY: Any = [{"role": "user", "content": "Tell me a story of a ship."}]
TOKENS = 6
EXACTLY: Any = {
    "messages": SAY,
    "max_tokens": TOKENS,
    "extra_body": {"ignore_eos": True, "temperature": 0},
}
TOOL: Any = {
    "name": "weather",
    "description": "The weather at a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


@pytest.fixture(params=[MODEL, "small", "default"])
def model(request: pytest.FixtureRequest) -> str:
    """A model under its engines' name, one that is served as another, and its alias."""
    name: str = request.param
    return name


@pytest.fixture
def client(gateway: Gateway) -> Iterator[Anthropic]:
    """The official client, as a user has it."""
    with Anthropic(base_url=gateway.url, api_key="none-needed", timeout=60) as client:
        yield client


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message(client: Anthropic, model: str) -> None:
    message: Any = client.messages.create(model=model, **EXACTLY)
    assert (message.model, message.type, message.role) == (model, "message", "assistant")
    assert text_of(message)
    assert (message.usage.output_tokens, message.stop_reason) == (TOKENS, "max_tokens")


def test_a_stream_has_the_same_text_in_the_order_of_its_events(client: Anthropic, model: str) -> None:
    whole = client.messages.create(model=model, **EXACTLY)
    events: Any = list(client.messages.create(model=model, stream=True, **EXACTLY))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0].message.model == model
    assert "".join(event.delta.text for event in events[2:-3]) == text_of(whole)
    assert events[-2].usage.output_tokens == TOKENS


def test_the_clients_own_helper_puts_the_stream_together(client: Anthropic, model: str) -> None:
    with client.messages.stream(model=model, **EXACTLY) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
        assert stream.request_id
    assert text == text_of(message) != ""
    assert (message.model, message.usage.output_tokens) == (model, TOKENS)


def test_all_that_a_conversation_holds_reaches_the_engine(
    client: Anthropic, engines: list[Engine], model: str
) -> None:
    """It counts the same whether it is asked through the gateway or not."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
    said: Any = [
        *SAY,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    system: Any = [{"type": "text", "text": "You are a pilot.", "cache_control": {"type": "ephemeral"}}]

    def count(asked: Anthropic, model: str, **more: Any) -> int:
        return asked.messages.count_tokens(model=model, messages=said, **more).input_tokens

    with Anthropic(base_url=engines[0].url, api_key="none-needed") as direct:
        for more in ({}, {"system": system}, {"system": system, "tools": [TOOL]}):
            assert count(client, model, **more) == count(direct, MODEL, **more)
    assert count(client, model) != count(client, model, system=system)  # it stands in the default one's place
    answer = client.messages.create(model=model, max_tokens=2, messages=said, system=system, tools=[TOOL])
    assert answer.usage.output_tokens > 0


def test_every_answer_has_an_id_to_ask_about(client: Anthropic, gateway: Gateway) -> None:
    message = client.messages.create(model=MODEL, **EXACTLY)
    assert message._request_id
    gateway.expect(rf"\b{message._request_id}\b")  # its line in the access log


def test_models_are_listed_and_described(client: Anthropic) -> None:
    listed = list(client.models.list())
    assert {model.id for model in listed} == {MODEL, "small", "default"}
    for told in (*listed, client.models.retrieve("small")):
        assert (told.type, told.display_name) == ("model", told.id)
        assert told.created_at.year > 2020


def test_an_unknown_model_is_an_error_that_is_not_repeated(client: Anthropic, gateway: Gateway) -> None:
    before = gateway.metric("requests_total", outcome="model_not_found")
    for ask in (client.messages.create, client.messages.stream):
        with pytest.raises(anthropic.NotFoundError) as error, ask(model="claude-9", **EXACTLY):
            pass
        assert error.value.type == "not_found_error"
        assert error.value.request_id
    assert gateway.metric("requests_total", outcome="model_not_found") == before + 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_beyond_the_context_is_said_in_anthropics_words(
    client: Anthropic, gateway: Gateway, model: str, streamed: bool
) -> None:
    before = gateway.metric("requests_total", api="messages")
    said: Any = [{"role": "user", "content": "ship " * 3000}]
    with pytest.raises(
        anthropic.BadRequestError, match=r"prompt is too long: 3\d+ tokens > 2048 max"
    ) as error:
        client.messages.create(model=model, max_tokens=1, messages=said, stream=streamed)
    assert error.value.type == "invalid_request_error"
    told: Any = error.value.body
    assert error.value.request_id == told["request_id"]
    assert gateway.metric("requests_total", api="messages") == before + 1


def test_an_engines_own_refusal_is_in_anthropics_shape(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="temperature") as error:
        client.messages.create(model=MODEL, **{**EXACTLY, "extra_body": {"temperature": "hot"}})
    assert error.value.type == "invalid_request_error"


@pytest.mark.parametrize("more", [{"messages": None}, {}])
def test_a_conversation_without_messages_is_no_failure_of_an_engine(
    client: Anthropic, gateway: Gateway, more: dict[str, Any]
) -> None:
    before = gateway.metric("requests_total", outcome="bad_request")
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        with pytest.raises(anthropic.BadRequestError, match="messages") as error:
            client.post(path, cast_to=object, body={"model": MODEL, "max_tokens": 1, **more})
        assert error.value.type == "invalid_request_error"
    assert gateway.metric("requests_total", outcome="bad_request") == before + 2
    assert gateway.all_ready(4)


def test_what_steers_is_refused_by_name(client: Anthropic) -> None:
    more = {**EXACTLY, "extra_body": {"cache_salt": "mine"}}
    with pytest.raises(anthropic.BadRequestError, match="cache_salt") as error:
        client.messages.create(model=MODEL, **more)
    assert error.value.type == "invalid_request_error"
