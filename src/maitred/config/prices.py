"""Budgets in money, and the prices by which they are counted: of what has no price nothing is counted."""

from __future__ import annotations

from collections.abc import Sequence

from maitred.config.tree import Config, Model
from maitred.core.limits import FREE, Limits

WRITE = "write price: {prompt: 0.15, output: 0.6}"


def bounds_money(limits: Limits) -> bool:
    """Whether these hold a budget in money."""
    return limits.money_per_day > 0 or limits.money_per_month > 0


def usable(config: Config, names: Sequence[str]) -> Sequence[Model]:
    """The models of these names; all where none is named, or only what engines are still to tell."""
    return [model for model in config.models if {model.name, *model.aliases} & {*names}] or config.models


def any_priced(models: Sequence[Model]) -> bool:
    """Whether a budget in money over these models counts anything."""
    return any(model.price.core() is not FREE for model in models)


def unpriced(models: Sequence[Model]) -> str:
    """What a budget in money over these models leaves out, and what to do; "" for nothing."""
    free = [model.name for model in models if model.price.core() is FREE]
    if len(free) == len(models):
        return f"counts nothing while no model has a price; {WRITE} for each in models"
    return f"counts as free what has no price: {', '.join(free)}; {WRITE} for each" if free else ""
