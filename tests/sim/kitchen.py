"""Small engines for tests: round figures, a driver, a listener, and what must be true at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from maitred.sim.engine import Engine
from maitred.sim.job import Job, Told, block_keys
from maitred.sim.profile import Profile, StepTime

PROFILE = Profile(
    name="small",
    model="m",
    gpu="g",
    step=StepTime(base_s=1.0, per_sequence_s=0.0, per_token_s=0.0, prefill_tokens_per_s=100.0),
    kv_blocks=100,
    block_tokens=4,
    sequences_max=8,
    step_tokens_max=100,
    asynchronous=False,
)
"""A step takes a second, and one more for every 100 tokens of prompts."""


class Mirror:
    """A listener: every key that is cached, with the one before it in its chain."""

    def __init__(self) -> None:
        self.keys: dict[int, int | None] = {}

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:
        for key in keys:
            self.keys[key] = parent
            parent = key

    def removed(self, keys: Sequence[int]) -> None:
        for key in keys:
            del self.keys[key]

    def cleared(self) -> None:
        self.keys.clear()


def profile(**changes: Any) -> Profile:
    return msgspec.structs.replace(PROFILE, **changes)


def job(number: int = 1, prompt: int = 8, output: int = 4, text: int | None = None, **more: Any) -> Job:
    """A job; those of one `text` have the same prompt, and answers of their own."""
    segments = ((text if text is not None else 1000 + number, prompt), (2000 + number, output))
    return Job(number, prompt, output, block_keys(segments, PROFILE.block_tokens), **more)


def serve(engine: Engine, until: float = float("inf")) -> list[Told]:
    """Advance from instant to instant, checking the books at each."""
    told = []
    while engine.next_at is not None and engine.next_at <= until:
        told += engine.advance(engine.next_at)
        check(engine)
    return told


def serve_all(engine: Engine, arrivals: Iterable[tuple[float, Job]]) -> list[Told]:
    """Submit jobs at their instants, those of one instant together, and serve them to the end."""
    told: list[Told] = []
    last = -1.0
    for at, each in arrivals:
        if at > last:
            told += serve(engine, at)
        engine.submit(each, at)
        last = at
    return told + serve(engine)


def check(engine: Engine) -> None:
    """No block is lost or held twice, users are counted rightly, and no limit is passed."""
    limits = engine.profile
    for rank in engine._ranks:
        kept = [each for each in engine._kept.values() if each.rank is rank]
        tables = [each.table for each in dict.fromkeys([*rank._running, *kept])]
        users = Counter(key for table in tables for key in table.shared)
        pool = rank.pool
        assert users == Counter({key: count for key, count in pool._users.items() if count})
        assert set(pool._idle) == {key for key, count in pool._users.items() if not count}
        private = sum(table.blocks - len(table.shared) for table in tables)
        assert private + len(users) + pool.free == limits.kv_blocks
        for each in (each for each in rank._running if each.decoding):
            tokens = each.job.prompt_tokens + each.made(engine.steps)
            assert each.table.blocks == -(-tokens // limits.block_tokens)
        assert len(rank._running) <= limits.sequences_max
        assert rank.step_decodes + rank.step_prefill <= limits.step_tokens_max
