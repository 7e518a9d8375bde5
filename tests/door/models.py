"""Small tokenizers of the families there are, and folders that hold one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

MARKS = ("<|im_start|>", "<|im_end|>", "<|im", "[TOOL]")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if tools %}{% for tool in tools %}[TOOL]{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level(**token: bool) -> Tokenizer:
    """Bytes and a few pairs of them, as GPT-2's and all after it. `token` is how special tokens behave."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ġ", "a"), ("a", "b"), ("ab", "ab"), ("Ċ", "Ċ"), ("Ġ", "Ġ"), ("|", ">")]
    vocab = {text: at for at, text in enumerate([*letters, *("".join(pair) for pair in pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return marked(tokenizer, **token)


def sentences(scheme: str) -> Tokenizer:
    """Words that begin with a blank, as SentencePiece has them; `scheme`: which ones get one put before."""
    letters = [*map(chr, range(32, 127)), "▁", "é", "日", "\n"]
    vocab = {text: at for at, text in enumerate(["<unk>", *letters, "▁a", "ab", "▁ab"])}
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab")]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True))
    if scheme == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    return marked(tokenizer)


def likely() -> Tokenizer:
    """The likeliest pieces, as T5 has them."""
    letters = [*map(chr, range(32, 127)), "▁", "é", "\n"]
    pieces = [("<unk>", 0.0), *((text, -8.0) for text in letters), ("▁ab", -3.0), ("ba", -4.0), ("aba", -4.5)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return marked(tokenizer)


def marked(tokenizer: Tokenizer, *more: str, **token: bool) -> Tokenizer:
    """With special tokens, of which one begins like two others; and one that is not special."""
    tokenizer.add_special_tokens([AddedToken(text, **token) for text in (*MARKS, *more)])
    tokenizer.add_tokens([AddedToken("abba", normalized=True)])
    return tokenizer


def write(where: Path, tokenizer: Tokenizer | None = None, **config: Any) -> Path:
    """A folder as models are published; `config` is of the tokenizer."""
    (tokenizer or byte_level()).save(str(where / "tokenizer.json"))
    (where / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, **config}))
    return where
