"""Hearing from the engines what is in their KV caches, so that it need not be guessed.

Each endpoint of a model with `cache.events` has a feed (`kv_feed.py`): its ranks publish at ports of its
host, or come to an address of ours, where the topic says whose events they are. What is heard goes to the
core in the words of `Request.blocks`; whether it can be gone by, and why not, can be seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from maitred.config.cache import TENANT, Events
from maitred.config.kinds import Address
from maitred.config.tree import Config
from maitred.control.kv_feed import MESSAGE_BYTES_MAX, NOTHING_YET, Feed, Replay
from maitred.control.kv_places import events_at, named_by, place_of, topic_place
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Endpoint, EndpointState, KvEvents
from maitred.engines.facts import TELLS_SALTS
from maitred.observe.findings import Findings
from maitred.observe.kv_events import KvFigures

if TYPE_CHECKING:
    from maitred.control.kv_sockets import Sockets, Subscription

log = logging.getLogger("maitred.kv_events")

KINDS = ("kv_events",)
"""The kinds of finding that are made and settled here."""
PERIOD_S = 1.0
REPLAYS_MAX = 8
"""Replays at once."""
SILENT_SEATED = 10
"""Requests after which an engine that publishes must have said something."""
HEARD = (EndpointState.READY, EndpointState.EJECTED, EndpointState.DRAINING)
TOPICS_MAX = 4096
NO_LONGER = "nobody listens any more"
UNSALTED = "its events do not tell whose blocks they are"

_Found = tuple[str, str]
"""Why an endpoint's events are not gone by, and what to do; "" where there is nothing to be done."""


class Line:
    """How one endpoint is heard: its feed, where that is, and its own subscriptions."""

    def __init__(self, feed: Feed, events: Events) -> None:
        self.feed = feed
        self.events = events
        self.url = feed.endpoint.url
        self.subscriptions: list[Subscription] = []
        self.trouble = ""

    @property
    def address(self) -> str:
        """Where it publishes, its first rank; or where it comes to."""
        if self.events.bind is not None:
            return f"tcp://{self.events.bind}"
        return events_at(self.url, self.events.port, self.events.offset)

    def close(self) -> list[asyncio.Task[None]]:
        """Hear no more; what still comes to its end."""
        for subscription in self.subscriptions:
            subscription.close()
        return self.feed.close()


class Listener:
    """Has a feed for each endpoint whose model says where its events are.

    `update` gets the changes. `wall` is wall time in seconds, by which engines date their messages.
    """

    def __init__(
        self,
        config: Config,
        table: EndpointTable,
        update: Callable[[KvEvents], None],
        findings: Findings,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._table = table
        self._update = update
        self._findings = findings
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._places = asyncio.Semaphore(REPLAYS_MAX)
        self._sockets: Sockets | None = None
        self._lines: dict[str, Line] = {}
        self._bound: dict[tuple[Address, int], Subscription] = {}
        self._unbound: dict[Address, str] = {}
        self._foreign: dict[Address, int] = {}
        self._owners: dict[tuple[str, bytes], list[Line]] = {}  # by place and topic
        self._sizes: dict[str, int] = {}  # of blocks, by pool, since the last look
        self.apply(config)

    def apply(self, config: Config) -> None:
        """From the next look on, listen where this configuration says."""
        self._events: Mapping[str, Events] = {
            model.name: model.cache.events for model in config.models if model.cache.events is not None
        }
        self._isolated = {model.name for model in config.models if model.cache.isolate == TENANT}

    async def run(self) -> None:
        """Listen, until cancelled."""
        try:
            while True:
                self.look()
                await self._sleep(PERIOD_S)
        finally:
            await self.close()

    def look(self) -> None:
        """Listen to those who are there now, and judge what is heard of them; to be called each PERIOD_S."""
        wanted = {
            endpoint.name: (endpoint, self._events[endpoint.pool])
            for endpoint in self._table.by_name.values()
            if endpoint.state in HEARD and endpoint.pool in self._events
        }
        for name, line in list(self._lines.items()):
            if wanted.get(name) != (line.feed.endpoint, line.events) or line.url != line.feed.endpoint.url:
                self._drop(name)
        self._owners.clear()
        self._sizes.clear()
        self._bind([events for _, events in wanted.values()])
        for name, (endpoint, events) in wanted.items():
            if name not in self._lines:
                self._lines[name] = self._line(endpoint, events)
        self._findings.review(KINDS, list(self._judge()))

    async def close(self) -> None:
        """Close everything; it may be run again."""
        asked = [task for line in self._lines.values() for task in line.close()]
        for subscription in self._bound.values():
            subscription.close()
        self._lines.clear()
        self._bound.clear()
        await asyncio.gather(*asked, return_exceptions=True)  # or ZMQ would wait for their sockets
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None

    def figures(self) -> list[KvFigures]:
        """What is known of each endpoint's events; from any thread."""
        return [line.feed.figures for line in list(self._lines.values())]

    @property
    def foreign(self) -> int:
        """Messages that came to an address of ours and were nobody's."""
        return sum(self._foreign.copy().values())

    def block_tokens(self, pool: str) -> int:
        """The size of a pool's blocks: what most of its endpoints have told; 0 while none has."""
        known = self._sizes.get(pool)
        if known is None:
            feeds = [line.feed for line in self._lines.values() if line.feed.endpoint.pool == pool]
            told = Counter(feed.rekey.block_tokens for feed in feeds if feed.rekey.block_tokens)
            if not told:
                return 0
            known = self._sizes[pool] = told.most_common(1)[0][0]
        return known

    # -- who is heard -----------------------------------------------------------------------------

    def _drop(self, name: str) -> None:
        line = self._lines.pop(name)
        if name in self._table.by_name:
            line.feed.judge(NO_LONGER)
        line.close()

    def _line(self, endpoint: Endpoint, events: Events) -> Line:
        replay = self._replay(endpoint.url, events)
        feed = Feed(endpoint, replay, self._places, self._update, self._clock, self._wall)
        line = Line(feed, events)
        if events.bind is not None:
            return line  # its ranks are those that come
        for rank in range(events.ranks):
            heard = partial(self._heard, line, rank)
            address = events_at(endpoint.url, events.port, events.offset, rank)
            try:
                line.subscriptions.append(self._open().subscribe(address, heard, feed.settle))
            except OSError as error:
                line.trouble = f"{address} cannot be listened to ({error})"
        feed.begin(events.ranks)
        return line

    def _replay(self, url: str, events: Events) -> Replay | None:
        if events.replay is None and events.replay_offset is None:
            return None

        def replay(rank: int, first: int) -> AsyncGenerator[tuple[int, bytes], None]:
            address = events_at(url, events.replay, events.replay_offset, rank)
            return self._open().replayed(address, first)

        return replay

    def _bind(self, wanted: Iterable[Events]) -> None:
        """Have the addresses of ours to which engines come."""
        places = {
            (events.bind, rank)
            for events in wanted
            if events.bind is not None
            for rank in range(events.ranks)
        }
        for place in [place for place in self._bound if place not in places]:
            self._bound.pop(place).close()
        self._unbound = {}
        for address, rank in sorted(places - self._bound.keys(), key=str):
            at = f"tcp://{structs.replace(address, port=address.port + rank)}"
            heard = partial(self._dispatch, address, rank)
            try:
                self._bound[address, rank] = self._open().subscribe(at, heard, self._settle, bind=True)
            except OSError as error:
                self._unbound[address] = f"{at} cannot be listened at ({error})"

    def _open(self) -> Sockets:
        if self._sockets is None:
            from maitred.control.kv_sockets import Sockets  # noqa: PLC0415 - brings ZMQ along

            self._sockets = Sockets()
        return self._sockets

    # -- what is heard ----------------------------------------------------------------------------

    def _heard(self, line: Line, rank: int, frames: list[bytes]) -> None:
        """A message from where this endpoint publishes."""
        known = line.feed.endpoint.name, frames[0]
        owners = self._owners.get(known)
        if owners is None:
            place, ours = topic_place(frames[0]), place_of(line.url)
            foreign = place != ours and any(place == place_of(other.url) for other in self._lines.values())
            owners = self._remember(known, [] if foreign else [line])
        if owners:
            _hand(line.feed, rank, frames)
        else:
            line.feed.count("foreign")

    def _dispatch(self, address: Address, rank: int, frames: list[bytes]) -> None:
        """A message that came to an address of ours."""
        known = str(address), frames[0]
        owners = self._owners.get(known)
        if owners is None:
            lines = [line for line in self._lines.values() if line.events.bind == address]
            url = named_by(frames[0], (line.url for line in lines))
            owners = self._remember(known, [line for line in lines if line.url == url])
        for line in owners:
            _hand(line.feed, rank, frames)
        if not owners:
            if address not in self._foreign:
                log.warning("tcp://%s: KV events of nobody we know; more of it is only counted", address)
            self._foreign[address] = self._foreign.get(address, 0) + 1

    def _remember(self, known: tuple[str, bytes], owners: list[Line]) -> list[Line]:
        """Whose messages these are, until the next look."""
        if len(self._owners) < TOPICS_MAX:
            self._owners[known] = owners
        return owners

    def _settle(self) -> None:
        for line in self._lines.values():
            if line.events.bind is not None:
                line.feed.settle()

    # -- what it is worth -------------------------------------------------------------------------

    def _judge(self) -> Iterator[tuple[str, str, str, str]]:
        first: dict[str, Line] = {}
        for name, line in self._lines.items():
            feed = line.feed
            feed.renew()
            why, do = self._fault(line, first.setdefault(line.address, line)) or ("", "")
            if do:
                yield "kv_events", name, f"its cache is only guessed: {why}", do
            feed.judge(why or (NOTHING_YET if feed.figures.heard_at is None else ""))
            feed.settle()

    def _fault(self, line: Line, first: Line) -> _Found | None:
        """What is wrong with an endpoint's events; `first` is whoever is heard at the same place."""
        feed, events, endpoint = line.feed, line.events, line.feed.endpoint
        trouble = line.trouble if events.bind is None else self._unbound.get(events.bind, "")
        if trouble:
            return trouble, "see who else has it, or write another one in cache.events"
        if events.bind is None and first.url != line.url:
            return (
                f"{line.address} is also where {first.feed.endpoint.name} publishes",
                "give each engine a port of its own, and write cache.events.offset or bind",
            )
        if endpoint.pool in self._isolated and endpoint.facts.engine not in TELLS_SALTS:
            return UNSALTED, ""  # which has a finding of its own
        size, usual = feed.rekey.block_tokens, self.block_tokens(endpoint.pool)
        if size and size != usual:
            return (
                f"its blocks have {size} tokens, others of {endpoint.pool} have {usual}",
                "start them with the same --block-size",
            )
        if feed.figures.heard_at is None and endpoint.seated - feed.seated >= SILENT_SEATED:
            return (
                f"nothing was heard at {line.address}, though requests were sent there",
                "start it with --kv-events-config, or see whether that can be reached",
            )
        return None


def _hand(feed: Feed, rank: int, frames: list[bytes]) -> None:
    """Give a feed one message: topic, number, payload."""
    if len(frames) == 3 and len(frames[1]) == 8 and len(frames[2]) <= MESSAGE_BYTES_MAX:
        feed.hear(rank, int.from_bytes(frames[1]), frames[2])
    else:
        feed.count("malformed")
