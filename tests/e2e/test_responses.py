"""What users of the official client see of conversations that are kept, on a real engine."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.e2e.children import MODEL, PACE_S, PATIENCE_S, Engine, Gateway, ask, get, post
from tests.e2e.conftest import Serve

QUIET_S = 1.5
"""An engine that makes an answer in one piece looks for its client only when nobody asks it anything."""
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


class Person(BaseModel):
    """What an answer is read into."""

    name: str
    age: int


def test_an_answer_of_a_form_and_what_was_said_given_back(client: OpenAI) -> None:
    said: Any = [{"role": "user", "content": "Ada is 36."}]
    how: Any = {"model": MODEL, "input": said, "text_format": Person, "max_output_tokens": 80}
    first = client.responses.parse(temperature=0, **how)
    assert isinstance(first.output_parsed, Person)
    with client.responses.stream(temperature=0, **how) as stream:
        kinds = [event.type for event in stream]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    said += [*first.output, {"role": "user", "content": "Who?"}]
    again = client.responses.create(model=MODEL, input=said, **FEW)
    kept = client.responses.input_items.list(again.id, order="asc").data
    assert [getattr(item, "role", "") for item in kept] == ["user", "assistant", "user"]


def test_the_tokens_of_a_request(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input="Say hello.")
    made = client.responses.create(model=MODEL, input="Say hello.", **FEW)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens


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


def polled(client: OpenAI, id_: str) -> Any:
    """A response of the background, once it has ended."""
    until = time.monotonic() + PATIENCE_S
    while (response := client.responses.retrieve(id_)).status in ("queued", "in_progress"):
        assert time.monotonic() < until
        time.sleep(PACE_S)
    return response


def test_the_background(client: OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input="Say hello.", background=True, **FEW)
    assert queued.status == "queued"
    response = polled(client, queued.id)
    assert (response.status, response.background) == ("incomplete", True)
    assert response.output_text
    assert client.responses.cancel(queued.id).status == "incomplete"  # it is over


def test_a_stream_of_the_background_is_left_and_resumed(client: OpenAI) -> None:
    said: Any = {"model": MODEL, "input": "Tell me a story of a ship.", "max_output_tokens": 40}
    with client.responses.create(background=True, stream=True, **said) as stream:
        first: list[Any] = []
        for event in stream:
            first.append(event)
            if event.type == "response.output_text.delta":
                break
    id_ = first[0].response.id
    resumed: Any = client.responses.retrieve(id_, stream=True, starting_after=first[-1].sequence_number)
    events = [*first, *resumed]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == polled(client, id_).output_text


def test_one_of_the_background_is_cancelled(client: OpenAI, engines: list[Engine]) -> None:
    said: Any = {"model": MODEL, "input": "Tell me a long story of a ship.", "max_output_tokens": 1900}
    response = client.responses.create(background=True, **said)
    engines[0].child.until(lambda: any(engine.busy() for engine in engines))
    assert client.responses.cancel(response.id).status == "cancelled"
    engines[0].child.until(
        lambda: not any(engine.busy() for engine in engines), within_s=8 * QUIET_S, pace_s=QUIET_S
    )
    assert client.responses.retrieve(response.id).status == "cancelled"


@pytest.fixture
def restarted(serve: Serve, engines: list[Engine]) -> Callable[[], Gateway]:
    """Start a gateway on what the one before it kept, that soon sees who died."""

    def start() -> Gateway:
        gateway = serve(
            config={
                "endpoints": [engine.url for engine in engines],
                "store": {"url": "sqlite:///kept.db", "sweep": "100ms"},
                "responses": {"lease": "2s", "background": {"period": "100ms"}},
            }
        )
        gateway.until(gateway.all_ready)
        return gateway

    return start


def test_a_gateway_that_is_killed_leaves_no_half_turn(restarted: Callable[[], Gateway]) -> None:
    gateway = restarted()
    said = {"model": MODEL, "input": "Tell me a story of a ship.", "stream": True, "max_output_tokens": 1500}
    with ask(gateway.port, "POST", "/v1/responses", said) as answer:
        line = next(line for line in answer if line.startswith(b"data: "))
        id_ = json.loads(line[6:])["response"]["id"]
        gateway.signal(signal.SIGKILL)
        gateway.wait()
    after = restarted()
    after.until(lambda: json.loads(get(after.port, f"/v1/responses/{id_}")[2])["status"] == "failed")
    assert json.loads(get(after.port, f"/v1/responses/{id_}")[2])["output"] == []
    status, _, body = post(
        after.port, "/v1/responses", {"model": MODEL, "input": "x", "previous_response_id": id_}
    )
    assert (status, json.loads(body)["error"]["param"]) == (400, "previous_response_id")


def test_what_waits_in_the_background_survives_a_gateway_that_is_killed(
    restarted: Callable[[], Gateway],
) -> None:
    gateway = restarted()
    said = {"model": MODEL, "input": "Say hello.", "background": True, "max_output_tokens": 200}
    ids = [json.loads(post(gateway.port, "/v1/responses", said)[2])["id"] for _ in range(4)]
    gateway.signal(signal.SIGKILL)
    gateway.wait()
    after = restarted()
    with OpenAI(base_url=f"{after.url}/v1", api_key="none-needed") as client:
        responses = [polled(client, id_) for id_ in ids]
    assert {response.status for response in responses} <= {"completed", "incomplete"}
    assert all(response.output_text for response in responses)
