"""Loops beside the journey, kept running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("maitred")

RESTART_S = 1.0


async def kept(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run a loop for ever: the gateway must not lose one to a bug of ours."""
    while True:
        try:
            await loop()
        except Exception:
            log.exception("a bug of ours ended %s; it starts again", name)
        await asyncio.sleep(RESTART_S)
