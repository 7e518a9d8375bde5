"""Ports for what a test starts at a port of its own choice."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

RANGE = range(20_000, 32_000)
"""Below what systems give to whoever asks for any port (Linux from 32768, others from 49152): a port is free
for a moment until somebody listens there, and no connection and no other test's server may get it then."""


def free_ports(count: int, run: int = 1) -> list[int]:
    """So many ports that were free a moment ago, each with the `run - 1` ports after it."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            first = random.choice(RANGE)
            with suppress(OSError), ExitStack() as stack:
                for port in range(first, first + run):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                held.push(stack.pop_all())
                found.append(first)
    return found


def free_port(run: int = 1) -> int:
    """One of them."""
    return free_ports(1, run)[0]
