"""Who is limited: the state of one tenant, key or model, and the words in which it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from maitred.core.buckets import OUTPUT_TOKENS, PROMPT_TOKENS, REQUESTS, SLACK_S, TOKENS, Bucket, Level
from maitred.core.limits import MILLION, UNLIMITED, Levels, Limits, Price, Spent
from maitred.core.mutable import mutable
from maitred.core.outcome import Outcome, Refusal

SETTLES_S = 2.0
"""When to ask again for what is only set aside: answers end all the time."""

_RATES = (
    ("requests_per_min", REQUESTS),
    ("tokens_per_min", TOKENS),
    ("prompt_tokens_per_min", PROMPT_TOKENS),
    ("output_tokens_per_min", OUTPUT_TOKENS),
)
_KINDS = ("requests", "tokens", "prompt tokens", "output tokens")
_BUDGETS = (
    ("tokens_per_day", False),
    ("tokens_per_month", False),
    ("money_per_day", True),
    ("money_per_month", True),
)


class Holder:
    """One tenant, key or model: its buckets, what it runs, what it has spent and what is set aside.

    `most`: what it may run at once, infinite for as much as it likes.
    """

    __slots__ = (
        "buckets",
        "budgets",
        "limits",
        "most",
        "name",
        "reserved_money",
        "reserved_tokens",
        "running",
        "spent",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = UNLIMITED
        self.most: float = math.inf
        self.buckets: list[Bucket] = []
        self.budgets: list[tuple[str, int, bool]] = []  # field of Spent, its bound, whether it is money
        self.running = 0
        self.reserved_tokens = self.reserved_money = 0
        self.spent = Spent()

    @classmethod
    def of(cls, limits: Limits) -> Holder:
        """Somebody without a name who has taken nothing of these limits at instant 0."""
        holder = cls("")
        holder.adopt(limits, 0.0)
        return holder

    @property
    def kind(self) -> str:
        """Tenant, key or model; a guest is a tenant like any other."""
        kind = self.name.partition(" ")[0]
        return "tenant" if kind == "guest" else kind

    @property
    def label(self) -> str:
        """How refusals speak of it: by its kind alone."""
        return f"this {self.kind}"

    def adopt(self, limits: Limits, now: float) -> bool:
        """Live by these limits from now on; a bucket keeps its level as far as it fits.

        Whether it lived by others before.
        """
        known_by, self.limits = self.limits, limits
        if known_by == limits:  # the same, read anew: nothing may change, not even by rounding
            return False
        self.most = limits.concurrent if limits.concurrent > 0 else math.inf
        before, self.buckets = {bucket.kind: bucket for bucket in self.buckets}, []
        for field, kind in _RATES:
            if bound := getattr(limits, field):
                known = before.get(kind)
                self.buckets.append(known.resized(bound, now) if known else Bucket(kind, bound, now))
        self.budgets = [
            (field, bound, money) for field, money in _BUDGETS if (bound := getattr(limits, field))
        ]
        return True

    def over_budget(
        self, tokens: int, money: int, *, spent_alone: bool = False
    ) -> tuple[str, int, int] | None:
        """The first budget that so much more would pass, with its bound and what is left of it.

        `spent_alone`: as if nothing were set aside for what runs.
        """
        for field, bound, is_money in self.budgets:
            reserved, amount = (self.reserved_money, money) if is_money else (self.reserved_tokens, tokens)
            left = bound - getattr(self.spent, field) - (0 if spent_alone else reserved)
            if amount > left or left <= 0:
                return field, bound, max(0, left)
        return None

    def idle(self, now: float) -> bool:
        """Whether a fresh holder would be no different."""
        return not self.running and self.spent == Spent() and all(b.full_at <= now for b in self.buckets)


class Party:
    """Those who are `limited` of whom a request is, by name, and the `holders` that a limiter found for them.

    They are good as long as the limiter's `edition` is the same.
    """

    __slots__ = ("edition", "holders", "limited")

    def __init__(self, limited: Sequence[tuple[str, Limits]]) -> None:
        self.limited = limited
        self.holders: list[Holder] = []
        self.edition: object = None


@mutable
class Hold(Struct, gc=False):
    """What one ticket has taken of its holders; given back or settled once, when it ends.

    `amounts` are by kind of bucket.
    """

    holders: list[Holder]
    amounts: tuple[int, int, int, int]
    price: Price
    money: int
    open: bool = True

    def levels(self, now: float) -> Levels | None:
        """What its holders have left; None where no rate is limited."""
        return tightest(self.holders, now)


def tightest(holders: Iterable[Holder], now: float) -> Levels | None:
    """The tightest bucket of each kind; None where there is no bucket."""
    levels: list[Level | None] = [None, None, None, None]
    level = None
    for holder in holders:
        for bucket in holder.buckets:
            level = bucket.full if bucket.full_at <= now else bucket.level(now)
            known = levels[bucket.kind]
            if known is None or level.remaining < known.remaining:
                levels[bucket.kind] = level
    return Levels(*levels) if level is not None else None


def refusal(holders: Sequence[Holder], amounts: tuple[int, int, int, int], money: int, now: float) -> Refusal:
    """Why these holders cannot take so much: what lasts longest is named, and when it is over.

    `amounts` are by kind of bucket. Only the kind of holder is named: its client may not know of others.
    """
    levels = tightest(holders, now)
    if (over := _over_budget(holders, amounts, money, spent_alone=True)) is not None:
        holder, message = over
        return Refusal(Outcome.QUOTA_SPENT, message, levels=levels, whose=holder.kind)
    lacking = [
        (bucket.missing_s(amounts[bucket.kind], now), bucket, holder)
        for holder in holders
        for bucket in holder.buckets
        if amounts[bucket.kind]
    ]
    missing_s, bucket, holder = max(lacking, key=lambda each: each[0], default=(0.0, None, holders[0]))
    if missing_s < SETTLES_S and (over := _over_budget(holders, amounts, money)) is not None:
        holder, message = over
        message += "; what still runs has its estimate set aside, and may turn out to need less"
        wait_s, whose = SETTLES_S, holder.kind
        return Refusal(Outcome.RATE_LIMITED, message, retry_after_s=wait_s, levels=levels, whose=whose)
    full = next((each for each in holders if each.running >= each.most), None)
    if bucket is not None and (missing_s > SLACK_S or full is None):
        left, kind = bucket.level(now).remaining, _KINDS[bucket.kind]
        message = f"{holder.label} has {left} left of {bucket.limit} {kind} a minute"
        if bucket.kind != REQUESTS:
            message += f"; {_estimate(amounts)}"
        wait_s, whose = _rounded_up(missing_s), holder.kind
        return Refusal(Outcome.RATE_LIMITED, message, retry_after_s=wait_s, levels=levels, whose=whose)
    holder = full or holder
    message = f"{holder.label} has {holder.running} of {holder.limits.concurrent} requests running or waiting"
    return Refusal(Outcome.CONCURRENCY_LIMITED, message, levels=levels, whose=holder.kind)


def _over_budget(
    holders: Sequence[Holder], amounts: tuple[int, int, int, int], money: int, *, spent_alone: bool = False
) -> tuple[Holder, str] | None:
    """Whose budget has not so much left, and which, in words; None where all have."""
    for holder in holders:
        over = holder.over_budget(amounts[TOKENS], money, spent_alone=spent_alone)
        if over is not None:
            budget, bound, left = over
            price = f", {_sum(budget, money)}" if "money" in budget else ""
            period = budget.rpartition("_")[2]
            has = f"{holder.label} has {_sum(budget, left)} left of {_sum(budget, bound)} a {period}"
            return holder, f"{has}; {_estimate(amounts)}{price}"
    return None


def _estimate(amounts: tuple[int, int, int, int]) -> str:
    prompt, output = amounts[PROMPT_TOKENS], amounts[OUTPUT_TOKENS]
    return f"the request is estimated at {prompt} prompt and {output} output tokens"


def _sum(budget: str, amount: int) -> str:
    return f"{amount / MILLION:.2f} USD" if "money" in budget else f"{amount} tokens"


def _rounded_up(seconds: float) -> float:
    """To the millisecond, so that a sum of floats is not taken for a longer wait than it is."""
    return math.ceil((seconds - SLACK_S) * 1000) / 1000
