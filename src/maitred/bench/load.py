"""The load: sends what the workload says when it says so, and writes down what became of it.

The schedule is absolute. What is due is sent whether or not answers come, and what was sent late is counted
from when it was due. Nothing waits here but for a new connection: a request is a few callbacks, and the only
timers are one for the next request, and one for the patience of each client.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from msgspec import Struct, field

from maitred.bench.client import Call
from maitred.bench.own import Beat
from maitred.bench.shot import UNFINISHED, Ending, Own, Run, Shot
from maitred.bench.targets import Target
from maitred.bench.text import BYTES_PER_TOKEN, Texts
from maitred.net.client import ClientConnection, Patience
from maitred.net.pool import ConnectFailed, Pool
from maitred.net.seams import Network
from maitred.net.sweep import Sweep
from maitred.sim.arrival import Arrival, Workload

TICK_S = 0.001
"""uvloop's timers count whole milliseconds; one set for less would come before its time."""
SENDS_A_TURN = 32
"""After so many in a row the loop may read: their answers' stamps would be late."""
RECENT_MAX = 4096


class LoadOptions(Struct, frozen=True):
    """How a load is run, and what its run says of itself.

    `kinds` are the names of the workload's classes in their order. `salt` is the texts' (see Texts), by
    itself another each time. An answer is given up when nothing came for `silence_s`, or when it is not over
    `answer_s` after it was due. `trace` keeps the instants of all reads.
    """

    workload: str = ""
    kinds: Sequence[str] = ("requests",)
    seed: int = 0
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    rates: dict[int, float] = {}
    salt: int = field(default_factory=lambda: int.from_bytes(os.urandom(8)))
    bytes_per_token: float = BYTES_PER_TOKEN
    connect_s: float = 10.0
    silence_s: float = 600.0
    answer_s: float = 3600.0
    trace: bool = False


class Progress(Struct):
    """A run as it stands.

    `endings` counts by Ending, `recent` has the last requests that were over: when, and their TTFT. `at` is
    the instant of the last of them.
    """

    at: float = 0.0
    sent: int = 0
    in_flight: int = 0
    endings: list[int] = field(default_factory=lambda: [0] * len(Ending))
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))


class Load:
    """One run against one server. `watch` is called with each shot when it is over."""

    def __init__(
        self,
        target: Target,
        workload: Workload,
        options: LoadOptions,
        network: Network,
        clock: Callable[[], float] = time.monotonic,
        watch: Callable[[Shot], None] | None = None,
    ) -> None:
        self.progress = Progress()
        self._target = target
        self._workload = workload
        self._options = options
        self._clock = clock
        self._watch = watch
        self._sweep = Sweep(clock)
        self._pool = Pool(
            network,
            self._sweep,
            Patience(first_byte_s=options.silence_s, idle_s=options.silence_s),
            options.connect_s,
        )
        self._texts = Texts(options.bytes_per_token, options.salt)
        self._own = Own()
        self._shots: list[Shot] = []
        self._open: dict[int, Call] = {}
        self._due: list[tuple[float, int, Arrival, Iterator[Arrival]]] = []
        self._serial = count()
        self._timer: asyncio.TimerHandle | None = None
        self._head = target.head()
        self._more = target.more
        self._zero = 0.0
        self._over: asyncio.Future[None] | None = None
        self._stopping = False  # nothing follows from what ends from now on
        self._ended_early = False

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._zero

    async def run(self, begin_at: float | None = None) -> Run:
        """Send everything and wait for the last answer. `begin_at`, by the clock, is the run's zero."""
        self._over = asyncio.get_running_loop().create_future()
        self._zero = self._clock() if begin_at is None else begin_at
        began_unix = time.time() - self.now()
        beat = Beat(self._own, self._clock, self._buffered)
        self._sweep.start()
        beat.start()
        try:
            if not self._stopping:
                self._add(self._workload.begin(0.0))
            self._arm()
            await self._over
        finally:
            self._end_all()
            beat.stop()
            self._sweep.stop()
            self._pool.close()
        options = self._options
        return Run(
            target=self._target.name,
            workload=options.workload,
            seed=options.seed,
            shots=self._shots,
            own=self._own,
            duration_s=max(0.0, self.now()),
            slo_ttft_s=options.slo_ttft_s,
            slo_tpot_s=options.slo_tpot_s,
            rates=options.rates,
            began_unix=began_unix,
            ended_early=self._ended_early,
        )

    def stop(self) -> None:
        """End now: who is still waited for is left. Before `run`, nothing is sent then."""
        self._ended_early = True
        self._end_all()
        self._settle()

    # -- the schedule -----------------------------------------------------------------------------

    def _add(self, arrivals: Iterable[Arrival]) -> Arrival | None:
        """More is to be sent; the first of it, all that is asked for yet."""
        rest = iter(arrivals)
        arrival = next(rest, None)
        if arrival is not None:
            heapq.heappush(self._due, (arrival.at, next(self._serial), arrival, rest))
        return arrival

    def _arm(self) -> None:
        """Come back when the next is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            wait_s = self._due[0][0] - self.now()
            wait_s = max(wait_s, TICK_S) if wait_s > 0 else 0.0
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._send_due)
        else:
            self._settle()

    def _send_due(self) -> None:
        due, now = self._due, self.now()
        for _ in range(SENDS_A_TURN):
            if not due or due[0][0] > now:
                break
            _, _, arrival, rest = heapq.heappop(due)
            self._add(rest)
            self._send(arrival)
        self._arm()

    def _settle(self) -> None:
        """The run is over when nothing is on its way and nothing is to come."""
        if not self._open and not self._due and self._over is not None and not self._over.done():
            self._over.set_result(None)

    # -- one request ------------------------------------------------------------------------------

    def _send(self, arrival: Arrival) -> None:
        options = self._options
        shot = Shot(
            number=arrival.number,
            kind=options.kinds[(arrival.number - 1) % len(options.kinds)],
            tenant=arrival.tenant,
            stage=arrival.stage,
            due_at=arrival.at,
            sent_at=arrival.at,
            over_at=arrival.at,
            ending=Ending.LEFT,
            counted=True,
            conversation=arrival.conversation,
            turn=arrival.turn,
            warm_up=arrival.warm_up,
        )
        call = Call(
            arrival, shot, self._target.form, self.now, self._ended, self._connect, trace=options.trace
        )
        self._open[arrival.number] = call
        self.progress.sent += 1
        self.progress.in_flight += 1
        patience_s, why = options.answer_s, "too_long"
        if arrival.patience_s is not None:
            patience_s, why = arrival.patience_s, "patience"
        wait_s = max(arrival.at + patience_s - self.now(), TICK_S)
        call.patience = asyncio.get_running_loop().call_later(wait_s, self._leave, call, why)
        connection = self._pool.take(self._target.url)
        if connection is None:
            self._connect(call)
        else:
            self._write(call, connection)

    def _connect(self, call: Call) -> None:
        """Open a connection for it: there is none, or the one there was had been closed unnoticed."""
        call.connection = None
        call.connecting = asyncio.get_running_loop().create_task(self._connected(call))

    async def _connected(self, call: Call) -> None:
        began = self.now()
        try:
            connection = await self._pool.connect(self._target.url)
        except ConnectFailed as error:
            self._own.connect_failures += 1
            call.shot.sent_at = self.now()
            call.shot.connect_s += call.shot.sent_at - began
            call.finish(Ending.FAILED, error.kind.label)
        else:
            self._own.connects += 1
            call.shot.connect_s += self.now() - began
            call.fresh = True
            self._write(call, connection)
        finally:
            call.connecting = None

    def _write(self, call: Call, connection: ClientConnection) -> None:
        body = self._target.body(self._texts, call.arrival, self._more)
        call.connection = connection
        connection.send(b"%b%d\r\n\r\n" % (self._head, len(body)), (body,), len(body), call)
        call.shot.sent_at = self.now()

    def _leave(self, call: Call, why: str) -> None:
        """Give it up; the server sees its client go."""
        if call.connecting is not None:
            call.connecting.cancel()
        if call.connection is not None:
            call.connection.abort()
        call.finish(Ending.LEFT, why)

    def _ended(self, call: Call) -> None:
        """It is over: count it, and see what comes because of it."""
        shot, arrival, progress = call.shot, call.arrival, self.progress
        del self._open[arrival.number]
        if call.patience is not None:
            call.patience.cancel()
        self._shots.append(shot)
        progress.at = shot.over_at
        progress.in_flight -= 1
        progress.endings[shot.ending] += 1
        if shot.ttft_s is not None:
            progress.recent.append((shot.over_at, shot.ttft_s))
        if self._watch is not None:
            self._watch(shot)
        if not self._stopping:
            self._go_on(call)

    def _go_on(self, call: Call) -> None:
        arrival = call.arrival
        if arrival.conversation and call.shot.ending is Ending.COMPLETED:
            self._texts.answered(arrival, call.text)
        first = self._due[0] if self._due else None
        then = self._add(self._workload.over(arrival, self.now()))
        if not self._due or self._due[0] is not first:
            self._arm()
        if arrival.conversation and (then is None or then.conversation != arrival.conversation):
            self._texts.forget(arrival.conversation)

    def _end_all(self) -> None:
        """Send nothing more, and leave whoever is waited for."""
        self._stopping = True
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in list(self._open.values()):
            self._leave(call, UNFINISHED)

    def _buffered(self) -> int:
        """Bytes of requests that the system has not taken yet."""
        calls = self._open.values()
        return sum(call.connection.unsent_bytes for call in calls if call.connection and not call.shot.status)
