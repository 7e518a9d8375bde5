"""The default policy: seat a regular at the table that is still laid for him, unless that takes longer.

For each endpoint it is predicted how long until the first token: what is unread there and what of the prompt
is not cached, at the speed at which the endpoint reads. To that is added what a seat costs others:

- *A miss* is dear (MISS): what is read a second time takes the place of what others would have found. So a
  request goes home, to where the most of its prompt is, unless so much more waits there.
- *A running stream* slows a prompt a little (STREAM_TOKENS), and stands still while one is read, which shows
  the more the shorter answers are (WAIT_TOKENS).
- *A new beginning* is dealt out, if most prompts are found in caches: to where the fewest live, of equals to
  whom the last was dealt longest ago, unless another has so much less to do (BEGUN_TOKENS). Each brings many
  others after it, and who has more of them than its peers is the one that all wait for.
- *A crowded home* (CROWDED) is left where what its streams above that have still to write makes up for the
  miss. From then on two have this beginning, and those who ask for it go where fewer streams run.

A home that is full is waited for as long as a miss would cost, and never longer than HOLD_MAX_S.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from maitred.core.candidates import Value, candidates
from maitred.core.filters import able
from maitred.core.receipt import Candidate
from maitred.core.saturation import SATURATION, unread
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY
NEVER = float("inf")
MISS = 8.0
"""What a token costs that was cached elsewhere, beside reading it, in times of that."""
STREAM_TOKENS = 400.0
"""A running stream counts as so many tokens to be read."""
WAIT_TOKENS = 10.0
"""Streams stand still while a prompt is read. A wait for a first token is taken to be as bad as a tenth of
it at each later one, so theirs counts by 10 over the tokens of an answer, and in full at most.
"""
BEGUN_TOKENS = 32_000
"""So many tokens a new beginning counts at all endpoints but the one whose turn it is."""
SHARED = 0.5
"""Where less than this part of prompts is found, it is nobody's turn."""
CROWDED, CROWDED_LEAST = 1.05, 12
"""A home is crowded with so many times the streams that are its fair part, by its speed, and so many more."""
WRITE_TOKENS = 12
"""Each stream above that counts by its answer: a token of it as so many to be read. So all endpoints are done
with what they have at about the same time, and few beginnings are cached twice.
"""
ROUNDING_S = 1e-6
"""A cost may differ by this from the sum of its parts."""
HOLD_MAX_S = 4.0
"""The longest wait for a home that is full."""
NEW = 10
"""A prompt of which nobody has one token of so many is a new beginning."""


def worth_until(ticket: Ticket, home: Endpoint) -> float:
    """The instant until which a full home is worth the wait."""
    return ticket.arrival + min(HOLD_MAX_S, (1 + MISS) * ticket.cached.get(home.name, 0) / home.speed)


def homes(
    endpoints: Collection[Endpoint],
    ticket: Ticket,
    limits: PoolSettings,
    now: float,
    costs: dict[str, float] | None = None,
    crowds: Mapping[str, float] | None = None,
) -> Endpoint | None:
    """The ready endpoint of the least cost that has room.

    None: nobody has room, or a full home is worth the wait. `costs` is told what each costs, for receipts,
    and then it is nobody's turn. `crowds`: what crowded endpoints cost more, in tokens to be read, where one
    of them would be taken.
    """
    if ticket.excluded or ticket.request.adapter:
        endpoints = able(endpoints, ticket)
    full = SATURATION[limits.saturation]
    cached, prompt, home = ticket.cached, ticket.prompt_tokens, ticket.home
    most = prompt - ticket.fresh if cached else 0  # that anybody has
    stream = _weight(ticket)
    alone = prompt + stream  # tokens to be read where nobody else is
    if not home and costs is None and (turn := _turn(endpoints, ticket, stream, limits, now)) is not None:
        return turn
    best: Endpoint | None = None
    held: Endpoint | None = None
    least = waiting = NEVER
    streams, paces = 0, 0.0
    for endpoint in endpoints:
        if endpoint.state is not READY:
            continue
        running, missed = endpoint.running, most
        pace = endpoint.speed * endpoint.share / endpoint.slowness  # `_pace`, without a call
        streams += running
        paces += pace
        tokens = alone + stream * running
        if cached and (had := cached.get(endpoint.name)) is not None:
            tokens -= had * endpoint.kept
            missed -= had
        if endpoint.unread:
            tokens += unread(endpoint, now)
        if crowds is not None:
            tokens += crowds.get(endpoint.name, 0.0)
        cost = tokens / pace + MISS * missed / endpoint.speed
        if costs is not None:
            costs[endpoint.name] = cost
        if cost >= least and (cost > least or (best is not None and endpoint.turn >= best.turn)):
            continue  # full or not
        if not full(endpoint, ticket, limits, now):
            best, least = endpoint, cost
        elif endpoint.name == home and now < worth_until(ticket, endpoint):
            held, waiting = endpoint, cost
    place = best
    if waiting < least:
        best, place = None, held
    if (
        home and crowds is None and place is not None
        and place.running > CROWDED_LEAST  # it seldom does
        and place.running > CROWDED_LEAST + CROWDED * streams / paces * _pace(place)
    ):  # fmt: skip
        crowds = _crowds(endpoints, ticket, CROWDED * streams / paces)
        return homes(endpoints, ticket, limits, now, costs, crowds)
    return best


def _crowds(endpoints: Iterable[Endpoint], ticket: Ticket, part: float) -> dict[str, float]:
    """What the streams that are too many have to write, in tokens to be read, by the names of the crowded.

    `part`: streams that are not too many, for each token a second.
    """
    answer = WRITE_TOKENS * ticket.expected
    return {
        each.name: answer * over
        for each in endpoints
        if each.state is READY and (over := each.running - CROWDED_LEAST - part * _pace(each)) > 0
    }


def _weight(ticket: Ticket) -> float:
    """As how many tokens to be read each running stream counts for this ticket."""
    answer = ticket.expected  # theirs are much the same
    if not answer:
        return STREAM_TOKENS
    return STREAM_TOKENS + ticket.fresh * (WAIT_TOKENS / answer if answer > WAIT_TOKENS else 1.0)


def _turn(
    endpoints: Iterable[Endpoint], ticket: Ticket, stream: float, limits: PoolSettings, now: float
) -> Endpoint | None:
    """Whose turn it is to be dealt a new beginning; None if it brings no others, or nobody has room.

    Passed over is who costs more than another with BEGUN_TOKENS on top. Who takes so many times as long for a
    token has a turn so many times more seldom.
    """
    if ticket.reuse < SHARED or not (ticket.request.prefix or ticket.request.blocks):
        return None
    full = SATURATION[limits.saturation]
    cached, alone = ticket.cached, ticket.prompt_tokens + stream
    most = ticket.prompt_tokens - ticket.fresh if cached else 0  # that anybody has
    room = list[tuple[float, float, Endpoint]]()
    bound = NEVER
    quickest = 0.0
    for endpoint in endpoints:
        if endpoint.state is not READY or full(endpoint, ticket, limits, now):
            continue
        pace = endpoint.speed * endpoint.share / endpoint.slowness
        tokens = alone + stream * endpoint.running
        if endpoint.unread:
            tokens += unread(endpoint, now)
        if cached:
            had = cached.get(endpoint.name, 0)
            tokens += MISS * (most - had) * pace / endpoint.speed - had * endpoint.kept
        room.append((tokens / pace, pace, endpoint))
        bound = min(bound, (tokens + BEGUN_TOKENS) / pace)
        if pace > quickest:  # noqa: PLR1730 - a call takes ten times as long
            quickest = pace
    best: Endpoint | None = None
    fewest = NEVER
    for cost, pace, endpoint in room:
        turns = endpoint.begun + 1
        if pace < quickest:
            turns *= round(quickest / pace)
        if cost <= bound and (
            turns < fewest or (turns == fewest and best is not None and endpoint.cold < best.cold)
        ):
            best, fewest = endpoint, turns
    return best


def _pace(endpoint: Endpoint) -> float:
    """So many tokens it reads a second, less while it starts, or is an outlier."""
    return endpoint.speed * endpoint.share / endpoint.slowness


def homes_seen(
    endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> list[Candidate]:
    """What each endpoint costs, in seconds, and of what that is made."""
    costs: dict[str, float] = {}
    homes(endpoints, ticket, limits, now, costs)
    stream = _weight(ticket)
    turn = None if ticket.home else _turn(able(endpoints, ticket), ticket, stream, limits, now)
    most = ticket.prompt_tokens - ticket.fresh if ticket.cached else 0

    def told(endpoint: Endpoint) -> Value:
        token_s, prompt = 1 / _pace(endpoint), ticket.prompt_tokens
        cached = ticket.cached.get(endpoint.name, 0)
        parts = {
            "read_s": (prompt - cached * endpoint.kept) * token_s,
            "unread_s": unread(endpoint, now) * token_s,
            "streams_s": stream * (endpoint.running + 1) * token_s,
            "begun_s": 0.0 if turn is None or endpoint is turn else BEGUN_TOKENS * token_s,
            "miss_s": MISS * (most - cached) / endpoint.speed,
        }
        cost = costs[endpoint.name] + parts["begun_s"]
        if (left := cost - sum(parts.values())) > ROUNDING_S:
            parts["crowd_s"] = left
        return cost, {name: part for name, part in parts.items() if part}

    return candidates(endpoints, ticket, limits, now, told)
