"""One engine's KV events in their order: nothing twice, and what was missed asked for again.

Each rank of an engine numbers its messages from 0. A number that jumps means that some were lost: then those
that follow wait until the engine has told them again, or has shown that it cannot. A number that does not
grow means that another process began to count, so nothing that was known holds. A new incarnation means the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from maitred.core.words import Endpoint, KvEvents
from maitred.observe.kv_events import COUNTS, figures
from maitred.wire.kv_events import decode
from maitred.wire.rekey import Rekey

NOTHING_YET = "nothing was heard yet"

log = logging.getLogger("maitred.kv_events")

REPLAY_S = 120.0
COOLDOWN_S = 30.0
"""How long a replay may take, and how soon after one there may be another of the same rank."""
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""Larger messages are none; a step of an engine with 64k new tokens is a tenth of it."""
HELD_MAX = 1024
HELD_BYTES_MAX = 16 * 1024 * 1024
"""Messages of a rank that wait while it is asked for those before, and their size."""
TURN_BYTES = 64 * 1024
"""Bytes taken in at once: about a millisecond, so that no stream feels it."""

Replay = Callable[[int, int], AsyncGenerator[tuple[int, bytes], None]]
"""Messages of a rank from a number on, each with its number. Raises TimeoutError when they do not come."""

_NO_FAULT = ("messages", "stored", "removed", "replays", "restarts")


class Rank:
    """Where one rank's messages stand.

    `heard` is the number of the last one that came by itself, `applied` that of the last one taken in. `held`
    ones wait for what a replay has to tell first; None while there is no replay.
    """

    __slots__ = ("applied", "heard", "held", "held_bytes", "number", "replay", "rests_until")

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard = self.applied = -1
        self.held: deque[tuple[int, bytes]] | None = None
        self.held_bytes = 0
        self.replay: asyncio.Task[None] | None = None
        self.rests_until = 0.0

    @property
    def missing(self) -> int:
        """How many messages lie between the last one taken in and what is held, if that is above 0."""
        return self.held[0][0] - self.applied - 1 if self.held else 0


class Feed:
    """The events of one endpoint. `replay` is None where it tells nothing again; `places` bounds all replays.

    `update` gets what has changed each time `settle` is called. While there is a reason `why` not to go by
    it, nothing is told but that nothing is known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        replay: Replay | None,
        places: asyncio.Semaphore,
        update: Callable[[KvEvents], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.endpoint = endpoint
        self.rekey = Rekey(endpoint.pool)
        self.figures = figures(endpoint.name)
        self.figures.why = NOTHING_YET
        self.seated = endpoint.seated
        self._incarnation = endpoint.incarnation
        self._replay = replay
        self._places = places
        self._update = update
        self._clock = clock
        self._wall = wall
        self._ranks: dict[int, Rank] = {}
        self._lost = False

    def begin(self, ranks: int) -> None:
        """Ask what so many ranks have told before anybody listened."""
        for number in range(ranks):
            self._ask(self._rank(number))

    def close(self) -> list[asyncio.Task[None]]:
        """Ask for nothing more; what was asked for and comes to its end."""
        asked = [rank.replay for rank in self._ranks.values() if rank.replay is not None]
        for task in asked:
            task.cancel()
        return asked

    def hear(self, number: int, message: int, payload: bytes) -> None:
        """A message of this rank came by itself."""
        self.renew()
        rank = self._rank(number)
        if rank.held is None:
            self._next(rank, message, payload)
        elif len(rank.held) < HELD_MAX and rank.held_bytes < HELD_BYTES_MAX:
            rank.held_bytes += len(payload)
            rank.held.append((message, payload))

    def renew(self) -> None:
        """Begin anew where the endpoint is another incarnation than it was."""
        endpoint = self.endpoint
        if endpoint.incarnation == self._incarnation:
            return
        self._incarnation, self.seated = endpoint.incarnation, endpoint.seated
        self.close()
        self._restart()
        self.figures.heard_at = None
        self.judge(NOTHING_YET)
        for rank in self._ranks.values():
            rank.held, rank.replay, rank.rests_until = None, None, 0.0
            self._ask(rank)

    def count(self, what: str, more: int = 1) -> None:
        """Count what happened; the first fault of a kind is worth a line."""
        counts = self.figures.counts
        if not counts[what] and what not in _NO_FAULT:
            log.warning("%s: KV events: %s; more of it is only counted", self.endpoint.name, COUNTS[what])
        counts[what] += more

    def settle(self) -> None:
        """Tell what has changed."""
        rekey, told, name = self.rekey, self.figures, self.endpoint.name
        for what, count in rekey.counts.items():
            if count > told.counts[what]:
                self.count(what, count - told.counts[what])
        told.blocks, told.block_tokens = len(rekey), rekey.block_tokens
        if told.why == NOTHING_YET and told.heard_at is not None:
            self.judge("")
        delta, lost, self._lost = rekey.take(), self._lost, False
        if delta is not None:
            told.counts["stored"] += len(delta.stored)
            told.counts["removed"] += len(delta.removed)
            if not told.why:
                self._update(KvEvents(name, delta.stored, delta.removed, delta.cleared, lost))
        elif lost and not told.why:
            self._update(KvEvents(name, lost=True))

    def judge(self, why: str) -> None:
        """From now on there is this reason not to go by its events, or "" for none."""
        before, self.figures.why = self.figures.why, why
        if why and not before:
            self._update(KvEvents(self.endpoint.name, cleared=True, lost=True))
        elif before and not why:
            self.rekey.tell_all()

    # -- order ------------------------------------------------------------------------------------

    def _rank(self, number: int) -> Rank:
        return self._ranks.get(number) or self._ranks.setdefault(number, Rank(number))

    def _next(self, rank: Rank, message: int, payload: bytes) -> None:
        """The next message that came by itself, in its turn."""
        if message <= rank.heard:
            self.count("restarts")
            self._restart()
        if message > rank.applied + 1:
            if rank.applied >= 0:
                self.count("gaps")
            if self._ask(rank):
                self.hear(rank.number, message, payload)  # to wait
                return
            self._lost = self._lost or rank.applied >= 0
        rank.heard = message
        if message > rank.applied:  # else a replay was faster
            self.figures.lag_s = max(0.0, self._wall() - self._take_in(rank, message, payload))

    def _take_in(self, rank: Rank, message: int, payload: bytes) -> float:
        """Believe what a message says; the engine's time of it."""
        rank.applied = message
        batch = decode(payload)
        self.count("messages")
        self.figures.heard_at = self._clock()
        if batch.unknown:
            self.count("unknown", batch.unknown)
        if batch.malformed:
            self.count("malformed", batch.malformed)
        self.rekey.apply(batch, rank.number)
        return batch.at

    def _restart(self) -> None:
        self.rekey.forget()
        for rank in self._ranks.values():
            rank.heard = rank.applied = -1

    # -- what was missed --------------------------------------------------------------------------

    def _ask(self, rank: Rank) -> bool:
        """Have the rank tell again what comes after what is known; False where that cannot be had now."""
        if self._replay is None or rank.replay is not None or self._clock() < rank.rests_until:
            return False
        rank.held, rank.held_bytes = deque(), 0
        rank.replay = asyncio.create_task(self._fill(rank, self._replay))
        return True

    async def _fill(self, rank: Rank, replay: Replay) -> None:
        first = rank.applied < 0
        taken = await self._take_again(rank, replay, 0)
        if first and rank.missing > 0:  # the subscription was still on its way, and is there now
            taken = await self._take_again(rank, replay, taken)
        if not first:
            rank.rests_until = self._clock() + COOLDOWN_S
        if rank.missing > 0:  # what still is, is given up
            rank.applied += rank.missing
            self._lost = True
        while rank.held:
            message, payload = rank.held.popleft()
            self._next(rank, message, payload)
            taken = await self._breathe(taken + len(payload))
        rank.held = rank.replay = None
        self.settle()

    async def _take_again(self, rank: Rank, replay: Replay, taken: int) -> int:
        """Take in what a replay tells; the bytes taken in since others had the loop, after so many before."""
        try:
            async with (
                self._places,
                asyncio.timeout(REPLAY_S),
                aclosing(replay(rank.number, rank.applied + 1)) as told,
            ):
                self.count("replays")
                async for message, payload in told:
                    if message > rank.applied:
                        self._lost = self._lost or message > rank.applied + 1
                        self._take_in(rank, message, payload)
                    taken = await self._breathe(taken + len(payload))
        except TimeoutError:
            self.count("replays_failed")
            self._lost = True
        return taken

    async def _breathe(self, taken: int) -> int:
        """Let others have the loop after so much; what has been taken in since they had it."""
        if taken < TURN_BYTES:
            return taken
        self.settle()
        await asyncio.sleep(0)
        return 0
