"""How far budgets are spent, read from the core when it is asked for.

Only of tenants and models that the settings name: of others, and of keys, there may be any number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from maitred.core.gateway import Gateway
from maitred.core.limits import MILLION

HOLDERS_MAX = 256
"""Bound of tenants, and of models, whose budgets are told."""
BUDGETS = (
    ("tokens_per_day", "tokens_per_day", 1),
    ("tokens_per_month", "tokens_per_month", 1),
    ("usd_per_day", "money_per_day", MILLION),
    ("usd_per_month", "money_per_month", MILLION),
)
"""Each budget as the settings call it and as the core does, and how many of the core's units are one."""


class Budget(Struct, frozen=True):
    """One budget of a tenant or a model (`kind`). `limit` and `spent` are in tokens or USD."""

    kind: str
    name: str
    budget: str
    limit: float
    spent: float


def budgets(gateway: Gateway) -> Iterator[Budget]:
    """All budgets of named holders; from any thread."""
    settings = gateway.settings
    named = [
        ("tenant", name, tenant.limits) for name, tenant in islice(settings.tenants.items(), HOLDERS_MAX)
    ]
    named += [("model", name, pool.limits) for name, pool in islice(settings.pools.items(), HOLDERS_MAX)]
    for kind, name, limits in named:
        spent = gateway.limiter.spent(f"{kind} {name}")
        for budget, field, unit in BUDGETS:
            if limit := getattr(limits, field):
                yield Budget(kind, name, budget, limit / unit, getattr(spent, field) / unit)
