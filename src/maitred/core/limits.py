"""The words of limits: what a tenant, a key or a model may take, what tokens cost, and what was spent.

Money is in micro-units of the currency (1 USD = 1,000,000). Days and months are numbers that the core is
told, for it knows no calendar.
"""

from __future__ import annotations

from msgspec import Struct

from maitred.core.buckets import Level
from maitred.core.mutable import mutable

MILLION = 1_000_000


class Limits(Struct, frozen=True, cache_hash=True):
    """Bounds of one holder; 0 is no bound."""

    requests_per_min: int = 0
    tokens_per_min: int = 0
    prompt_tokens_per_min: int = 0
    output_tokens_per_min: int = 0
    concurrent: int = 0
    tokens_per_day: int = 0
    tokens_per_month: int = 0
    money_per_day: int = 0
    money_per_month: int = 0


class Price(Struct, frozen=True):
    """What a million tokens cost, in micro-units of the currency; `cached` are those of the prompt."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    def of(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        """What these tokens cost, rounded up to a whole micro-unit. Cached ones are part of the prompt."""
        fresh = max(0, prompt_tokens - cached_tokens)
        sum_ = fresh * self.prompt + cached_tokens * self.cached + output_tokens * self.output
        return -(-sum_ // MILLION)


UNLIMITED = Limits()
FREE = Price()


@mutable
class Spent(Struct):
    """What a holder has spent, in the day and in the month."""

    tokens_per_day: int = 0
    tokens_per_month: int = 0
    money_per_day: int = 0
    money_per_month: int = 0


class Periods(Struct, frozen=True, tag=True):
    """Change: which day and month it is, as numbers that only grow, and when they end."""

    day: int
    month: int
    day_ends_at: float
    month_ends_at: float


class Accounts(Struct, frozen=True, tag=True):
    """Change: what holders have spent that was not counted here: in other gateways, or before the start."""

    day: int
    month: int
    spent: dict[str, Spent]


@mutable
class Charge(Struct):
    """Tokens and money that came to an account."""

    tokens: int = 0
    money: int = 0


class Charges(Struct):
    """What was charged here within one day, by holder."""

    day: int
    month: int
    by_holder: dict[str, Charge]


class Levels(Struct, frozen=True):
    """The tightest bucket of each kind; None where there is none."""

    requests: Level | None = None
    tokens: Level | None = None
    prompt_tokens: Level | None = None
    output_tokens: Level | None = None
