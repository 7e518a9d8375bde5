"""How much a tenant, a key or a model may take: requests, tokens, requests at once, and budgets.

Everything is checked first and then taken, so what is refused costs nothing. Tokens are estimated when a
request comes in and settled by what was used when it is over.
"""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Bounds of one holder; 0 is no bound. Money is in micro-units of the currency (1 USD = 1,000,000)."""

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
    """What a million tokens cost, in micro-units of the currency."""

    prompt: int = 0
    cached: int = 0
    output: int = 0


class Hold(Struct):
    """What one ticket has taken of its holders; given back or settled once, when it ends."""


UNLIMITED = Limits()
