"""How one rank fills its steps, as vLLM v1 does: who runs goes on, then who waits comes in.

A step has a budget of tokens: one for every sequence that decodes, the rest for prompts, in chunks. When
blocks run out, the sequence that came last (or is least important) is preempted: it gives back everything,
waits at the head of the queue and computes its text again. The queue is strict: what does not fit at its
head blocks it, and is not looked at again before something has been freed.

**Decoding costs nothing here.** A sequence that decodes makes one token a step, so if `zero` is the step at
which it would have had none, it has `step - zero` after `step`. Its next milestone and the step that needs
its next block are known beforehand and wait in two calendars by step number. Only sums are kept:
in the step after `step` all contexts together are `decoding x step + offsets`.

**Asynchronous scheduling.** vLLM schedules a step while the one before it runs, so it cannot know yet what
becomes free or arrives meanwhile. That is the same as scheduling at the last moment with news that are one
step old. So here a place (and the blocks) of a sequence that is over is free one step later.
"""

from __future__ import annotations

import math
import sys
from bisect import insort
from operator import attrgetter

from maitred.sim.adapters import Adapters
from maitred.sim.job import Job, Milestone, Told
from maitred.sim.kv import BlockPool, BlockTable, CacheListener
from maitred.sim.profile import Profile

FOREVER = sys.maxsize
NOT_DUE = -1

_ORDER = attrgetter("order")


class Sequence:
    """A job inside an engine: `order` in its queue, `output_tokens` to make, `table` of its blocks.

    `target` tokens of its text must be in the cache before it can go on, and `computed` are. It had made
    `made_before` tokens when it was last let in. While it is `decoding`, `zero` tells what it has made,
    `milestone_step` is the step that ends with its next milestone and `growth_step` the one after which it
    needs a block. It is `over` when it is done or aborted; its blocks are `kept` for another engine.
    """

    __slots__ = (
        "computed",
        "decoding",
        "growth_step",
        "job",
        "kept",
        "made_before",
        "milestone_step",
        "order",
        "output_tokens",
        "over",
        "rank",
        "table",
        "target",
        "zero",
    )

    def __init__(self, job: Job, rank: Scheduler, order: tuple[int, int], output_tokens: int) -> None:
        self.job = job
        self.rank = rank
        self.order = order
        self.output_tokens = output_tokens
        self.table = BlockTable(job, job.keys if rank.prefix_caching else ())
        self.target = self.computed = self.made_before = self.zero = 0
        self.milestone_step = self.growth_step = NOT_DUE
        self.decoding = self.over = self.kept = False

    def made(self, step: int) -> int:
        """Tokens of its answer that are out after this step."""
        return step - self.zero if self.decoding else self.made_before


class Scheduler:
    """One rank. Its engine calls `complete` at the end of every step, then `schedule` for the next.

    The step scheduled last computes `step_decodes` sequences with `step_context` tokens in their contexts and
    `step_prefill` tokens of prompts; `step_outputs` tokens come out of it. The other counters count from
    the start; `queried_tokens` and `hit_tokens` (texts let in, and what of them was cached) once more after
    a preemption, `prompt_tokens` not.
    """

    def __init__(
        self, profile: Profile, progress_tokens: int, listener: CacheListener | None, *, keeps: bool
    ) -> None:
        self._keeps = keeps
        self.prefix_caching = profile.prefix_caching
        self._asynchronous = profile.asynchronous
        self._sequences_max = profile.sequences_max
        self._step_tokens_max = profile.step_tokens_max
        self._block_tokens = profile.block_tokens
        self._progress_tokens = progress_tokens or FOREVER
        self.pool = BlockPool(profile.kv_blocks, listener)
        self.adapters = Adapters(profile.adapters_max, profile.adapter_load_s)

        self.waiting: list[Sequence] = []  # by `order`
        self._running: dict[Sequence, None] = {}
        self._over: list[Sequence] = []  # their places are free after the next step
        self._aborted: list[Sequence] = []  # since the step in flight began
        self._chunked: Sequence | None = None  # a part of its prompt is computed
        self._blocked = False  # nobody who waits can come in before something changes
        self._decoding = 0
        self._offsets = 0
        self._milestones: dict[int, list[Sequence]] = {}
        self._growths: dict[int, list[Sequence]] = {}

        self.step_decodes = self.step_context = self.step_prefill = self.step_outputs = 0
        self.preemptions = self.prompt_tokens = self.queried_tokens = self.hit_tokens = 0

    @property
    def running(self) -> int:
        """Sequences that are let in and not over."""
        return len(self._running) - len(self._over) - len(self._aborted)

    def quiet_steps(self, step: int) -> int:
        """In how many steps something is due here; until then each is as the one in flight, a token later."""
        if self.step_prefill or self._over or (self.waiting and not self._blocked):
            return 1
        if not self._decoding:
            self._milestones.clear()  # of sequences that have left
            self._growths.clear()
            return FOREVER
        due = step + 1
        while due not in self._milestones and due not in self._growths:
            due += 1  # at most a block's tokens: then somebody needs a block, or is done
        return due - step

    def enqueue(self, sequence: Sequence) -> None:
        """One more waits."""
        insort(self.waiting, sequence, key=_ORDER)
        self._blocked = False

    def abort(self, sequence: Sequence, step: int) -> None:
        """Let go of one that waits or runs; it stays in its place while the step in flight lasts."""
        if sequence in self._running:
            self._stop(sequence, step)
            sequence.over = True
            self._aborted.append(sequence)
        else:
            self.waiting.remove(sequence)
            self._blocked = False

    def release(self, sequence: Sequence) -> None:
        """Take its blocks back."""
        sequence.kept = False
        self.pool.release(sequence.table)
        self._blocked = False

    # -- the end of a step ------------------------------------------------------------------------

    def complete(self, step: int, at: float, told: list[Told]) -> list[Sequence]:
        """The step is over: tell its milestones in the queue's order, and return who is done."""
        done = []
        for sequence in sorted(self._milestones.pop(step, ()), key=_ORDER):
            if sequence.milestone_step != step:
                continue  # preempted or aborted since
            job, tokens = sequence.job, step - sequence.zero
            if tokens == 1:
                job.first_at = at
                told.append(Told(at, job, Milestone.FIRST, 1))
            elif not tokens % self._progress_tokens:
                told.append(Told(at, job, Milestone.PROGRESS, tokens))
            if tokens < sequence.output_tokens:
                self._await_milestone(sequence, tokens)
                continue
            job.over_at = at
            told.append(Told(at, job, Milestone.DONE, tokens))
            self._stop(sequence, step)
            sequence.over, sequence.kept = True, self._keeps
            self.pool.publish(sequence.table, (job.prompt_tokens + tokens - 1) // self._block_tokens)
            done.append(sequence)
        leaving = done + self._aborted
        self._aborted = []
        if self._asynchronous:
            leaving, self._over = self._over, leaving
        self._vacate(leaving)
        return done

    def settle(self) -> None:
        """No step is in flight: the places of those that are over are free at once."""
        self._vacate(self._over)
        self._over = []

    def _vacate(self, leaving: list[Sequence]) -> None:
        for sequence in leaving:
            del self._running[sequence]
            if sequence.job.adapter:
                self.adapters.end(sequence.job.adapter)
            if not sequence.kept:
                self.pool.release(sequence.table)
            self._blocked = False

    # -- the next step ----------------------------------------------------------------------------

    def schedule(self, step: int, at: float, stamp: float) -> bool:
        """Fill the step after `step`; False where there is nothing to compute.

        `at` is now, `stamp` the instant at which vLLM would have done it.
        """
        preemptions = self.preemptions
        self._grow(step)
        chunked, budget = self._chunked, self._step_tokens_max - self._decoding
        tokens = self._next_chunk(chunked, budget, step) if chunked else 0
        self.step_decodes = self.step_outputs = self._decoding
        self.step_context = self._decoding * step + self._offsets
        self.step_prefill = 0
        if chunked and tokens:
            self._compute(chunked, tokens, step)
        if self.waiting and not self._blocked and preemptions == self.preemptions:
            self._admit(step, at, stamp, budget - tokens)
        return bool(self.step_decodes or self.step_prefill)

    def _grow(self, step: int) -> None:
        """Give a block to those that have filled their last one."""
        for sequence in self._growths.pop(step, ()):
            if sequence.growth_step != step or not self._make_room(sequence, 1, step):
                continue
            table = sequence.table
            self.pool.publish(table, table.blocks)
            self.pool.grow(table, table.blocks + 1)
            self._await_growth(sequence)

    def _next_chunk(self, sequence: Sequence, budget: int, step: int) -> int:
        """How many tokens of its prompt it computes next; none if it had to be preempted."""
        tokens = min(sequence.target - sequence.computed, budget)
        blocks = self._blocks(sequence.computed + tokens) - sequence.table.blocks
        return tokens if self._make_room(sequence, blocks, step) else 0

    def _make_room(self, sequence: Sequence, blocks: int, step: int) -> bool:
        """Preempt others until so many blocks are free; False if the sequence itself had to go."""
        while self.pool.free < blocks:
            victim = max(self._running, key=_ORDER)
            if victim.over:  # its last token is on the way: it loses nothing
                self._over.remove(victim)
                self._vacate([victim])
                continue
            self._preempt(victim, step)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, step: int) -> None:
        self._stop(sequence, step)
        del self._running[sequence]
        if sequence.job.adapter:
            self.adapters.end(sequence.job.adapter)
        self.pool.release(sequence.table)
        sequence.job.preemptions += 1
        self.preemptions += 1
        self.enqueue(sequence)

    def _admit(self, step: int, at: float, stamp: float, budget: int) -> None:
        """Let in who waits, in order, past those whose adapter is not loaded."""
        index = 0
        while index < len(self.waiting) and budget and len(self._running) < self._sequences_max:
            sequence = self.waiting[index]
            if sequence.job.adapter and not self.adapters.ready(sequence.job.adapter, at):
                index += 1
                continue
            if not self._let_in(sequence, stamp):
                break
            del self.waiting[index]
            tokens = min(sequence.target - sequence.computed, budget)
            budget -= tokens
            self._compute(sequence, tokens, step)
        self._blocked = bool(budget) and self.adapters.next_at(at) is None

    def _let_in(self, sequence: Sequence, stamp: float) -> bool:
        """Start on its text behind what is cached of it, if the whole of it has room."""
        job, table = sequence.job, sequence.table
        target = job.prompt_tokens + sequence.made_before
        hits = self.pool.cached(table.keys, (target - 1) // self._block_tokens)
        if not self.pool.has_room(table.keys, hits, self._blocks(target)):
            return False
        self.pool.share(table, hits)
        self._running[sequence] = None
        if job.adapter:
            self.adapters.begin(job.adapter)
        cached_tokens = hits * self._block_tokens
        sequence.target, sequence.computed = target, cached_tokens
        self.queried_tokens += target
        self.hit_tokens += cached_tokens
        if math.isnan(job.scheduled_at):
            job.scheduled_at, job.cached_tokens = stamp, cached_tokens
            self.prompt_tokens += job.prompt_tokens
            sequence.computed = max(cached_tokens, min(job.remote_tokens, target - 1))
        return True

    def _compute(self, sequence: Sequence, tokens: int, step: int) -> None:
        """Compute a chunk of its text in the step after `step`; behind the last chunk comes a token."""
        sequence.computed += tokens
        self.step_prefill += tokens
        self.pool.grow(sequence.table, self._blocks(sequence.computed))
        self.pool.publish(sequence.table, sequence.computed // self._block_tokens)
        self._chunked = sequence if sequence.computed < sequence.target else None
        if self._chunked is None:
            self._decode(sequence, step)

    def _decode(self, sequence: Sequence, step: int) -> None:
        sequence.decoding = True
        sequence.zero = step - sequence.made_before
        self._decoding += 1
        self._offsets += sequence.job.prompt_tokens - sequence.zero
        self.step_outputs += 1
        self._await_milestone(sequence, sequence.made_before)
        self._await_growth(sequence)

    def _stop(self, sequence: Sequence, step: int) -> None:
        """It computes nothing any more."""
        if sequence.decoding:
            self._decoding -= 1
            self._offsets -= sequence.job.prompt_tokens - sequence.zero
        elif sequence is self._chunked:
            self._chunked = None
        sequence.made_before = sequence.made(step)
        sequence.decoding = False
        sequence.milestone_step = sequence.growth_step = NOT_DUE

    def _await_milestone(self, sequence: Sequence, tokens: int) -> None:
        """Note the step that ends with the next milestone after so many tokens."""
        multiple = tokens + self._progress_tokens - tokens % self._progress_tokens
        due = sequence.zero + (min(multiple, sequence.output_tokens) if tokens else 1)
        sequence.milestone_step = due
        self._milestones.setdefault(due, []).append(sequence)

    def _await_growth(self, sequence: Sequence) -> None:
        """Note the step after which all its blocks are full."""
        room = sequence.table.blocks * self._block_tokens
        due = sequence.growth_step = room + 1 - sequence.job.prompt_tokens + sequence.zero
        self._growths.setdefault(due, []).append(sequence)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)
