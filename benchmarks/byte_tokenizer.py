"""A tokenizer with one token for each byte, where aiperf finds it without a network; for `README.md`.

    AIPERF/bin/python benchmarks/byte_tokenizer.py DIR

Run it by the Python that aiperf is installed in (it has the packages). With HF_HOME=DIR and HF_HUB_OFFLINE=1
aiperf then knows the tokenizer `local/bytes`, and a prompt of 4,000 of its tokens has the 4,000 bytes that a
twin takes for 1,000 tokens, as a prompt of 1,000 tokens by `maitred bench` has.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<|end|>"
REVISION = "0" * 40


def main(folder: Path) -> None:
    """Write it as Hugging Face's cache would hold it."""
    model = folder / "hub" / "models--local--bytes"
    snapshot = model / "snapshots" / REVISION
    snapshot.mkdir(parents=True, exist_ok=True)
    (model / "refs").mkdir(exist_ok=True)
    (model / "refs" / "main").write_text(REVISION)
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters | {END: len(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END).save_pretrained(
        snapshot
    )
    (snapshot / "config.json").write_text('{"model_type": "gpt2"}')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
