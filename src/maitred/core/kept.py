"""How much of what an endpoint is thought to have cached is there, learned from what it reports.

The approximate index cannot know what an engine has let go of: others may use the engine too, its cache may
be smaller than it tells, or off. So its predictions are cut to the part that was there lately. Homes go by
the index itself: what is lost is read again best where it was.
"""

from __future__ import annotations

from maitred.core.words import Leg, Usage

FADE = 0.99
"""What counts of the requests before, at each one: about the last hundred count."""
THOUGHT_MIN = 8192.0
"""Tokens that have to be thought cached before it is believed how much of them was there."""


def learn(leg: Leg, usage: Usage) -> None:
    """An answer is over of which something was thought cached.

    An engine that has never reported any may just not report.
    """
    endpoint, thought, found = leg.endpoint, leg.thought, usage.cached_tokens
    if found > thought:  # noqa: PLR1730 - a call takes ten times as long
        found = thought
    endpoint.judged += 1
    endpoint.expected_tokens += thought
    endpoint.found_tokens += found
    if leg.exact:
        endpoint.told += 1
    elif leg.incarnation == endpoint.incarnation:
        endpoint.thought = all_thought = FADE * endpoint.thought + thought
        endpoint.found = all_found = FADE * endpoint.found + found
        if all_thought >= THOUGHT_MIN and all_found > 0.0:
            endpoint.kept = all_found / all_thought
