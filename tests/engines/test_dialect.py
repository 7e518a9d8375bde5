"""The list of models, as real engines answer it and as strange ones might."""

from __future__ import annotations

import json

import pytest

from maitred.engines.dialect import ModelCard, read_models
from tests.engines.captures import captured


def models(*entries: dict[str, object]) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


@pytest.mark.parametrize(
    ("name", "model", "engine", "context_tokens"),
    [
        ("vllm_models.txt", "smollm2", "vllm", 2048),
        ("vllm_embed_models.txt", "minilm", "vllm", 256),
        ("llamacpp_models.txt", "smollm2-135m", "llamacpp", 2048),
    ],
)
def test_captured_answers(name: str, model: str, engine: str, context_tokens: int) -> None:
    body = captured(name)
    raw = json.loads(body)["data"][0]
    assert read_models(body) == [ModelCard(model, engine, context_tokens, raw)]


def test_sglang_keeps_its_context_where_vllm_does() -> None:
    entry = {"id": "qwen", "object": "model", "owned_by": "sglang", "root": "qwen", "max_model_len": 32768}
    assert read_models(models(entry)) == [ModelCard("qwen", "sglang", 32768, dict(entry))]


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "gpt"},
        {"id": "gpt", "owned_by": "openai", "max_model_len": 4096},
        {"id": "gpt", "owned_by": None, "meta": "words"},
        {"id": "gpt", "owned_by": ["vllm"], "max_model_len": "long"},
    ],
)
def test_a_strange_server_is_only_taken_at_its_name(entry: dict[str, object]) -> None:
    assert read_models(models(entry)) == [ModelCard("gpt", "", None, entry)]


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "m", "owned_by": "vllm"},
        {"id": "m", "owned_by": "sglang", "max_model_len": None},
        {"id": "m", "owned_by": "llamacpp", "meta": None},
        {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}},
    ],
)
def test_an_engine_need_not_tell_its_context(entry: dict[str, object]) -> None:
    (card,) = read_models(models(entry))
    assert card.engine
    assert card.context_tokens is None


def test_trtllm_is_known_by_its_own_name() -> None:
    entry: dict[str, object] = {"id": "qwen", "object": "model", "owned_by": "tensorrt_llm"}
    assert read_models(models(entry)) == [ModelCard("qwen", "trtllm", None, dict(entry))]


def lora(name: str, parent: object) -> dict[str, object]:
    return {"id": name, "owned_by": "vllm", "root": f"/lora/{name}", "parent": parent, "max_model_len": None}


def base(name: str, root: str) -> dict[str, object]:
    return {"id": name, "owned_by": "vllm", "root": root, "parent": None, "max_model_len": 2048}


def test_adapters_are_parts_of_the_model_they_name() -> None:
    cards = read_models(models(lora("sql", "a"), base("a", "m/a"), base("b", "m/b"), lora("law", "a")))
    assert {card.id: card.adapters for card in cards} == {"a": ("sql", "law"), "b": ()}


def test_a_model_of_several_names_has_its_adapters_under_each() -> None:
    cards = read_models(
        models(base("a", "m"), base("alias", "m"), lora("by-name", "a"), lora("by-root", "m"))
    )
    assert {card.id: card.adapters for card in cards} == dict.fromkeys(("a", "alias"), ("by-name", "by-root"))


def test_models_that_tell_no_root_are_not_of_one_root() -> None:
    nameless: list[dict[str, object]] = [{"id": name, "owned_by": "vllm"} for name in ("a", "b")]
    cards = read_models(models(*nameless, lora("sql", "a")))
    assert {card.id: card.adapters for card in cards} == {"a": ("sql",), "b": ()}


@pytest.mark.parametrize("parent", ["somebody", ["base"], {"id": "base"}, 7])
def test_an_adapter_of_nobody_is_left_out(parent: object) -> None:
    (card,) = read_models(models(base("base", "m"), lora("sql", parent)))
    assert (card.id, card.adapters) == ("base", ())


def test_no_models_is_an_answer() -> None:
    assert read_models(models()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>not here</html>",
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": ["smollm2"]}',
        b'{"data": [{"object": "model"}]}',
        b'{"data": [{"id": ""}]}',
        b'{"data": [{"id": "\xff"}]}',
        b'{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": "2048"}]}',
        b'{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 0}]}',
        b'{"data": [{"id": "m", "owned_by": "llamacpp", "meta": [2048]}]}',
        b'{"data": [{"id": "m", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ],
)
def test_malformed_answers_are_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a list of models: .+$") as caught:
        read_models(body)
    assert "\n" not in str(caught.value)
