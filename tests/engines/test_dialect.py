"""The list of models, as real engines answer it and as strange ones might."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maitred.engines.dialect import ModelCard, read_models

DATA = Path(__file__).parents[1] / "data" / "engines"


def captured(name: str) -> bytes:
    """The body of a captured exchange: all after its last blank line."""
    return (DATA / name).read_bytes().rpartition(b"\n\n")[2]


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


def test_adapters_are_left_out() -> None:
    base: dict[str, object] = {"id": "base", "owned_by": "vllm", "parent": None, "max_model_len": 2048}
    adapter: dict[str, object] = {"id": "sql", "owned_by": "vllm", "parent": "base", "max_model_len": None}
    assert [card.id for card in read_models(models(base, adapter))] == ["base"]


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
