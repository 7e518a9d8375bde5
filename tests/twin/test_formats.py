"""Answers of every API beside those of a real vLLM: the same members, types and events, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.proxy.place import in_virtual_time
from tests.twin.place import CHAT, DATA, ENGINES, MODEL, captured, chat, events, serving, shape

COMPLETION = {"model": MODEL, "prompt": "The capital of France is", "temperature": 0}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def body_of(name: str, folder: Any = DATA) -> bytes:
    text: bytes = (folder / name).read_bytes().partition(b"\n\nHTTP")[2].partition(b"\n\n")[2]
    return text


@in_virtual_time()
async def test_a_chat_completion_has_every_member_of_a_real_one() -> None:
    async with serving() as place:
        answer = await place.chat(max_tokens=32, temperature=0)
    assert answer.status == 200
    assert answer.value(b"content-type") == b"application/json"
    assert answer.value(b"server") == b"uvicorn"
    assert shape(answer.json) == shape(captured("chat.txt"))
    assert list(answer.json) == list(captured("chat.txt"))
    usage = answer.json["usage"]
    assert usage["completion_tokens"] == 32
    assert usage["total_tokens"] == usage["prompt_tokens"] + 32
    assert answer.json["choices"][0]["finish_reason"] == "length"


@in_virtual_time()
async def test_several_choices_come_in_one_answer() -> None:
    async with serving() as place:
        answer = (await place.chat(max_tokens=4, n=2)).json
    real = captured("vllm_chat_n2.txt", ENGINES)
    assert shape(answer) == shape(real)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    texts = {choice["message"]["content"] for choice in answer["choices"]}
    assert len(texts) == 2
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 8


@in_virtual_time()
async def test_a_text_completion_has_every_member_of_a_real_one() -> None:
    async with serving() as place:
        answer = (await place.post("/v1/completions", COMPLETION | {"max_tokens": 16})).json
        default = (await place.post("/v1/completions", COMPLETION | {"ignore_eos": True})).json
    assert shape(answer) == shape(captured("completions.txt"))
    assert default["usage"]["completion_tokens"] == 16


@in_virtual_time()
async def test_a_prompt_may_be_token_ids_or_many_prompts() -> None:
    async with serving() as place:
        ids = (await place.post("/v1/completions", COMPLETION | {"prompt": [504, 3575, 282]})).json
        many = {"prompt": ["one", [1, 2], "three"], "max_tokens": 2, "n": 2}
        answers = (await place.post("/v1/completions", COMPLETION | many)).json
    assert ids["usage"]["prompt_tokens"] == 3
    assert [choice["index"] for choice in answers["choices"]] == list(range(6))
    assert answers["usage"]["prompt_tokens"] == 1 + 2 + 2
    assert answers["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize(
    ("path", "asked", "real", "folder"),
    [
        (CHAT, {"max_tokens": 12, **USAGE}, "vllm_chat_stream.txt", ENGINES),
        (
            CHAT,
            {
                "max_tokens": 6,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                "return_token_ids": True,
            },
            "chat_stream_continuous_usage_token_ids.txt",
            DATA,
        ),
        ("/v1/completions", {"max_tokens": 8, **USAGE}, "vllm_completions_stream.txt", ENGINES),
        ("/v1/messages", {"max_tokens": 8, "stream": True}, "vllm_messages_stream.txt", ENGINES),
        ("/v1/responses", {"max_output_tokens": 8, "stream": True}, "responses_stream.txt", DATA),
    ],
)
def test_a_stream_has_every_event_of_a_real_one(path: str, asked: Any, real: str, folder: Any) -> None:
    given = {
        "/v1/completions": COMPLETION,
        "/v1/responses": {"model": MODEL, "input": "Say hi"},
    }.get(path, {"model": MODEL, "messages": [{"role": "user", "content": "Name three colours."}]})

    @in_virtual_time()
    async def stream() -> None:
        async with serving() as place:
            if path == CHAT and "return_token_ids" not in asked:
                await place.chat(max_tokens=1)  # the real one had seen the prompt as well
            answer = await place.post(path, given | asked)
        assert answer.value(b"content-type") == b"text/event-stream; charset=utf-8"
        mine, theirs = answer.body, body_of(real, folder)
        assert [shape(event) for event in events(mine)] == [shape(event) for event in events(theirs)]
        assert [list(event) for event in events(mine)] == [list(event) for event in events(theirs)]
        assert names(mine) == names(theirs)

    stream()


def names(body: bytes) -> list[bytes]:
    """The names of a stream's events."""
    return [line for line in body.splitlines() if line.startswith(b"event: ")]


@in_virtual_time()
async def test_a_stream_says_what_the_whole_answer_says() -> None:
    async with serving() as place:
        whole = (await place.chat(max_tokens=20)).json["choices"][0]
        streamed = events((await place.chat(max_tokens=20, stream=True)).body)
        message = (await place.post("/v1/messages", chat(max_tokens=20))).json
        told = events((await place.post("/v1/messages", chat(max_tokens=20, stream=True))).body)
    text = whole["message"]["content"]
    deltas = [event["choices"][0]["delta"].get("content", "") for event in streamed[:-1]]
    assert len(text.split()) == 20
    assert "".join(deltas) == text
    assert streamed[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "length"
    assert streamed[-1] == "[DONE]"
    assert message["content"][0]["text"] == text
    assert "".join(it["delta"]["text"] for it in told if it["type"] == "content_block_delta") == text


@in_virtual_time()
async def test_several_streamed_choices_share_one_end() -> None:
    async with serving() as place:
        told = events((await place.chat(max_tokens=3, n=2, **USAGE)).body)
    ends = [it["choices"][0]["index"] for it in told[:-2] if it["choices"][0].get("finish_reason")]
    assert sorted(ends) == [0, 1]
    assert told[-1] == "[DONE]"
    assert told[-2]["usage"]["completion_tokens"] == 6


@in_virtual_time()
async def test_messages_have_every_member_of_real_ones() -> None:
    async with serving() as place:
        answer = (await place.post("/v1/messages", chat(max_tokens=16))).json
        long = json.dumps(
            {"max_tokens": 500, "messages": [{"role": "user", "content": "word " * 100}]}
        ).encode()
        ended = [(await place.post("/v1/messages", long)).json for _ in range(2)]
        count = (await place.post("/v1/messages/count_tokens", chat())).json
    assert shape(answer) == shape(captured("vllm_messages.txt", ENGINES))
    assert answer["stop_reason"] == "max_tokens"
    assert shape(count) == shape(captured("vllm_count_tokens.txt", ENGINES))
    assert count["input_tokens"] == answer["usage"]["input_tokens"]
    assert [it["stop_reason"] for it in ended] == ["end_turn", "end_turn"]
    assert [it["usage"]["cache_read_input_tokens"] for it in ended] == [0, 128]
    assert ended[0]["usage"]["input_tokens"] == ended[1]["usage"]["input_tokens"] + 128


@in_virtual_time()
async def test_a_response_has_every_member_of_a_real_one() -> None:
    async with serving() as place:
        asked = {"model": MODEL, "input": "Say hi", "max_output_tokens": 16}
        answer = (await place.post("/v1/responses", asked)).json
        long = (await place.post("/v1/responses", asked | {"max_output_tokens": 1000})).json
        told = events((await place.post("/v1/responses", asked | {"stream": True})).body)
    assert shape(answer) == shape(captured("responses.txt"))
    assert (answer["status"], long["status"]) == ("incomplete", "completed")
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert long["incomplete_details"] is None


@in_virtual_time()
async def test_embeddings_are_unit_vectors_that_the_text_decides() -> None:
    async with serving() as place:
        asked = {"model": MODEL, "input": ["hello", "hello", "other"]}
        answer = (await place.post("/v1/embeddings", asked)).json
        packed = await place.post(
            "/v1/embeddings", {"model": MODEL, "input": "x", "encoding_format": "base64"}
        )
        refused = await place.post("/v1/embeddings", asked | {"model": MODEL, "dimensions": 64})
    vectors = [entry["embedding"] for entry in answer["data"]]
    assert vectors[0] == vectors[1] != vectors[2]
    assert sum(x * x for x in vectors[0]) == pytest.approx(1.0)
    assert shape(packed.json) == shape(captured("embeddings_base64.txt"))
    assert refused.status == 400
    real = captured("err_embeddings_dimensions.txt")["error"]
    assert refused.json["error"] == real | {"message": real["message"].replace("minilm", MODEL)}


@in_virtual_time()
async def test_stop_strings_end_a_text_before_they_come() -> None:
    async with serving() as place:
        words = (await place.chat(max_tokens=20)).json["choices"][0]["message"]["content"].split()
        stop = words[7]
        answer = (await place.chat(max_tokens=20, stop=[words[12], stop, "never"])).json
        told = events((await place.chat(max_tokens=20, stop=stop, stream=True)).body)
        said = (await place.post("/v1/messages", chat(max_tokens=20, stop_sequences=[stop]))).json
    first = words.index(stop)
    choice = answer["choices"][0]
    assert choice["message"]["content"].split() == words[:first]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert answer["usage"]["completion_tokens"] == first + 1
    deltas = [event["choices"][0]["delta"].get("content", "") for event in told[:-1]]
    assert "".join(deltas).split() == words[:first]
    assert said["stop_reason"] == "stop_sequence"
    assert said["stop_sequence"] == stop


@in_virtual_time()
async def test_an_answer_ends_by_itself_unless_it_may_not() -> None:
    async with serving() as place:
        itself = (await place.chat()).json
        longer = (await place.chat(max_tokens=400, ignore_eos=True)).json
        least = (await place.chat(min_tokens=380)).json
    assert itself["choices"][0]["finish_reason"] == "stop"
    assert 100 <= itself["usage"]["completion_tokens"] <= 300
    assert longer["usage"]["completion_tokens"] == 400
    assert longer["choices"][0]["finish_reason"] == "length"
    assert least["usage"]["completion_tokens"] == 380


@in_virtual_time()
async def test_token_ids_come_on_request() -> None:
    async with serving() as place:
        whole = (await place.chat(max_tokens=5, return_token_ids=True)).json
        told = events((await place.chat(max_tokens=5, return_token_ids=True, stream=True)).body)
        text = await place.post("/detokenize", {"tokens": whole["choices"][0]["token_ids"]})
        prompt = (await place.post("/tokenize", chat())).json["tokens"]
    assert text.json["prompt"] == whole["choices"][0]["message"]["content"]
    assert whole["prompt_token_ids"] == told[0]["prompt_token_ids"] == prompt
    streamed = [it for event in told[1:-1] for it in event["choices"][0]["token_ids"]]
    assert streamed == whole["choices"][0]["token_ids"]


@in_virtual_time()
async def test_usage_on_every_event_counts_all_choices() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with serving() as place:
        told = events((await place.chat(max_tokens=3, n=2, stream=True, stream_options=options)).body)
    counts = [event["usage"]["completion_tokens"] for event in told[:-1]]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 6)


@in_virtual_time()
async def test_ids_follow_the_request() -> None:
    async with serving() as place:
        by_header = (await place.chat("X-Request-Id: req-abc-123", max_tokens=4)).json
        by_body = (await place.chat(max_tokens=4, request_id="body-req-1")).json
        minted = [(await place.chat(max_tokens=4)).json["id"] for _ in range(2)]
    assert by_header["id"] == captured("x_request_id.txt")["id"]
    assert by_body["id"] == captured("priority_and_cache_salt.txt")["id"]
    assert len(set(minted)) == 2


@in_virtual_time()
async def test_the_same_prompt_and_seed_say_the_same() -> None:
    async def text(**members: Any) -> str:
        async with serving() as place:
            said: str = (await place.chat(max_tokens=20, **members)).json["choices"][0]["message"]["content"]
            return said

    assert await text() == await text() != await text(seed=7)
