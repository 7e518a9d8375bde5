"""Refusals beside those of a real vLLM: status, sentence and shape."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.engines.errors import overflow
from maitred.twin import bodies
from maitred.twin.errors import Wrong, check_room
from tests.net.http import Answer, get, post
from tests.proxy.place import in_virtual_time
from tests.twin.place import CHAT, DATA, ENGINES, MODEL, captured, chat, serving

USER = {"role": "user", "content": "Name three colours."}
LONG = {"role": "user", "content": "word " * 4000}


def real(name: str, folder: Any = DATA) -> tuple[int, Any]:
    """Status and error of a captured refusal."""
    text = (folder / name).read_text().partition("\n\nHTTP ")[2]
    return int(text[:3]), captured(name, folder)


@pytest.mark.parametrize(
    ("path", "body", "name", "folder"),
    [
        (CHAT, {"messages": [USER], "temperature": "hot"}, "err_bad_type.txt", DATA),
        (CHAT, {"messages": []}, "err_empty_messages.txt", DATA),
        (CHAT, b"{bad json", "err_invalid_json.txt", DATA),
        (CHAT, {"messages": [USER], "max_tokens": 5000}, "err_max_tokens_too_big.txt", DATA),
        (CHAT, {"messages": [USER], "temperature": -1}, "err_negative_temperature.txt", DATA),
        (CHAT, {}, "err_no_messages.txt", DATA),
        (CHAT, {"messages": [LONG]}, "err_overlong.txt", DATA),
        (CHAT, {"messages": [LONG], "stream": True}, "err_overlong.txt", DATA),
        (
            "/v1/completions",
            {"prompt": "word " * 4000, "max_tokens": None},
            "err_overlong_completions.txt",
            DATA,
        ),
        (CHAT, {"model": "nope", "messages": [USER], "max_tokens": 4}, "vllm_err_unknown_model.txt", ENGINES),
        ("/v1/nothing", {"a": 1}, "vllm_err_404.txt", ENGINES),
    ],
)
def test_what_is_wrong_is_said_as_vllm_says_it(path: str, body: Any, name: str, folder: Any) -> None:
    @in_virtual_time()
    async def ask() -> None:
        sent = body if isinstance(body, bytes) else {"model": MODEL} | body
        async with serving() as place:
            answer = await place.post(path, sent)
        assert (answer.status, answer.json) == real(name, folder)
        assert answer.value(b"content-type") == b"application/json"

    ask()


@in_virtual_time()
async def test_a_method_that_a_path_does_not_take_is_named() -> None:
    async with serving() as place:
        answer = await place.get(CHAT)
    assert (answer.status, answer.json) == real("err_405.txt")
    assert answer.value(b"allow") == b"POST"


@in_virtual_time()
async def test_anthropics_clients_get_the_shape_they_know() -> None:
    async with serving() as place:
        unknown = await place.post("/v1/messages", chat(model="nope", max_tokens=4))
        invalid = await place.post("/v1/messages", {"model": MODEL})
    assert unknown.status == 404
    assert unknown.json["type"] == "error"
    assert unknown.json["error"]["type"] == "NotFoundError"
    assert invalid.json["error"]["param"] == "body.messages"


@pytest.mark.parametrize(
    ("members", "param", "says"),
    [
        ({"n": 0}, "n", "n must be at least 1, got 0."),
        ({"n": 1000}, "n", "n must be at most 128 for 1 prompt(s), got 1000."),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_tokens", "must be at least 1"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "`stream=True`"),
        ({"logprobs": True}, "logprobs", "not supported"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            None,
            "not a multimodal model",
        ),
        ({"stream": "yes"}, "body.stream", "valid boolean"),
        ({"messages": [{"content": "no role"}]}, "body.messages.0.role", "Field required"),
    ],
)
def test_other_values_are_refused_by_name(members: Any, param: str | None, says: str) -> None:
    with pytest.raises(Wrong) as refused:
        bodies.chat(chat(**members))
    assert refused.value.param == param
    assert says in refused.value.message


def test_an_output_that_fits_only_without_its_prompt_is_refused_by_the_numbers() -> None:
    with pytest.raises(Wrong) as refused:
        check_room(100, 2000, 2048, "max_tokens")
    assert overflow(refused.value.body()) == (2049, 2048)
    assert "at least 49 input tokens" in refused.value.message
    with pytest.raises(Wrong) as refused:
        check_room(2048, None, 2048, "max_tokens")
    assert overflow(refused.value.body()) == (2049, 2048)
    assert check_room(100, None, 2048, "max_tokens") == 1948
    assert check_room(100, 1948, 2048, "max_tokens") == 1948


@in_virtual_time()
async def test_a_cache_smaller_than_the_context_is_the_bound() -> None:
    async with serving(kv_blocks=2) as place:
        answer = await place.chat(messages=[{"role": "user", "content": "word " * 200}], max_tokens=4)
        assert answer.status == 400
        assert "maximum context length is 65 tokens" in answer.json["error"]["message"]
        prompts = {"prompt": ["short", "word " * 200], "max_tokens": 4}
        assert (await place.post("/v1/completions", prompts)).status == 400
        assert not place.twin.service.live.tracks
        assert (await place.get("/v1/models")).json["data"][0]["max_model_len"] == 65
        whole = (await place.chat(ignore_eos=True)).json["usage"]
        assert whole["total_tokens"] == 65


@pytest.mark.parametrize("prompt", [[""], ["text", ""], [[]], [[1, 2], []]])
def test_a_prompt_without_tokens_is_refused(prompt: Any) -> None:
    body = json.dumps({"prompt": prompt, "input": prompt}).encode()
    for read in (bodies.completions, bodies.embeddings):
        with pytest.raises(Wrong, match="cannot be empty") as refused:
            read(body)
        assert refused.value.status == 400


def test_answers_are_bounded_over_all_prompts_of_a_request() -> None:
    def ask(prompts: int, n: int) -> bodies.Ask:
        return bodies.completions(json.dumps({"prompt": ["x"] * prompts, "n": n}).encode())

    assert ask(8, 16).sequences == 16
    with pytest.raises(Wrong, match="n must be at most 16 for 8 prompt") as refused:
        ask(8, 17)
    assert refused.value.param == "n"
    with pytest.raises(Wrong, match="at most 128 prompts"):
        ask(129, 1)


def test_apis_that_know_no_n_answer_once() -> None:
    asked = {"messages": [USER], "input": "x", "n": 3, "max_tokens": 4}
    for read in (bodies.messages, bodies.responses, bodies.embeddings):
        assert read(json.dumps(asked).encode()).sequences == 1


@in_virtual_time()
async def test_half_a_surrogate_pair_is_no_json() -> None:
    async with serving() as place:
        answer = await place.post("/v1/completions", rb'{"prompt": "\ud800"}')
    assert answer.status == 400
    assert "json_invalid" in answer.json["error"]["message"]


@in_virtual_time()
async def test_bad_http_is_answered_and_the_connection_closed() -> None:
    async def broken(request: bytes) -> Answer:
        client = await place.client()
        client.send(request)
        answer = await client.answer()
        await client.closed()
        return answer

    async with serving() as place:
        assert (await broken(b"nonsense\r\n\r\n")).status == 400
        assert (await broken(get("/health").replace(b"Host: gateway\r\n", b""))).status == 400
        assert (await place.ask(post(CHAT, b""))).status == 400


@in_virtual_time()
async def test_bodies_are_json_by_their_type_too() -> None:
    def request(media: str) -> bytes:
        return post(CHAT, chat(max_tokens=1)).replace(b"application/json", media.encode())

    async with serving() as place:
        form = await place.ask(request("application/x-www-form-urlencoded"))
        with_charset = await place.ask(request("application/JSON; charset=utf-8"))
    assert form.status == 400
    assert "Only 'application/json' is allowed" in form.json["error"]["message"]
    assert with_charset.status == 200


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
    lambda it: json.dumps({"messages": it, "prompt": it, "input": it, "stop": it}).encode()
))  # fmt: skip
def test_no_body_is_too_odd(body: bytes) -> None:
    for read in (bodies.chat, bodies.completions, bodies.messages, bodies.responses, bodies.embeddings):
        with contextlib.suppress(Wrong):
            read(body)
