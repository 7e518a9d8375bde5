"""What is left of a client's limits, as the header lines that its own library reads.

OpenAI's clients read durations (`6m0s`), Anthropic's instants (`2026-11-30T12:00:00Z`). Only limits that are
set are told of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from math import ceil

from maitred.core.buckets import SLACK_S, Level
from maitred.core.holders import Holder, tightest
from maitred.core.limits import Levels, Limits
from maitred.core.words import Api

KINDS = (b"requests", b"tokens", b"input-tokens", b"output-tokens")
PARTS = (b"limit", b"remaining", b"reset")
NAMES = frozenset(
    [b"x-ratelimit-%b-%b" % names for names in product(PARTS, KINDS[:2])]
    + [b"anthropic-ratelimit-%b-%b" % names for names in product(KINDS, PARTS)]
)
"""All of these headers: an engine's own would be about limits that its client does not have."""

_REQUESTS, _TOKENS = (
    b"x-ratelimit-limit-%b: %%d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%b\r\n"
    % (kind, kind, kind)
    for kind in KINDS[:2]
)


def told(holders: Sequence[Holder], api: Api, now: float, wall: Callable[[], float]) -> bytes | None:
    """The header lines of what these have left; None where no rate is limited.

    Most have all they may take, unless they come thick and fast: then their limits alone say it.
    """
    if len(holders) == 1 and not api.anthropic:
        holder = holders[0]
        for bucket in holder.buckets:
            if bucket.full_at > now:
                break
        else:
            return _of_full(holder.limits)
    levels = tightest(holders, now)
    return lines(levels, api, wall()) if levels is not None else None


@lru_cache(maxsize=1024)
def _of_full(limits: Limits) -> bytes | None:
    """What OpenAI's clients read of somebody who has all that his limits let him take."""
    levels = tightest([Holder.of(limits)], 0.0)
    return _openai(levels) if levels is not None else None


def lines(levels: Levels, api: Api, unix_s: float) -> bytes:
    """The header lines, each with its end. `unix_s` is the wall time."""
    return _anthropic(levels, unix_s) if api.anthropic else _openai(levels)


def duration(seconds: float) -> bytes:
    """A duration as OpenAI writes it, rounded up: `120ms`, `1s`, `6m0s`, `1h0m0s`."""
    if seconds <= SLACK_S:
        return b"0ms"
    ms = ceil((seconds - SLACK_S) * 1000)
    return _written(ms if ms < 1000 else 1000 * ceil(ms / 1000))


@lru_cache(maxsize=4096)
def _written(ms: int) -> bytes:
    """So many milliseconds, from a second on whole seconds, as OpenAI writes them."""
    if ms < 1000:
        return b"%dms" % ms
    minutes, whole = divmod(ms // 1000, 60)
    if not minutes:
        return b"%ds" % whole
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, whole) if hours else b"%dm%ds" % (minutes, whole)


def _openai(levels: Levels) -> bytes:
    """Its headers know one kind of tokens: that of which least is left."""
    requests, tokens, said = levels.requests, levels.tokens, b""
    for kind in (levels.prompt_tokens, levels.output_tokens):
        if kind is not None and (tokens is None or kind.remaining < tokens.remaining):
            tokens = kind
    if requests is not None:
        said = _REQUESTS % (requests.limit, requests.remaining, duration(requests.reset_s))
    if tokens is not None:
        said += _TOKENS % (tokens.limit, tokens.remaining, duration(tokens.reset_s))
    return said


def _anthropic(levels: Levels, unix_s: float) -> bytes:
    return b"".join(
        [
            _anthropic_lines(b"requests", levels.requests, unix_s),
            _anthropic_lines(b"tokens", levels.tokens, unix_s),
            _anthropic_lines(b"input-tokens", levels.prompt_tokens, unix_s),
            _anthropic_lines(b"output-tokens", levels.output_tokens, unix_s),
        ]
    )


def _anthropic_lines(what: bytes, level: Level | None, unix_s: float) -> bytes:
    if level is None:
        return b""
    full = datetime.fromtimestamp(ceil(unix_s + level.reset_s - SLACK_S), UTC)
    return (
        b"anthropic-ratelimit-%b-limit: %d\r\n"
        b"anthropic-ratelimit-%b-remaining: %d\r\n"
        b"anthropic-ratelimit-%b-reset: %b\r\n"
    ) % (what, level.limit, what, level.remaining, what, full.strftime("%Y-%m-%dT%H:%M:%SZ").encode())
