"""A receipt as one header line: `policy=default; endpoint=m/a:1; home=m/a:1; cached=5120/6144; …`."""

from __future__ import annotations

import re

from maitred.core.receipt import Receipt

NAME = b"x-maitred-receipt"
VALUE_BYTES_MAX = 512
NAME_BYTES_MAX = 120
"""Most of a policy's or endpoint's name that is told, so that all of them and the numbers fit."""
_odd = re.compile(rb"[^!-:<-~]").sub


def line(receipt: Receipt) -> bytes:
    """The header line of an answer."""
    first, *rest = receipt.candidates
    told = [
        b"policy=" + _name(receipt.policy),
        b"endpoint=" + _name(receipt.endpoint),
        b"home=" + (_name(receipt.home) or b"none"),
        b"cached=%d/%d" % (first.cached, receipt.prompt_tokens),
        b"index=" + _name(receipt.index),
    ]
    if receipt.index_why:
        told.append(b"reason=" + _name(receipt.index_why))
    told += [b"attempt=%d" % receipt.attempt, b"wait=%.3f" % receipt.wait_s]
    values = [row.value for row in rest if not row.why_not and row.value is not None]
    if first.value is not None:
        next_best = (max if receipt.measure == "score" else min)(values, default=None)
        compared = [first.value] if next_best is None else [first.value, next_best]
        told.append(b"%b=%b" % (receipt.measure.encode(), b",".join(b"%.4g" % value for value in compared)))
    return b"%b: %b\r\n" % (NAME, b"; ".join(told))


def _name(text: str) -> bytes:
    """A name without what a header cannot hold or its reader would take for the next word."""
    return _odd(b"?", text.encode("ascii", "replace"))[:NAME_BYTES_MAX]
