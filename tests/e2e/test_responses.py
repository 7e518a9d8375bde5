"""What users of the official client see of conversations that are kept, on a real engine."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.children import MODEL

FEW: Any = {"max_output_tokens": 6, "temperature": 0}


def test_a_turn_and_the_next(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="My name is Anna. Say hello.", **FEW)
    assert first.output_text
    assert first.status == "incomplete"  # the model would have said more
    assert first.usage is not None
    assert first.usage.output_tokens == 6
    second = client.responses.create(model=MODEL, input="And now?", previous_response_id=first.id, **FEW)
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(second.id) == second


def test_the_next_turn_finds_its_prompt_in_the_engines_cache(client: OpenAI) -> None:
    told = "Here is a long story of a ship. " * 20
    first = client.responses.create(model="small", input=told, **FEW)
    second = client.responses.create(model="small", input="And?", previous_response_id=first.id, **FEW)
    assert first.usage is not None and second.usage is not None  # noqa: PT018
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 8


def test_a_stream(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="Say hello.", **FEW) as stream:
        events: list[Any] = list(stream)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.incomplete"
    whole = events[-1].response
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert whole.output_text == text
    assert client.responses.retrieve(whole.id).output_text == text


def test_a_conversation(client: OpenAI) -> None:
    conversation = client.conversations.create(metadata={"topic": "ships"})
    for said in ("Say hello.", "Once more."):
        client.responses.create(model=MODEL, input=said, conversation=conversation.id, **FEW)
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=1))
    assert [getattr(item, "role", "") for item in items] == ["user", "assistant", "user", "assistant"]
    added = client.conversations.items.create(
        conversation.id, items=[{"type": "message", "role": "user", "content": "By the way."}]
    )
    one = client.conversations.items.retrieve(added.data[0].id, conversation_id=conversation.id)  # type: ignore[arg-type]
    assert one == added.data[0]
    client.conversations.items.delete(one.id, conversation_id=conversation.id)  # type: ignore[arg-type]
    assert len(list(client.conversations.items.list(conversation.id))) == 4
    changed = client.conversations.update(conversation.id, metadata={"topic": "boats"})
    assert client.conversations.retrieve(conversation.id) == changed
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_input_items_and_deleting(client: OpenAI) -> None:
    said: Any = [{"role": "user", "content": "Hello."}, {"role": "user", "content": "Are you there?"}]
    response = client.responses.create(model=MODEL, input=said, **FEW)
    items = list(client.responses.input_items.list(response.id, order="asc", limit=1))
    assert [item.content[0].text for item in items] == ["Hello.", "Are you there?"]  # type: ignore[union-attr, index]
    client.responses.delete(response.id)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            gone(response.id)
    with pytest.raises(openai.NotFoundError) as error:
        client.responses.create(model=MODEL, input="And?", previous_response_id=response.id)
    assert (error.value.code, error.value.param) == ("previous_response_not_found", "previous_response_id")
