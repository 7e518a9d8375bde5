"""What a minute of service tells an operator that no status does.

Late answers, caps too low or too high, caches that do not hold what was thought, and a gateway that is itself
the bottleneck.

Everything is judged by a whole minute of looks, and what was found needs less to stay than it took to be
found, so that no finding flaps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from maitred.core.events import Answered, Hears
from maitred.core.gateway import Gateway
from maitred.core.words import Endpoint, EndpointState
from maitred.observe.findings import Findings

KINDS = ("ttft_missed", "cap_too_low", "engine_queues", "cache_absent", "loop_lag")
"""The kinds of finding that are made and settled here."""

PERIOD_S = 5.0
LOOKS = 12
"""Looks that make a minute."""

ANSWERS_MIN = 10
"""Answers in a minute of which most say something."""
LATE, STILL_LATE = 0.5, 0.25
"""Part of the streams that were late."""
IDLE_KV = 0.5
"""Use of the KV cache below which more sequences would fit."""
WAITING, STILL_WAITING = 1.0, 0.5
"""Sequences that wait in an engine, on average."""
FOUND, FOUND_TOLD = 0.1, 0.5
"""Part of what was thought cached that an engine finds at least: where it is guessed, and where it tells.

A guess knows neither of others who use an engine nor of what its cache is short of, so little may be found.
"""
FOUND_AGAIN = 1.5
"""So many times that is enough again."""
STALE_S = 30.0
"""What an engine said so long ago says nothing of this minute."""
LAG_S = 0.01
"""A loop this late on average between two looks holds streams up by half a token and more."""

READY = EndpointState.READY

_Key = tuple[str, str]
LOOP: _Key = ("loop_lag", "gateway")


NEVER_JUDGED = (0, 0, 0, 0)


class Firsts:
    """Streams of one pool that had a goal for their first token, since the last look.

    `late` ones missed it; `held` of them had spent half of it and more waiting for a place.
    """

    __slots__ = ("answers", "held", "late")

    def __init__(self) -> None:
        self.answers = self.late = self.held = 0


class Watch:
    """Counts streams as they begin, looks at the endpoints now and then, and tells what is wrong.

    `late` is told by how much each beat of the loop missed.
    """

    def __init__(
        self,
        gateway: Gateway,
        findings: Findings,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.hears: Hears = {Answered: self._answered}
        self._gateway = gateway
        self._findings = findings
        self._clock = clock
        self._sleep = sleep
        self._firsts: dict[str, Firsts] = {}
        self._judged: dict[Endpoint, tuple[int, ...]] = {}  # figures of the last look
        self._late_s, self._beats = 0.0, 0
        self._minutes: dict[_Key, deque[tuple[float, ...]]] = {}
        self._seen: dict[_Key, deque[tuple[float, ...]]] = {}
        self._told: dict[_Key, tuple[str, str]] = {}

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._sleep(PERIOD_S)
            self._findings.review(KINDS, self.look())

    def late(self, late_s: float) -> None:
        """The gateway's loop was so late for a beat."""
        self._late_s += late_s
        self._beats += 1

    def look(self) -> list[tuple[str, str, str, str]]:
        """What is wrong now, each as (kind, where, what, do); to be asked each PERIOD_S."""
        self._seen = {}
        firsts, self._firsts = self._firsts, {}
        judged, self._judged = self._judged, {}
        found = [*self._lags()]
        for pool, endpoints in self._gateway.table.by_pool.items():
            found += self._late(pool, firsts.get(pool) or Firsts())
            found += self._low(pool, endpoints)
            found += self._queues(pool, endpoints)
            for endpoint in endpoints:
                found += self._absent(endpoint, judged.get(endpoint, NEVER_JUDGED))
        told = {(kind, where): self._told.get((kind, where), (what, do)) for kind, where, what, do in found}
        self._minutes, self._told = self._seen, told
        return [(kind, where, what, do) for (kind, where), (what, do) in told.items()]

    # -- judging ----------------------------------------------------------------------------------

    def _answered(self, event: Answered) -> None:
        ticket = event.leg.ticket
        goal_s = ticket.ttft_s
        if not goal_s:
            return
        pool = ticket.request.pool
        firsts = self._firsts.get(pool) or self._firsts.setdefault(pool, Firsts())
        firsts.answers += 1
        if event.at - ticket.arrival > goal_s:
            firsts.late += 1
            firsts.held += event.leg.seated_at - ticket.arrival > goal_s / 2

    def _late(self, pool: str, now: Firsts) -> Iterator[tuple[str, str, str, str]]:
        minute = self._minute(("ttft_missed", pool), now.answers, now.late, now.held)
        answers, late, held = (sum(counts) for counts in zip(*minute, strict=True))
        part = STILL_LATE if ("ttft_missed", pool) in self._told else LATE
        if answers >= ANSWERS_MIN and late > part * answers:
            what = "most streams begin later than their goal (slo.ttft), though all are answered with 200"
            do = "lower cap, for they wait inside the engines; or add engines"
            if 2 * held > late:
                do = "add engines, or lower queue.wait so that what comes too late is refused at once"
            yield "ttft_missed", pool, what, do

    def _low(self, pool: str, endpoints: Sequence[Endpoint]) -> Iterator[tuple[str, str, str, str]]:
        cap = self._gateway.settings.pools.get(pool, self._gateway.settings.default).cap
        if not cap:  # then it is raised without being told
            return
        queued = self._gateway.waiting_by_pool().get(pool, 0) > 0
        ready = [endpoint for endpoint in endpoints if endpoint.state is READY]
        low = queued and bool(ready) and all(self._idles(endpoint, cap) for endpoint in ready)
        if self._lasts(("cap_too_low", pool), low):
            what = f"requests wait while every endpoint is at its cap of {cap} and its KV cache half empty"
            yield "cap_too_low", pool, what, "raise cap; more servers will not help"

    def _queues(self, pool: str, endpoints: Sequence[Endpoint]) -> Iterator[tuple[str, str, str, str]]:
        for endpoint in endpoints:
            load = endpoint.load
            if load is None or endpoint.state is not READY or self._stale(endpoint):
                continue
            key = ("engine_queues", endpoint.name)
            minute = self._minute(key, load.waiting)
            most = STILL_WAITING if key in self._told else WAITING
            if len(minute) == LOOKS and sum(waiting for (waiting,) in minute) > most * LOOKS:
                what = "requests wait inside the engine, where nobody can order or refuse them"
                yield *key, what, f"lower cap of {pool}, or see who else sends it requests"

    def _absent(self, endpoint: Endpoint, before: Sequence[int]) -> Iterator[tuple[str, str, str, str]]:
        key = ("cache_absent", endpoint.name)
        now = endpoint.judged, endpoint.expected_tokens, endpoint.found_tokens, endpoint.told
        self._judged[endpoint] = now
        minute = self._minute(key, *(new - old for new, old in zip(now, before, strict=True)))
        answers, thought, found, told = (sum(counts) for counts in zip(*minute, strict=True))
        least = (FOUND_TOLD if 2 * told > answers else FOUND) * (FOUND_AGAIN if key in self._told else 1)
        if answers < ANSWERS_MIN or found >= least * thought:
            return
        what = f"of {thought:.0f} tokens thought cached in a minute it reports {found:.0f}"
        do = "see whether others use it, or its cache is smaller than it tells; cache.events would show"
        if not endpoint.found and not found:
            do = (
                "start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report; "
                "if it is, prefix caching does not work"
            )
        elif 2 * told > answers:
            do = "compare its token ids and its salt with ours: its KV events are of other blocks"
        yield *key, what, do

    def _lags(self) -> Iterator[tuple[str, str, str, str]]:
        mean_s = self._late_s / max(1, self._beats)
        self._late_s, self._beats = 0.0, 0
        if self._lasts(LOOP, mean_s > LAG_S):
            what = "its loop was late throughout a minute, and with it every stream: it is the bottleneck"
            do = "give it a CPU of its own or run another one beside it; see maitred_loop_lag_seconds"
            yield *LOOP, what, do

    def _lasts(self, key: _Key, now: bool) -> bool:
        """Whether it was so at every look of a minute; at half of them, where that was found before."""
        minute = self._minute(key, now)
        needed = LOOKS // 2 if key in self._told else LOOKS
        return sum(so for (so,) in minute) >= needed

    def _idles(self, endpoint: Endpoint, cap: int) -> bool:
        """Whether it has all the sequences it may have, and room for more."""
        load = endpoint.load
        if load is None or load.kv_use is None or self._stale(endpoint):
            return False
        return endpoint.running >= cap and load.kv_use < IDLE_KV

    def _stale(self, endpoint: Endpoint) -> bool:
        return self._clock() - endpoint.observed_at > STALE_S

    def _minute(self, key: _Key, *sample: float) -> deque[tuple[float, ...]]:
        """The samples of the last minute, this one included; what gets none at a look is forgotten."""
        minute = self._seen[key] = self._minutes.get(key) or deque(maxlen=LOOKS)
        minute.append(sample)
        return minute
