"""A model of one engine that schedules as vLLM v1 does: steps of continuous batching over a paged cache.

Time passes in steps. What happens in a step is decided by `scheduler.py`, how long it takes by the profile.
While nothing is due, steps are alike but for their contexts, which grow by a token each: so their durations
are an arithmetic series, and the engine jumps over them.

With asynchronous scheduling a step is made up while the one before it runs, so an engine at work takes in
new jobs at the end of a step (`queued_at`, `scheduled_at`) and has their first token two steps later. An
idle one begins at once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from heapq import heappop, heappush

from maitred.core.words import PROGRESS_TOKENS
from maitred.sim.job import Job, Role, Told
from maitred.sim.kv import CacheListener
from maitred.sim.profile import Profile
from maitred.sim.scheduler import Scheduler, Sequence


class Engine:
    """One engine in somebody's time: it has no clock, and does nothing by itself.

    `submit` and `abort` jobs, ask `next_at`, and `advance` to it. `progress_tokens` (0: never) is the step of
    PROGRESS milestones; `lazy` False makes every step end an instant of its own (`next_at`).

    A PREFILL engine makes one token, whatever the job says: it is DONE when the prompt is in the cache, and
    keeps it there until `release` (or `abort`) of the job. The `remote_tokens` of a job arrive first, at the
    profile's rate; then the job is seen, and they need not be computed. They take no blocks on their way.

    Readings: `steps` completed, `busy_s` spent in them, `generated_tokens`, and the properties below.
    """

    def __init__(
        self,
        profile: Profile,
        role: Role = Role.BOTH,
        progress_tokens: int = PROGRESS_TOKENS,
        *,
        lazy: bool = True,
        listener: CacheListener | None = None,
    ) -> None:
        if profile.step_tokens_max < profile.sequences_max:
            raise ValueError(
                f"profile {profile.name}: step_tokens_max ({profile.step_tokens_max}) must be at least "
                f"sequences_max ({profile.sequences_max}), or a step cannot serve all who decode"
            )
        self.profile = profile
        self.role = role
        self._progress_tokens = progress_tokens
        self._lazy = lazy
        self._listener = listener
        self._speed = 1.0
        self._reset()

    def _reset(self) -> None:
        self._ranks = [
            Scheduler(self.profile, self._progress_tokens, self._listener, keeps=self.role is Role.PREFILL)
            for _ in range(self.profile.ranks)
        ]
        self._slowest = self._ranks[0]  # in the step in flight
        self._sequences: dict[Job, Sequence] = {}  # those that are not done
        self._kept: dict[Job, Sequence] = {}  # done, with blocks for another engine
        self._transfers: list[tuple[float, int, Sequence]] = []  # heap, by the instant of arrival
        self._inbox: list[Sequence] = []  # not seen yet
        self._seen: list[Sequence] = []  # seen, but not by the step in flight
        self._told: list[Told] = []
        self._submitted = 0

        self._busy = False  # a step is in flight
        self._at = self._before = -math.inf  # ends of the last completed step and the one before it
        self._step_s = self._growth_s = 0.0  # duration of the step in flight, and how it grows by the step
        self._step_outputs = 0  # tokens that come out of it
        self._quiet = 1  # at the end of that many steps something is due
        self._next_at: float | None = None
        self.steps = self.generated_tokens = 0
        self.busy_s = 0.0

    # -- what an owner does -----------------------------------------------------------------------

    @property
    def next_at(self) -> float | None:
        """The next instant at which there is something to tell or to do; None while it has nothing to do."""
        return self._told[0].at if self._told else self._next_at

    def fits(self, job: Job) -> bool:
        """Whether it can ever serve this job."""
        return not self._misfit(job)

    def submit(self, job: Job, now: float) -> None:
        """A job arrives. Raises ValueError where it can never fit."""
        if misfit := self._misfit(job):
            raise ValueError(f"{self.profile.name}: {misfit}")
        self._catch_up(now)
        self._submitted += 1
        rank = min(self._ranks, key=self._crowd) if len(self._ranks) > 1 else self._ranks[0]
        order = (job.priority if self.profile.by_priority else 0, self._submitted)
        output_tokens = 1 if self.role is Role.PREFILL else job.output_tokens
        sequence = self._sequences[job] = Sequence(job, rank, order, output_tokens)
        rate = self.profile.transfer_bytes_per_s
        if job.remote_tokens and rate:
            arrives_at = now + job.remote_tokens * self.profile.kv_token_bytes / rate
            heappush(self._transfers, (arrives_at, self._submitted, sequence))
        else:
            self._inbox.append(sequence)
        self._interrupt(now)

    def abort(self, job: Job, now: float) -> None:
        """Forget a job, wherever it stands; nothing more is told of it."""
        self._catch_up(now)
        self._told = [told for told in self._told if told.job is not job]
        if job in self._kept:
            self.release(job, now)
        sequence = self._sequences.pop(job, None)
        if sequence is None:
            return
        if sequence in self._inbox:
            self._inbox.remove(sequence)
        elif sequence in self._seen:
            self._seen.remove(sequence)
        elif any(sequence is entry[2] for entry in self._transfers):
            self._transfers = sorted(entry for entry in self._transfers if entry[2] is not sequence)
        else:
            sequence.rank.abort(sequence, self.steps)
        self._interrupt(now)

    def release(self, job: Job, now: float) -> None:
        """The other engine has fetched this prompt: let go of its blocks."""
        self._catch_up(now)
        sequence = self._kept.pop(job, None)
        if sequence is not None:
            sequence.rank.release(sequence)
            self._interrupt(now)

    def advance(self, now: float) -> list[Told]:
        """Run every step that ends by `now`; what happened, in order of time."""
        self._run(now)
        told, self._told = self._told, []
        return told

    def made(self, job: Job) -> int:
        """Tokens of its answer that are out."""
        sequence = self._sequences.get(job)
        if sequence is not None:
            return sequence.made(self.steps)
        if math.isnan(job.over_at):
            return 0
        return 1 if self.role is Role.PREFILL else job.output_tokens

    def crash(self) -> list[Job]:
        """Forget everything, the cache and the counters too; returns the jobs that are lost."""
        lost = list(self._sequences)
        self._reset()
        if self._listener is not None:
            self._listener.cleared()
        return lost

    def clear_cache(self) -> bool:
        """Forget the prefix cache, as vLLM's /reset_prefix_cache; False while blocks are in use."""
        if any(rank.pool.free < rank.pool.blocks for rank in self._ranks):
            return False
        for rank in self._ranks:
            rank.pool.clear()
        return True

    @property
    def speed(self) -> float:
        """A factor on the duration of steps: 1, or more for a slow node. Set it after `advance`."""
        return self._speed

    @speed.setter
    def speed(self, factor: float) -> None:
        self._speed = factor
        self._cut()

    def _misfit(self, job: Job) -> str:
        """Why this job can never be served; empty if it can."""
        profile = self.profile
        if job.prompt_tokens < 1 or job.output_tokens < 1:
            return "a job needs at least one token of prompt and one of output"
        output_tokens = 1 if self.role is Role.PREFILL else job.output_tokens
        tokens = job.prompt_tokens + output_tokens
        if tokens > profile.context_tokens_max:
            return f"{tokens} tokens are more than its context of {profile.context_tokens_max}"
        if tokens - 1 > profile.kv_blocks * profile.block_tokens:  # the last token is never read again
            return f"{tokens} tokens need more than its {profile.kv_blocks} blocks of {profile.block_tokens}"
        if job.adapter and not profile.adapters_max:
            return f"it has no room for the adapter {job.adapter!r}"
        return ""

    # -- readings ---------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Jobs that are let in."""
        return sum(rank.running for rank in self._ranks)

    @property
    def waiting(self) -> int:
        """Jobs that are not."""
        return len(self._sequences) - self.running

    @property
    def kv_use(self) -> float:
        """The part of the blocks that is held, 0 to 1."""
        return 1 - sum(rank.pool.free for rank in self._ranks) / (len(self._ranks) * self.profile.kv_blocks)

    @property
    def load(self) -> tuple[int, int, int]:
        """What the slowest rank computes in a step: sequences that decode, tokens of context and of prompts.

        As of the last step at whose end something was due; zeros while no step is in flight.
        """
        if not self._busy:
            return 0, 0, 0
        return self._slowest.step_decodes, self._slowest.step_context, self._slowest.step_prefill

    @property
    def preemptions(self) -> int:
        """How often a job was preempted."""
        return sum(rank.preemptions for rank in self._ranks)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts let in."""
        return sum(rank.prompt_tokens for rank in self._ranks)

    @property
    def queried_tokens(self) -> int:
        """Tokens looked up in the prefix cache."""
        return sum(rank.queried_tokens for rank in self._ranks)

    @property
    def hit_tokens(self) -> int:
        """Tokens found in the prefix cache."""
        return sum(rank.hit_tokens for rank in self._ranks)

    @property
    def adapters(self) -> list[str]:
        """LoRA adapters that are loaded on a rank."""
        return list(dict.fromkeys(name for rank in self._ranks for name in rank.adapters.loaded(self._at)))

    # -- time -------------------------------------------------------------------------------------

    def _catch_up(self, now: float) -> None:
        """Let pass what is before a change; a step that begins at its instant is left to begin with it."""
        if self._busy or (self._next_at is not None and self._next_at < now):
            self._run(now)

    def _run(self, now: float) -> None:
        while self._next_at is not None and self._next_at <= now:
            self._turn(self._next_at)
        if self._busy and self._quiet > 1:
            self._skip(bisect_right(range(1, self._quiet), now - self._at, key=self._span))

    def _turn(self, at: float) -> None:
        """Something is due: the end of a step, or, in an idle engine, the beginning of one."""
        if self._busy:
            if self._quiet > 1:
                self._skip(self._quiet - 1)
            self._before, self._at = self._at, at
            self._count(1, self._step_s)
            for rank in self._ranks:
                for sequence in rank.complete(self.steps, at, self._told):
                    del self._sequences[sequence.job]
                    if sequence.kept:
                        self._kept[sequence.job] = sequence
        else:
            self._at = self._before = at
        self._receive(at)
        self._begin(at)

    def _skip(self, steps: int) -> None:
        """Let steps pass in which nothing is due."""
        passed_s = self._span(steps)
        self._count(steps, passed_s)
        self._at += passed_s
        self._step_s += self._growth_s * steps
        self._quiet -= steps

    def _span(self, steps: int) -> float:
        """How long the next steps take together: an arithmetic series."""
        return steps * self._step_s + self._growth_s * (steps * (steps - 1) / 2)

    def _count(self, steps: int, passed_s: float) -> None:
        self.steps += steps
        self.busy_s += passed_s
        self.generated_tokens += steps * self._step_outputs

    def _interrupt(self, now: float) -> None:
        """Something has changed: it is seen at the end of the step in flight, or at once."""
        if self._busy:
            self._cut()
        else:
            self._next_at = now

    def _cut(self) -> None:
        if self._busy and self._quiet > 1:
            self._quiet = 1
            self._next_at = self._at + self._step_s

    # -- steps ------------------------------------------------------------------------------------

    def _receive(self, at: float) -> None:
        """Take in the jobs that have come."""
        while self._transfers and self._transfers[0][0] <= at:
            self._inbox.append(heappop(self._transfers)[2])
        arrived, self._inbox = self._inbox, []
        for sequence in arrived:
            sequence.job.queued_at = at
        if self.profile.asynchronous:
            arrived, self._seen = self._seen, arrived
        for sequence in arrived:
            sequence.rank.enqueue(sequence)

    def _begin(self, at: float) -> None:
        """Begin the next step, if there is anything to compute."""
        self._busy = self._schedule(at, self._before if self.profile.asynchronous else at)
        if not self._busy:  # nothing was made up beforehand: so take in at once what has come or left since
            for rank in self._ranks:
                rank.settle()
            for sequence in self._seen:
                sequence.rank.enqueue(sequence)
            self._seen = []
            self._busy = self._schedule(at, at)
        self._step_outputs = sum([rank.step_outputs for rank in self._ranks])
        pending_at = self._pending_at(at)
        if self._busy:
            self._pace(stepwise=not self._lazy or bool(self._seen) or pending_at is not None)
            self._next_at = at + self._span(self._quiet)
        else:
            self._next_at = pending_at

    def _pending_at(self, at: float) -> float | None:
        """When the next transfer or adapter is there; None while none is on its way."""
        instants = [self._transfers[0][0]] if self._transfers else []
        if self.profile.adapters_max:
            loading = [rank.adapters.next_at(at) for rank in self._ranks]
            instants += [ready_at for ready_at in loading if ready_at is not None]
        return min(instants, default=None)

    def _schedule(self, at: float, stamp: float) -> bool:
        busy = [rank.schedule(self.steps, at, stamp) for rank in self._ranks]
        return any(busy)

    def _pace(self, *, stepwise: bool) -> None:
        """How long the step lasts (all ranks wait for the slowest), and how many like it will follow."""
        if len(self._ranks) > 1:
            self._slowest = max(self._ranks, key=self._seconds)
        self._step_s = self._seconds(self._slowest)
        self._growth_s = self._slowest.step_decodes * self.profile.step.per_token_s * self._speed
        self._quiet = 1 if stepwise else min(rank.quiet_steps(self.steps) for rank in self._ranks)
        if self._quiet > 1 and len(self._ranks) > 1 and self._overtaken():
            self._quiet = 1

    def _overtaken(self) -> bool:
        """Whether another rank will be the slowest before something is due."""
        later = self._quiet - 1
        return any(
            self._seconds(rank, later) > self._seconds(self._slowest, later)
            for rank in self._ranks
            if rank is not self._slowest
        )

    def _seconds(self, rank: Scheduler, later: int = 0) -> float:
        context = rank.step_context + rank.step_decodes * later
        return self._speed * self.profile.step.seconds(rank.step_decodes, context, rank.step_prefill)

    def _crowd(self, rank: Scheduler) -> int:
        """vLLM's measure of how busy a rank is; jobs on their way to it wait there."""
        coming = sum(sequence.rank is rank for sequence in (*self._inbox, *self._seen))
        return 4 * (len(rank.waiting) + coming) + rank.running
