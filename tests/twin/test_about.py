"""What is answered at once: models, tokens, health, sleep, adapters; beside what a real vLLM answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from maitred.engines.dialect import read_models
from maitred.net.memory import MemoryNetwork
from tests.proxy.place import in_virtual_time
from tests.twin.place import CHAT, DATA, ENGINES, MODEL, captured, chat, serving, shape


@pytest.mark.parametrize(
    ("path", "name", "folder"),
    [
        ("/v1/models", "vllm_models.txt", ENGINES),
        ("/version", "vllm_version.txt", ENGINES),
        ("/is_sleeping", "get_is_sleeping.txt", DATA),
        ("/load", "get_load.txt", DATA),
    ],
)
def test_what_is_told_has_the_members_of_the_real_thing(path: str, name: str, folder: Any) -> None:
    @in_virtual_time()
    async def ask() -> None:
        async with serving() as place:
            answer = await place.get(path)
        assert answer.status == 200
        assert shape(answer.json) == shape(captured(name, folder))

    ask()


@in_virtual_time()
async def test_health_has_no_body() -> None:
    async with serving() as place:
        for path in ("/health", "/ping"):
            answer = await place.get(path)
            assert (answer.status, answer.body) == (200, b"")
        assert (await place.post("/ping")).status == 200


@in_virtual_time()
async def test_the_model_is_read_by_the_gateway() -> None:
    async with serving() as place:
        card = read_models((await place.get("/v1/models")).body)[0]
        info = (await place.get("/server_info")).json["vllm_config"]
    assert (card.id, card.engine, card.context_tokens) == (MODEL, "vllm", 2048)
    assert "max_num_seqs=4" in info


@in_virtual_time()
async def test_tokens_agree_with_usage_and_come_back_as_text() -> None:
    async with serving() as place:
        asked = {"model": MODEL, "prompt": "Hello wörld", "return_token_strs": True}
        counted = (await place.post("/tokenize", asked)).json
        told = (await place.post("/tokenize", chat())).json
        usage = (await place.chat(max_tokens=1)).json["usage"]
        used = (await place.post("/v1/completions", {"model": MODEL, "prompt": "Hello wörld"})).json["usage"]
        text = (await place.post("/detokenize", {"model": MODEL, "tokens": counted["tokens"]})).json
        by_ids = (await place.post("/v1/completions", {"prompt": counted["tokens"], "max_tokens": 5})).json
        by_text = (await place.post("/v1/completions", {"prompt": "Hello wörld", "max_tokens": 5})).json
        bad = await place.post("/detokenize", {"model": MODEL, "tokens": [-1]})
    assert shape(counted) == shape(captured("tokenize_prompt.txt"))
    assert shape(told) == shape(captured("tokenize_chat.txt"))
    assert counted["count"] == len(counted["tokens"]) == used["prompt_tokens"] == 3
    assert told["count"] == usage["prompt_tokens"]
    assert text == {"prompt": "Hello wörld"}
    assert by_ids["choices"] == by_text["choices"]
    assert bad.status == 400


@pytest.mark.parametrize(
    ("path", "asked", "name"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "Name three colours."}]}, "chat_render.txt"),
        ("/v1/completions", {"prompt": "Hello world"}, "completions_render.txt"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hello"}]}, "messages_render.txt"),
        ("/v1/responses", {"input": "Hello"}, "responses_render.txt"),
    ],
)
def test_a_rendered_prompt_is_what_would_run(path: str, asked: Any, name: str) -> None:
    @in_virtual_time()
    async def render() -> None:
        async with serving() as place:
            rendered = (await place.post(f"{path}/render", {"model": MODEL, **asked})).json
            ran = (await place.post(path, {"model": MODEL, **asked})).json["usage"]
        real = captured(name)
        one = rendered[0] if isinstance(real, list) else rendered
        expected = real[0] if isinstance(real, list) else real
        assert list(one) == list(expected)
        assert one["sampling_params"].keys() <= expected["sampling_params"].keys()
        assert len(one["token_ids"]) == ran.get("prompt_tokens", ran.get("input_tokens"))

    render()


@in_virtual_time()
async def test_the_cache_is_forgotten_on_request_and_in_sleep() -> None:
    async def cached() -> int:
        usage = (await place.chat(messages=[{"role": "user", "content": "word " * 100}], max_tokens=1)).json[
            "usage"
        ]
        tokens: int = usage["prompt_tokens_details"]["cached_tokens"]
        return tokens

    async with serving() as place:
        assert [await cached(), await cached()] == [0, 128]
        assert (await place.post("/reset_prefix_cache")).json == captured("reset_prefix_cache.txt")
        assert [await cached(), await cached()] == [0, 128]
        assert (await place.post("/sleep?level=1")).json == captured("sleep_unsupported.txt")
        await place.post("/wake_up")
        assert await cached() == 0


@in_virtual_time()
async def test_a_cache_in_use_outlives_sleep() -> None:
    long = {"messages": [{"role": "user", "content": "word " * 100}]}
    async with serving() as place:
        running = asyncio.create_task(place.chat(max_tokens=50, ignore_eos=True, **long))
        await asyncio.sleep(0.3)
        await place.post("/sleep")
        await place.post("/wake_up")
        usage = (await place.chat(max_tokens=1, **long)).json["usage"]
        assert (await running).status == 200
    assert usage["prompt_tokens_details"]["cached_tokens"] == 128


@in_virtual_time()
async def test_two_twins_say_the_same_under_ids_of_their_own() -> None:
    network = MemoryNetwork()
    asked: dict[str, Any] = {"max_tokens": 8, "kv_transfer_params": {"do_remote_decode": True}}
    async with serving(network=network) as place, serving(network=network) as other:
        one, two = (await place.chat(**asked)).json, (await other.chat(**asked)).json
    assert one["choices"] == two["choices"]
    assert one["id"] != two["id"]
    assert one["kv_transfer_params"]["remote_engine_id"] != two["kv_transfer_params"]["remote_engine_id"]


@in_virtual_time()
async def test_adapters_are_models_once_they_are_loaded() -> None:
    asked = {"lora_name": "sql", "lora_path": "/adapters/sql"}
    async with serving(adapter_load_s=0.5) as place:
        assert (await place.chat(model="sql")).status == 404
        loaded = await place.post("/v1/load_lora_adapter", asked)
        again = await place.post("/v1/load_lora_adapter", asked)
        card = read_models((await place.get("/v1/models")).body)[0]
        base = (await place.chat(max_tokens=4)).json
        answer = (await place.chat(model="sql", max_tokens=4)).json
        gone = await place.post("/v1/unload_lora_adapter", {"lora_name": "sql"})
        never = await place.post("/v1/unload_lora_adapter", {"lora_name": "sql"})
    assert loaded.body == b"Success: LoRA adapter 'sql' added successfully."
    assert (again.status, again.json["error"]["type"]) == (400, "InvalidUserInput")
    assert card.adapters == ("sql",)
    assert answer["model"] == "sql"
    assert base["model"] == MODEL
    assert gone.body == b"Success: LoRA adapter 'sql' removed successfully."
    assert never.status == 404


@in_virtual_time()
async def test_an_engine_without_room_takes_no_adapters() -> None:
    async with serving(adapters_max=0) as place:
        answer = await place.post("/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": "/sql"})
    assert answer.status == 400
    assert "LoRA is not enabled" in answer.json["error"]["message"]
