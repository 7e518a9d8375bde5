"""The tokenizer that a GGUF file holds, written down as Hugging Face would publish it.

The embedded engine's model comes as such a file alone, so this is how a real model's folder is to be had.
"""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
HEAD_BYTES = 16 * 1024 * 1024
"""All but the weights, and more."""
_SPECIAL = 3
"""What the file calls a control token."""


def folder(file: Path, where: Path) -> Path:
    """Write the folder of a model of SmolLM2's kind: byte-level pairs, digits one by one."""
    with file.open("rb") as opened:
        said = _metadata(BytesIO(opened.read(HEAD_BYTES)))
    tokens = said["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in said["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = said["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _SPECIAL]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(where / "tokenizer.json"))
    config = {
        "bos_token": tokens[said["tokenizer.ggml.bos_token_id"]],
        "eos_token": {"content": tokens[said["tokenizer.ggml.eos_token_id"]]},
        "chat_template": said["tokenizer.chat_template"],
    }
    (where / "tokenizer_config.json").write_text(json.dumps(config))
    return where


def _metadata(file: BytesIO) -> dict[str, Any]:
    magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
    assert (magic, version) == (b"GGUF", 3)
    return {_text(file): _value(file, _number(file, "I")) for _ in range(count)}


def _value(file: BytesIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = _number(file, "I"), _number(file, "Q")
        return [_value(file, inner) for _ in range(count)]
    return _number(file, _NUMBERS[kind])


def _number(file: BytesIO, form: str) -> Any:
    return struct.unpack("<" + form, file.read(struct.calcsize(form)))[0]


def _text(file: BytesIO) -> str:
    return file.read(_number(file, "Q")).decode()
