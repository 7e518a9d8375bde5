"""Routing policies from other packages: found by their entry points, known before a configuration is read.

A package names its filters, scorers, pickers and whole policies in the groups `maitred.filters`,
`maitred.scorers`, `maitred.pickers` and `maitred.profiles`; see examples/own-policy. They join the families
of the core, under names that are still free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from maitred.config import load as configuration
from maitred.config.options import options_of
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.core.chooser import ROUTING
from maitred.core.filters import FILTERS
from maitred.core.pickers import PICKERS
from maitred.core.profiles import Profile
from maitred.core.recipe import Recipe
from maitred.core.scorers import SCORERS

FAMILIES: Mapping[str, tuple[dict[Any, Any], str]] = {
    "maitred.filters": (FILTERS, "keep"),
    "maitred.scorers": (SCORERS, "score"),
    "maitred.pickers": (PICKERS, "pick"),
}
"""By group: the family, and the method its pieces have."""
PROFILES = "maitred.profiles"


def load(path: Path | None, overrides: Mapping[str, object] | None = None, **more: Any) -> Config:
    """The configuration, with what this installation has of policies. Raises ConfigError."""
    find()
    return configuration.load(path, overrides, **more)


@cache
def find() -> None:
    """Let in what the installed packages offer, once. Raises ConfigError."""
    add(each for group in (*FAMILIES, PROFILES) for each in entry_points(group=group))


def add(offered: Iterable[EntryPoint]) -> None:
    """Let these in. Raises ConfigError with a line for each that cannot be had."""
    errors = []
    for entry in offered:
        try:
            _let_in(entry.group, entry.name, entry.load())
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            package = entry.dist.name if entry.dist is not None else "a package"
            errors.append(f"{package}: {entry.name!r} of {entry.group} cannot be used: {error}")
    if errors:
        raise ConfigError(errors)


def _let_in(group: str, name: str, thing: Any) -> None:
    """Look at what an entry point holds, and let it in. Raises TypeError, ValueError."""
    if group != PROFILES:
        family, method = FAMILIES[group]
        options_of(thing)
        if not callable(getattr(thing(), method, None)):
            raise TypeError(f"it has no method {method}")
        _name(family, name, thing)
    elif isinstance(thing, Recipe):
        _name(ROUTING, name, Profile(thing))
    elif callable(thing):
        _name(ROUTING, name, thing)
    else:
        raise TypeError("it is neither a recipe nor a function")


def _name(family: dict[Any, Any], name: str, thing: Any) -> None:
    if name in family:
        raise ValueError("there is one of this name already; give it another")
    family[name] = thing
