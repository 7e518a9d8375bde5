"""What an engine model is given and what it tells: one request at one engine, and its milestones.

An engine model computes no text. A prompt is known by its length and by the keys of its blocks, so that
what two prompts share is shared in the prefix cache as it would be in an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from maitred.core.words import Leg

Segments = tuple[tuple[int, int], ...]
"""A text as pieces (id, tokens): equal ids mean equal tokens from the piece's start on."""


class Role(IntEnum):
    """What an engine does: prompts, answers, or both."""

    BOTH = 0
    PREFILL = 1
    DECODE = 2


class Job(Struct, eq=False):
    """One request at one engine.

    It makes exactly `output_tokens` (at least 1). `keys` are the chained keys of the full blocks of prompt
    and answer together, by the engine's block size; the last ones come into the cache as the answer grows.
    `priority`: lower is served first, where the engine schedules by it. `adapter` is the LoRA adapter, ""
    for none. `remote_tokens`: so many of the prompt's tokens come from another engine's cache. `leg` is for
    whoever submitted it.

    The engine writes: `queued_at` (it saw the job), `scheduled_at` (first scheduled), `first_at` (the first
    token was out), `over_at`; `cached_tokens` of the prompt, found in the cache; `preemptions`. Instants are
    in seconds, NaN until they have come.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int] = ()
    priority: int = 0
    adapter: str = ""
    remote_tokens: int = 0
    leg: Leg | None = None
    queued_at: float = float("nan")
    scheduled_at: float = float("nan")
    first_at: float = float("nan")
    over_at: float = float("nan")
    cached_tokens: int = 0
    preemptions: int = 0


class Milestone(IntEnum):
    """What an engine tells of a job."""

    FIRST = 0
    """Its first token is out."""
    PROGRESS = 1
    """Another multiple of `progress_tokens` is out."""
    DONE = 2
    """Its last token is out (for a prefill engine: its prompt is in the cache)."""


FIRST, PROGRESS, DONE = Milestone


class Told(Struct, frozen=True):
    """One milestone of one job; `tokens` are out by now."""

    at: float
    job: Job
    milestone: Milestone
    tokens: int


class Chain:
    """The chained keys of a text's full blocks: equal exactly where all the text up to there is equal.

    `root` tells texts apart that must not share (another adapter, another tenant where caches are isolated).
    """

    __slots__ = ("_before", "_block_tokens", "_parts", "_room", "keys")

    def __init__(self, block_tokens: int, root: int = 0) -> None:
        self.keys: list[int] = []
        self._block_tokens = self._room = block_tokens
        self._before = root
        self._parts: tuple[tuple[int, int, int], ...] = ()

    def add(self, segment: int, tokens: int) -> None:
        """Append a piece of text."""
        start = 0
        while tokens - start >= self._room:
            # Hashes of ints do not depend on the process.
            self._before = hash((self._before, *self._parts, segment, start, self._room))
            self.keys.append(self._before)
            start += self._room
            self._parts, self._room = (), self._block_tokens
        if start < tokens:
            self._parts = (*self._parts, (segment, start, tokens - start))
            self._room -= tokens - start

    def copy(self) -> Chain:
        """The same text, to be continued differently."""
        other = Chain(self._block_tokens)
        other.keys = self.keys.copy()
        other._before, other._parts, other._room = self._before, self._parts, self._room
        return other


def block_keys(segments: Segments, block_tokens: int, root: int = 0) -> list[int]:
    """The keys of a whole text."""
    chain = Chain(block_tokens, root)
    for segment, tokens in segments:
        chain.add(segment, tokens)
    return chain.keys
