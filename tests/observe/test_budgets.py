"""Budgets as they are told: of whom, in which unit, and no more of them than the settings name."""

from __future__ import annotations

from random import Random

from maitred.core.gateway import Gateway
from maitred.core.limits import Accounts, Limits, Periods, Spent
from maitred.core.words import Abilities, PoolSettings, Settings, TenantSettings
from maitred.observe.budgets import HOLDERS_MAX, Budget, budgets
from maitred.observe.metrics import Metrics
from tests.observe.test_metrics import lines

DAY = Periods(1, 1, 100.0, 1000.0)


def spent(settings: Settings, **by_holder: Spent) -> Gateway:
    """A gateway in which this was spent, `tenant_a=` by tenant a."""
    gateway = Gateway(settings, Abilities(), Random(1))
    gateway.update(DAY, 0.0)
    accounts = {name.replace("_", " "): each for name, each in by_holder.items()}
    gateway.update(Accounts(1, 1, accounts), 0.0)
    return gateway


def test_what_was_spent_is_told_beside_what_may_be() -> None:
    settings = Settings(
        tenants={
            "a": TenantSettings(limits=Limits(tokens_per_day=1000, money_per_month=2_500_000)),
            "b": TenantSettings(limits=Limits(requests_per_min=5)),
        },
        pools={"m": PoolSettings(limits=Limits(tokens_per_month=500, money_per_day=7_000_000))},
        tenant=TenantSettings(limits=Limits(tokens_per_day=9)),
    )
    gateway = spent(settings, tenant_a=Spent(10, 200, 3_000_000, 1_250_000), tenant_b=Spent(1, 1, 1, 1))
    assert list(budgets(gateway)) == [
        Budget("tenant", "a", "tokens_per_day", 1000.0, 10.0),
        Budget("tenant", "a", "usd_per_month", 2.5, 1.25),
        Budget("model", "m", "tokens_per_month", 500.0, 0.0),
        Budget("model", "m", "usd_per_day", 7.0, 0.0),
    ]
    assert lines(Metrics("1", budgets=lambda: budgets(gateway)), "budget_spent")[:2] == [
        'budget_spent{budget="tokens_per_day",kind="tenant",name="a"} 10.0',
        'budget_spent{budget="usd_per_month",kind="tenant",name="a"} 1.25',
    ]
    gateway.update(Periods(2, 1, 200.0, 1000.0), 150.0)
    assert next(budgets(gateway)).spent == 0.0


def test_they_are_bounded() -> None:
    dear = Limits(tokens_per_day=5)
    many = [f"{number}" for number in range(HOLDERS_MAX + 1)]
    settings = Settings(
        tenants=dict.fromkeys(many, TenantSettings(limits=dear)),
        pools=dict.fromkeys(many, PoolSettings(limits=dear)),
    )
    assert len(list(budgets(spent(settings)))) == 2 * HOLDERS_MAX
