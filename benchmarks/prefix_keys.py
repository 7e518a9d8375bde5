"""What it costs to know a prompt by keys: microseconds of CPU, beside those of reading the body.

.venv/bin/python benchmarks/prefix_keys.py
"""

from __future__ import annotations

import base64
import json
import timeit
from array import array
from collections.abc import Callable
from typing import Any

from maitred.core.words import Api
from maitred.wire.prefix import blocks_of, byte_keys, root
from maitred.wire.requests import decode

TEXT = "The quick brown fox jumps over the lazy dog, and so it goes on. " * 16_384
IMAGE = "data:image/png;base64," + base64.b64encode(bytes(700_000)).decode()
ROWS: list[tuple[str, Api, int, int]] = [
    ("2 KB chat", Api.CHAT, 2_000, 3),
    ("64 KB chat", Api.CHAT, 64_000, 20),
    ("64 KB chat of 200 messages", Api.CHAT, 64_000, 200),
    ("64 KB of Anthropic's", Api.MESSAGES, 64_000, 20),
    ("1 MB chat", Api.CHAT, 1_000_000, 1),
    ("1 MB chat of 200 messages", Api.CHAT, 1_000_000, 200),
]
BLOCK_TOKENS, TOKENS = 16, 32_000
RUN_S, RUNS = 0.05, 7


def took_us(call: Callable[[], object]) -> float:
    """The best of some runs: what else this machine does only adds."""
    timer = timeit.Timer(call)
    number = max(1, int(RUN_S / max(1e-7, timer.timeit(3) / 3)))
    return min(timer.repeat(RUNS, number)) / number * 1e6


def told(name: str, api: Api, content: list[Any]) -> None:
    """Print the row of one body."""
    messages = [{"role": "user", "content": text} for text in content]
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    asked = decode(api, body)

    def keys() -> tuple[int, ...]:
        return byte_keys(root("m"), asked.rendered(), len(body), marked=api.anthropic)

    print(f"{name:32} {took_us(lambda: decode(api, body)):10.1f} {took_us(keys):10.1f} {len(keys()):6}")


def main() -> None:
    """Print the table."""
    print(f"{'':32} {'read, us':>10} {'keys, us':>10} {'keys':>6}")
    for name, api, size, messages in ROWS:
        told(name, api, [TEXT[: size // messages]] * messages)
    told("1 MB image", Api.CHAT, [[{"type": "image_url", "image_url": {"url": IMAGE}}]])
    ids = array("I", range(TOKENS))
    us = took_us(lambda: blocks_of(1, ids, BLOCK_TOKENS))
    print(f"{f'{TOKENS} tokens':32} {'':10} {us:10.1f} {TOKENS // BLOCK_TOKENS:6}")


if __name__ == "__main__":
    main()
