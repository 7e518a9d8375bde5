"""A trace through the real gateway before twins, in virtual time.

Twins close each connection after its answer: whether one is at hand is not the simulator's business, and a
request on one that is would leave a turn of the loop earlier.
"""

from __future__ import annotations

import asyncio
import functools
import operator
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import structs

from maitred.app.gateway import GatewayApp
from maitred.config.simulate import Fault
from maitred.config.tree import Config, Journal
from maitred.core.words import Held
from maitred.net import virtual
from maitred.net.memory import MemoryNetwork
from maitred.sim.arrival import Arrival
from maitred.twin import faults
from maitred.twin.twin import Options, Twin
from tests.equivalence.heard import Ids, Publisher, Wires
from tests.equivalence.trace import CHAT, MODEL, Act, Flaw, Trace, body
from tests.equivalence.verbs import Verb, read
from tests.net.http import connected, post, turns

NEVER = 1e9


def serve(trace: Trace) -> list[Verb]:
    """Its verbs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal"
        config = structs.replace(trace.config, journal=Journal(file))
        virtual.run(_Run(structs.replace(trace, config=config)).run(), timeout_s=NEVER)
        return read(file.read_bytes().splitlines(), virtual.START_S)


class _Run:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._network = MemoryNetwork()
        self._wires = Wires()
        self._twins: dict[str, Twin] = {}
        self._up_at: dict[str, float] = {}
        self._faults: dict[tuple[str, str], faults.Fault] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for config in (self._trace.config, *(act.config for act in self._trace.acts)):
            for url in _urls(config):
                if url not in self._twins:
                    self._twins[url] = await self._twin(url)
        self._app = GatewayApp(self._trace.config, self._network, loop.time, seed=self._trace.seed)
        self._app.kv_events._sockets = self._wires
        self._tell_ids()
        self._address = await self._app.start()
        for act in self._trace.acts:
            self._at(act.at, self._act, act)
        for fault in self._trace.config.simulate.faults:
            self._at(fault.at_s, self._strike, fault)
        for flaw in self._trace.flaws:
            self._at(flaw.at, self._spoil, flaw)
            self._at(flaw.until, self._wrong, flaw.url, "flaw")
        await asyncio.gather(*(self._ask(arrival) for arrival in self._trace.arrivals))
        await turns()
        await self._app.stop()
        for twin in self._twins.values():
            twin.stop()
        await turns()

    async def _twin(self, url: str) -> Twin:
        clock, address = asyncio.get_running_loop().time, _address(url)
        events = Publisher(self._wires.at(address[0]), clock) if self._trace.precise else None
        twin = Twin(self._trace.profile, self._network, clock, Options(model=MODEL), events, wall=clock)
        await twin.start(*address)
        twin.site.draining = True
        return twin

    async def _ask(self, arrival: Arrival) -> None:
        """A client: it comes, reads, and leaves when its patience is over."""
        await asyncio.sleep(arrival.at)
        client = await connected(self._network, self._address)
        client.send(post(CHAT, body(arrival), "Connection: close"))
        if arrival.patience_s is not None:
            self._at(arrival.at + arrival.patience_s, client.leave)
        await client.closed()

    def _at(self, at: float, act: Callable[..., object], *given: object) -> None:
        asyncio.get_running_loop().call_at(virtual.START_S + at, act, *given)

    def _act(self, act: Act) -> None:
        if act.config is not None:
            self._app.apply(act.config)
            self._tell_ids()
        else:
            self._app.house.update(Held(f"{MODEL}/{act.url.partition('://')[2]}", act.held))

    def _tell_ids(self) -> None:
        if self._trace.precise:
            self._app.tokens.sources[MODEL] = Ids()

    def _spoil(self, flaw: Flaw) -> None:
        self._wrong(flaw.url, "flaw", faults.Fault(status=flaw.status or None, reset=flaw.tokens or None))

    def _strike(self, fault: Fault) -> None:
        url, for_s = fault.endpoint, fault.for_s
        match fault.fault:
            case "crash":
                self._crash(url)
            case "hang":
                self._wrong(url, "hang", faults.Fault(hang=True))
                self._later(for_s, self._crash, url)
            case "slow":
                self._wrong(url, "slow", faults.Fault(slow=fault.factor))
                self._later(for_s, self._wrong, url, "slow")
            case "cut":
                self._network.hang(*_address(url))
                self._later(for_s, self._network.heal, *_address(url))
            case _:
                raise ValueError(f"no twin can be made to {fault.fault}")

    def _crash(self, url: str) -> None:
        """Its process is gone until it has started again; nobody listens there until then."""
        self._network.refuse(*_address(url))
        self._wrong(url, "hang", faults.Fault(crash=True))
        self._wrong(url, "hang")
        self._up_at[url] = asyncio.get_running_loop().time() + self._trace.profile.start_s
        self._later(self._trace.profile.start_s, self._recover, url)

    def _recover(self, url: str) -> None:
        if asyncio.get_running_loop().time() >= self._up_at[url]:  # it has not died once more since
            self._network.heal(*_address(url))

    def _wrong(self, url: str, name: str, fault: faults.Fault = faults.NONE) -> None:
        """Let one thing be wrong with a twin, or be right again, whatever else is wrong."""
        self._faults[url, name] = fault
        wrong = [fault for (where, _), fault in self._faults.items() if where == url]
        self._twins[url].fail(functools.reduce(operator.or_, wrong))

    def _later(self, after_s: float | None, act: Callable[..., object], *given: object) -> None:
        if after_s is not None:
            asyncio.get_running_loop().call_later(after_s, act, *given)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _urls(config: Config | None) -> tuple[str, ...]:
    urls = config.models[0].endpoints if config is not None else ()
    assert isinstance(urls, tuple)
    return urls
