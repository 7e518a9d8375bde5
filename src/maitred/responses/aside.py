"""What takes long with a large request is done in a thread, so that all others go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

BYTES_MAX = 128 * 1024
ITEMS_MAX = 256
"""What is at most this takes less time than a thread is worth."""


async def aside(work: Callable[[], T], *, large: bool) -> T:
    """What comes of it."""
    return await asyncio.to_thread(work) if large else work()
