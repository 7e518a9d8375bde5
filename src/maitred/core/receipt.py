"""Why a request went where it went, in names and numbers: nothing of its content, and nothing that changes.

A receipt is made only of a request that asks for one (`core/explain.py`); the header and the words for people
are made of it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

CANDIDATES_MAX = 32
"""Endpoints that a receipt tells of, the one that was chosen and the home first."""


class Candidate(Struct, frozen=True):
    """One endpoint as the policy saw it.

    `why_not` is "" where it might have been chosen; else "full", "failed" (by this request, before),
    "adapter", "zone" (it is in another), "kept" (for one that is next and fits nowhere), its state, or the
    filter that left it out.
    `value` is what the policy compares, None where it tells nothing; `parts` are what that is the sum of.
    `unread` are the tokens of prompts that are to be read there, `begun` the beginnings that live there.
    """

    endpoint: str
    why_not: str = ""
    value: float | None = None
    parts: Mapping[str, float] = {}
    cached: int = 0
    unread: int = 0
    running: int = 0
    begun: int = 0


class Receipt(Struct, frozen=True):
    """One decision. `endpoint` was chosen by `policy`; `home` is where the most of the prompt is.

    `measure` says what the policy compares: "cost" (seconds), "requests" or "turn", of which the least is
    best, "score", of which the most is, or "" where it does not tell. `index` is how it was known what is
    cached, "approximate", "precise" or "none", and `index_why` the reason. `left_off` counts the candidates
    beyond those told. With the policy "exploration" it was not the best, but tried.
    """

    policy: str
    measure: str
    endpoint: str
    home: str
    index: str
    index_why: str
    attempt: int
    wait_s: float
    prompt_tokens: int
    candidates: tuple[Candidate, ...]
    left_off: int = 0
