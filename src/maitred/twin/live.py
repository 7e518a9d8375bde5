"""The engine model in real time, or in whatever time the loop has: one timer, however many answers run.

The timer stands at the engine's next instant. When it fires, the engine runs its steps up to now and each
answer is told how many tokens it has by then; nothing sleeps, and no answer has a task or a timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from maitred.sim.engine import Engine
from maitred.sim.job import FIRST, Job, Role, Told
from maitred.twin.counts import Counts


class Track:
    """One job at the engine, and who is told of its tokens: `made` of them have been told."""

    __slots__ = ("arrived_at", "job", "made", "token_at")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.made = 0
        self.arrived_at = self.token_at = 0.0

    def out(self, made: int, *, over: bool) -> None:
        """So many tokens are out in all; `over`: these are all there will be."""
        raise NotImplementedError


class LiveEngine:
    """An engine that runs by a clock (the loop's monotonic seconds). It may be held, and then stands still.

    `engine` steps one by one (`lazy=False`), or tokens would come in bunches. `name` tells it from others.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float], counts: Counts) -> None:
        self.engine = engine
        self.counts = counts
        self.name = ""
        self._clock = clock
        self._tracks: dict[int, Track] = {}  # by job number
        self._running: dict[int, Track] = {}  # those of them that have their first token
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at: float | None = None
        self._last = clock()
        self._held_at: float | None = None
        self._stood_s = 0.0

    @property
    def now(self) -> float:
        """The engine's own instant: the clock without the time it was held. Never runs backwards."""
        clock = self._clock() if self._held_at is None else self._held_at
        self._last = max(self._last, clock - self._stood_s)
        return self._last

    @property
    def tracks(self) -> Collection[Track]:
        """Those whose job is not over."""
        return self._tracks.values()

    def submit(self, track: Track) -> None:
        """Have the engine do a job. Raises ValueError where it can never fit."""
        now = self.now
        self.engine.submit(track.job, now)
        track.arrived_at = now
        self._tracks[track.job.number] = track
        self._arm()

    def abort(self, track: Track) -> None:
        """Forget a job that is not over; nobody is told."""
        number = track.job.number
        if number not in self._tracks:
            return
        self.engine.abort(track.job, self.now)  # it first catches up, and may still fill a block for this job
        del self._tracks[number]
        self._running.pop(number, None)
        self.counts.aborted()
        self._arm()

    def track(self, number: int) -> Track:
        """Who has the job of this number, which is not over."""
        return self._tracks[number]

    def replace(self, engine: Engine, counts: Counts) -> None:
        """Another engine runs from now on; what ran is lost, and nobody is told."""
        engine.speed = self.engine.speed
        self.engine, self.counts = engine, counts
        self._tracks.clear()
        self._running.clear()
        self.hold(held=False)

    def slow(self, factor: float) -> None:
        """Have steps take so many times as long from now on."""
        if factor != self.engine.speed:
            self._run(self.now)
            self.engine.speed = factor
            self._arm()

    def hold(self, *, held: bool) -> None:
        """Stand still, or go on as if no time had passed."""
        if held and self._held_at is None:
            self._held_at = self._clock()
        elif not held and self._held_at is not None:
            self._stood_s += self._clock() - self._held_at
            self._held_at = None
        self._arm()

    def stop(self) -> None:
        """Arm no more timers."""
        self.hold(held=True)

    def _arm(self) -> None:
        """Have the timer where the engine's next instant is."""
        at = self.engine.next_at if self._held_at is None else None
        if at == self._armed_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = at
        self._timer = None
        if at is not None:
            wait_s = max(0.0, at - self.now)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def _fire(self) -> None:
        at, self._armed_at, self._timer = self._armed_at, None, None
        if at is not None:
            self._last = max(self._last, at)  # a loop's timer may fire a little early
        self._run(self.now)
        self._arm()

    def _fetch(self, engine: Engine, job: Job) -> None:
        """A prompt is in the cache: nobody really comes for it, so let it go when it would be fetched."""
        profile = engine.profile
        rate = profile.transfer_bytes_per_s
        wait_s = job.prompt_tokens * profile.kv_token_bytes / rate if rate else 0.0
        asyncio.get_running_loop().call_later(wait_s, self._release, engine, job)

    def _release(self, engine: Engine, job: Job) -> None:
        if engine is self.engine:  # else it has died, and the prompt with it
            engine.release(job, self.now)
            self._arm()

    def _run(self, now: float) -> None:
        """Run the engine, and tell everybody. Who is told may bring another request, or a crash."""
        engine, running = self.engine, self._running
        for track in self._sorted(engine.advance(now)):
            if engine is not self.engine:
                return
            self.counts.finished(track, now)
            if engine.role is Role.PREFILL:
                self._fetch(engine, track.job)
            track.out(track.job.output_tokens, over=True)
        for number, track in list(running.items()):
            if number in running and (made := engine.made(track.job)) > track.made:
                self.counts.tokens(track, made, now)
                track.out(made, over=False)
        if engine is self.engine:
            self.counts.stepped(engine)

    def _sorted(self, news: Iterable[Told]) -> list[Track]:
        """Note who runs from now on; those who are over."""
        over = []
        for told in news:
            number = told.job.number
            track = self._tracks.get(number)
            if track is None:
                continue
            if told.milestone is FIRST:
                self.counts.prompted(told.job)
                self._running[number] = track
            else:
                del self._tracks[number]
                self._running.pop(number, None)
                over.append(track)
        return over
