"""Ports for what a test starts at a port of its own choice."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

RANGE = range(12_000, 20_000)
"""Below what systems give to whoever asks for any port (Linux from 32768, others from 49152), and below what
`maitred demo` takes: a port is free for a moment until somebody listens there, and nobody may get it then."""
EACH = 2000
"""How far apart processes of one run begin: none comes to what another has just been given."""


def _in_turn() -> Iterator[int]:
    """The range from somewhere on, again and again: who is given a port is the only one for a long time."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = (worker * EACH + random.randrange(EACH)) % len(RANGE)
    while True:
        yield from RANGE[first:]
        yield from RANGE[:first]


_ports = _in_turn()


def free_ports(count: int, run: int = 1) -> list[int]:
    """So many ports that were free a moment ago, each with the `run - 1` ports after it."""
    found: list[int] = []
    while len(found) < count:
        ports = [next(_ports) for _ in range(run)]
        with suppress(OSError), ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            if ports[-1] - ports[0] == run - 1:
                found.append(ports[0])
    return found


def free_port(run: int = 1) -> int:
    """One of them."""
    return free_ports(1, run)[0]
