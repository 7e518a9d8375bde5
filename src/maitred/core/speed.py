"""How fast each endpoint reads prompts and writes answers, learned from finished streams.

The time to a first token is a line of the tokens that had to be read until then: those ahead of the prompt
and what of it was not cached. The time of each token after it is a line of the streams that ran beside.

Readings are noisy, and noise must not route. So endpoints that read about alike share one speed, the mean of
theirs; only real differences show, as those of an H100 beside an L40S. Of one of which little is known yet
what was guessed counts, as far as it was right of its peers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from maitred.core.words import Endpoint, EndpointState, Leg, Usage, reads_guess, writes_guess

READY = EndpointState.READY
TOLD_MIN = 10
"""Streams before an endpoint's own pace is gone by: a few short ones say little."""
SHARE_EVERY = 16
"""Speeds are shared anew after so many streams of an endpoint, and after each of its first few."""
ALIKE = 2.0
"""Two endpoints are alike where a token takes no more than so many times as long at one as at the other.

What is learned of engines that are the same differs nearly as much where they have little to read but much to
wait for, as when nearly all of a prompt is cached and the cache is full. So those between link a whole pool.
"""
SLOW = 4.0
"""An endpoint that reads, or writes, a token in so many times its fastest peer's time is an outlier."""
PACE_WEIGHT = 0.1


def ttft_s(endpoint: Endpoint, tokens: float) -> float:
    """How long a first token takes before which so many have to be read, those of others included."""
    return endpoint.reads.at(tokens)


def tpot_s(endpoint: Endpoint, running: float) -> float:
    """How long each later token takes while so many streams run."""
    return endpoint.writes.at(running)


def expect(endpoint: Endpoint, speed: float) -> None:
    """Think that it reads so many tokens a second, until it has shown otherwise."""
    endpoint.guess = speed
    if not endpoint.reads.told:
        endpoint.reads, endpoint.speed = reads_guess(speed), speed


def forget(endpoint: Endpoint) -> None:
    """Another engine may be there now."""
    endpoint.reads, endpoint.writes, endpoint.speed = (
        reads_guess(endpoint.guess),
        writes_guess(),
        endpoint.guess,
    )
    endpoint.tpot_s, endpoint.paced, endpoint.slowness = 0.0, 0, 1.0


def ran(endpoint: Endpoint, now: float) -> None:
    """As many streams as run now have run until now."""
    endpoint.busy_s += endpoint.running * (now - endpoint.busy_at)
    endpoint.busy_at = now


def learn(leg: Leg, usage: Usage, peers: Sequence[Endpoint], now: float) -> None:
    """A stream has ended."""
    endpoint, reads, fresh = leg.endpoint, leg.endpoint.reads, leg.fresh
    if not leg.answered_at or leg.incarnation != endpoint.incarnation:
        return
    took_s, wrote_s = leg.answered_at - leg.seated_at, now - leg.answered_at
    if leg.sent_at and took_s > 0:
        if usage.exact and usage.prompt_tokens:
            cached = usage.cached_tokens
            fresh = usage.prompt_tokens - cached if cached < usage.prompt_tokens else 0
        reads.learn(leg.ahead + fresh, took_s)
        if reads.told <= TOLD_MIN or reads.told % SHARE_EVERY == 0:
            share(peers)
    if usage.output_tokens > 1 and wrote_s > 0:
        pace_s = wrote_s / (usage.output_tokens - 1)
        endpoint.writes.learn((endpoint.busy_s - leg.busy_s) / wrote_s, pace_s)
        endpoint.paced = paced = endpoint.paced + 1
        weight = 1 / paced if PACE_WEIGHT * paced < 1 else PACE_WEIGHT
        endpoint.tpot_s = endpoint.tpot_s ** (1 - weight) * pace_s**weight  # no one stream decides
    endpoint.slowness = _slowness(endpoint, peers)


def share(endpoints: Iterable[Endpoint]) -> None:
    """Give those that read alike one speed, and others some of their peers' until they have told enough."""
    there = sorted((each for each in endpoints if each.state is READY), key=_slope)
    known = [each for each in there if each.reads.told >= TOLD_MIN]
    better = _better(known or there)
    for each in there:
        own = min(1.0, each.reads.told / TOLD_MIN)
        each.speed = (better * each.guess) ** (1 - own) / each.reads.slope**own
    alike: list[Endpoint] = []
    for each in known:
        if alike and each.reads.slope > ALIKE * alike[-1].reads.slope:
            _settle(alike)
            alike = []
        alike.append(each)
    _settle(alike)


def _slope(endpoint: Endpoint) -> float:
    return endpoint.reads.slope


def _settle(alike: Sequence[Endpoint]) -> None:
    mean = math.exp(-sum(math.log(each.reads.slope) for each in alike) / (len(alike) or 1))
    for each in alike:
        each.speed = mean


def _better(endpoints: Iterable[Endpoint]) -> float:
    """How many times faster they are than was thought, in the mean; of who has told little it counts less."""
    told = whole = 0.0
    for each in endpoints:
        weight = min(each.reads.told, TOLD_MIN)
        told += weight
        whole -= weight * math.log(each.reads.slope * each.guess)
    return math.exp(whole / told) if told else 1.0


def _slowness(endpoint: Endpoint, peers: Iterable[Endpoint]) -> float:
    """How many times as long as its fastest peer it takes, to read or to write; 1 unless it is an outlier."""
    fastest, paced_s = 0.0, math.inf
    for peer in peers:
        if peer.state is READY:
            if peer.reads.told >= TOLD_MIN and peer.speed > fastest:
                fastest = peer.speed
            if peer.paced >= TOLD_MIN and peer.tpot_s < paced_s:
                paced_s = peer.tpot_s
    slowness = (
        fastest * endpoint.reads.slope if endpoint.reads.told >= TOLD_MIN else 1.0
    )  # its own, not shared
    writes = endpoint.tpot_s / paced_s if endpoint.paced >= TOLD_MIN else 1.0
    if writes > slowness:  # noqa: PLR1730 - a call takes ten times as long
        slowness = writes
    return slowness if slowness > SLOW else 1.0
