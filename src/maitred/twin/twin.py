"""The twin, assembled: an engine model that listens, on whatever network and clock it is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from maitred.net.burst import AtOnce
from maitred.net.exchange import HttpExchange, reset
from maitred.net.seams import Listener, Network
from maitred.net.server import HttpLimits, ServerConnection
from maitred.net.sweep import Sweep
from maitred.sim.job import Role
from maitred.sim.profile import Profile
from maitred.twin.faults import NONE, Fault
from maitred.twin.service import Service
from maitred.twin.site import Site

if TYPE_CHECKING:
    from maitred.twin.kv_events import KvEvents

LIMITS = HttpLimits(keep_alive_s=5.0)
"""Idle connections are closed as early as uvicorn closes them."""


class Options(Struct, frozen=True):
    """How a twin is, besides its profile.

    `model`: the name clients say, the profile's when empty. `mean_tokens`: of answers that end by themselves.
    `fault`: what is wrong from the start. `cold`: it begins with a cold start. `seed` decides texts, ids and
    which requests meet a fault that has a rate.
    """

    model: str = ""
    role: Role = Role.BOTH
    seed: int = 0
    mean_tokens: int = 200
    fault: Fault = NONE
    cold: bool = False


class Twin:
    """One twin. `start`, then `stop`, on one loop, whose monotonic seconds `clock` are.

    `wall` is wall time in seconds. `events` publishes what happens in the cache, and is closed with the twin.
    `died` is called at a crash instead of a new start.
    """

    def __init__(
        self,
        profile: Profile,
        network: Network,
        clock: Callable[[], float],
        options: Options | None = None,
        events: KvEvents | None = None,
        died: Callable[[], None] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        options = options or Options()
        self.service = Service(
            profile, clock, wall, options.model, options.role, options.seed, options.mean_tokens, events
        )
        self.fault = NONE
        self.site = Site(self)
        self._options = options
        self._network = network
        self._clock = clock
        self._events = events
        self._died = died
        self._rng = Random(options.seed)
        self._sweep, self._burst = Sweep(clock), AtOnce()
        self._ready_at = 0.0
        self._listener: Listener | None = None
        if events is not None:
            events.source = self.service

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address in use. Raises OSError where the port is taken."""
        self._listener = await self._network.listen(self._connection, host, port)
        self._sweep.start()
        host, port = self._listener.address
        self.service.settle(f"{host}:{port}")
        if self._events is not None:
            self._events.topic = self._events.topic or f"kv@{host}:{port}@{self.service.model}"
            self._events.start()
        if self._options.cold:
            self._restart()
        self.fail(self._options.fault)
        return host, port

    def stop(self) -> None:
        """Close everything at once; answers that run are broken off."""
        if self._listener is not None:
            self._listener.close()
        self.service.live.stop()
        for connection in list(self.site.connections.values()):
            connection.transport.abort()
        self._sweep.stop()
        if self._events is not None:
            self._events.stop()

    def _connection(self) -> ServerConnection:
        return ServerConnection(self.site, self._sweep, self._burst, LIMITS)

    # -- House ------------------------------------------------------------------------------------

    @property
    def phase(self) -> str | None:
        """See House."""
        left_s = self._ready_at - self._clock()
        if left_s <= 0:
            return None
        for name, seconds in reversed(self.service.profile.start):
            if left_s <= seconds:
                return name
            left_s -= seconds
        return self.service.profile.start[0][0]

    def meet(self, said: Fault) -> Fault:
        """See House."""
        met = self._drawn(self.fault) | self._drawn(said)
        engines = Fault(slow=said.slow, crash=said.crash, metrics_stop=said.metrics_stop)
        if engines:
            self.fail(self.fault | engines)
        return met

    def fail(self, fault: Fault, spared: HttpExchange | None = None) -> None:
        """See House."""
        self.fault = structs.replace(fault, crash=False)
        self.service.live.slow(fault.slow or 1.0)
        self._hold()
        if fault.crash:
            self._crash(spared.client if spared else "")

    def sleep(self, *, asleep: bool) -> None:
        """See House."""
        self.service.asleep = asleep
        if asleep:
            self.service.live.engine.clear_cache()
        self._hold()

    # -- what faults do ---------------------------------------------------------------------------

    def _drawn(self, fault: Fault) -> Fault:
        """What one request meets of a fault that has a rate."""
        return fault if fault.rate >= 1 or self._rng.random() < fault.rate else NONE

    def _hold(self) -> None:
        hung = self.fault.hang and self.fault.rate >= 1
        self.service.live.hold(held=hung or self.service.asleep)

    def _crash(self, spared: str) -> None:
        for connection in list(self.site.connections.values()):
            if connection.client != spared:
                reset(connection.transport)
        if self._died is not None:
            self._died()
        self._restart()

    def _restart(self) -> None:
        """Another process begins, with a cold start."""
        self._ready_at = self._clock() + self.service.profile.start_s
        self.service.restart()
        self._hold()
        if self._events is not None:
            self._events.restart()
