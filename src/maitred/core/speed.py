"""How fast each endpoint reads prompts and writes answers, learned from finished streams.

The time to a first token is a line of the tokens that had to be read until then: those ahead of the prompt
and what of it was not cached. The time of each token after it is a line of the streams that ran beside.

Readings are noisy, and noise must not route. So endpoints that read about alike share one speed, the mean of
theirs; only real differences show, as those of an H100 beside an L40S. One of which little is known yet is
thought to be as its peers are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from maitred.core.words import SPEED_GUESS, Endpoint, EndpointState, Leg, Usage, reads_guess, writes_guess

READY = EndpointState.READY
TOLD_MIN = 10
"""Streams before an endpoint's own pace is gone by: a few short ones say little."""
SHARE_EVERY = 16
"""Speeds are shared anew after so many streams of an endpoint, and after each of its first few."""
ALIKE = 1.2
"""Two endpoints are alike where a token takes no more than so many times as long at one as at the other."""
SLOW = 4.0
"""An endpoint that reads, or writes, a token in so many times its fastest peer's time is an outlier."""
PACE_WEIGHT = 0.1


def ttft_s(endpoint: Endpoint, tokens: float) -> float:
    """How long a first token takes before which so many have to be read, those of others included."""
    return endpoint.reads.at(tokens)


def tpot_s(endpoint: Endpoint, running: float) -> float:
    """How long each later token takes while so many streams run."""
    return endpoint.writes.at(running)


def forget(endpoint: Endpoint) -> None:
    """Another engine may be there now."""
    endpoint.reads, endpoint.writes, endpoint.speed = reads_guess(), writes_guess(), SPEED_GUESS
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
            fresh = max(0, usage.prompt_tokens - usage.cached_tokens)
        reads.learn(leg.ahead + fresh, took_s)
        if reads.told <= TOLD_MIN or reads.told % SHARE_EVERY == 0:
            share(peers)
    if usage.output_tokens > 1 and wrote_s > 0:
        pace_s = wrote_s / (usage.output_tokens - 1)
        endpoint.writes.learn((endpoint.busy_s - leg.busy_s) / wrote_s, pace_s)
        endpoint.paced += 1
        weight = max(PACE_WEIGHT, 1 / endpoint.paced)
        endpoint.tpot_s = endpoint.tpot_s ** (1 - weight) * pace_s**weight  # no one stream decides
    endpoint.slowness = _slowness(endpoint, peers)


def share(endpoints: Iterable[Endpoint]) -> None:
    """Give those that read alike one speed."""
    there = sorted((each for each in endpoints if each.state is READY), key=_slope)
    known = [each for each in there if each.reads.told >= TOLD_MIN]
    young = [each for each in there if each.reads.told < TOLD_MIN]
    _settle(young, known or young)
    alike: list[Endpoint] = []
    for each in known:
        if alike and each.reads.slope > ALIKE * alike[-1].reads.slope:
            _settle(alike, alike)
            alike = []
        alike.append(each)
    _settle(alike, alike)


def _slope(endpoint: Endpoint) -> float:
    return endpoint.reads.slope


def _settle(endpoints: Iterable[Endpoint], like: Iterable[Endpoint]) -> None:
    """Give endpoints the mean speed of these, in which who has told more counts more."""
    told = sum(min(each.reads.told, TOLD_MIN) for each in like)
    if told:
        slope = sum(min(each.reads.told, TOLD_MIN) * math.log(each.reads.slope) for each in like) / told
        for each in endpoints:
            each.speed = math.exp(-slope)


def _slowness(endpoint: Endpoint, peers: Iterable[Endpoint]) -> float:
    """How many times as long as its fastest peer it takes, to read or to write; 1 unless it is an outlier."""
    fastest, paced_s = endpoint.speed, math.inf
    for peer in peers:
        if peer.state is READY:
            fastest = max(fastest, peer.speed)
            if peer.paced >= TOLD_MIN and peer.tpot_s < paced_s:
                paced_s = peer.tpot_s
    slowness = fastest / endpoint.speed
    if endpoint.paced >= TOLD_MIN and paced_s:
        slowness = max(slowness, endpoint.tpot_s / paced_s)
    return slowness if slowness > SLOW else 1.0
