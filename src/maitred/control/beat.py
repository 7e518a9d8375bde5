"""The small regular work of a running gateway, and how late the loop was to do it.

A beat that comes late means that something held the loop: every stream waited as long. It is the one
figure that says whether the gateway itself is the bottleneck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PERIOD_S = 0.1


async def beat(
    clock: Callable[[], float],
    work: Callable[[], None],
    late: Callable[[float], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Call `work` each PERIOD_S until cancelled, and tell `late` by how many seconds each beat missed."""
    while True:
        due = clock() + PERIOD_S
        await sleep(PERIOD_S)
        late(max(0.0, clock() - due))
        work()
