"""Engines that cut a character in two: half a surrogate pair is no text, and would break the whole answer.

It is read as U+FFFD, the sign for what could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from msgspec import DecodeError

T = TypeVar("T")

# Every escape is looked at in turn, so that one behind an escaped backslash is the text that it is.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mending(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """The same for such engines, too."""

    def decoded(data: bytes) -> T:
        try:
            return decode(data)
        except DecodeError:
            mended = _ESCAPE.sub(lambda found: found[0] if found[1] is None else rb"\ufffd", data)
            if mended == data:
                raise
            return decode(mended)

    return decoded
