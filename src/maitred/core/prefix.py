"""Which endpoint has which prefix in its cache: what was sent where, or what engines say.

A prompt is known by chained keys, each of everything up to an end, so that equal keys mean equal beginnings.
Keys of bytes end at BYTE_ENDS; keys of tokens after each block.
"""

from __future__ import annotations

from itertools import accumulate

BYTE_ENDS: tuple[int, ...] = tuple(accumulate([256] * 16 + [1024] * 28 + [4096] * 24))
"""Ends of the keyed pieces of a prompt, in bytes: finer where prompts are short, and none beyond 128 KiB."""
