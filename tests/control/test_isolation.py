"""Isolation: which models have salts, and what they are made with."""

from __future__ import annotations

import pytest

from maitred.config.cache import Cache
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret
from maitred.config.tree import Model
from maitred.control.isolation import salters
from maitred.wire.salt import Salter

ENGINES = ("http://h:1",)
DRAWN = b"drawn"


def test_only_isolated_models_have_salts() -> None:
    apart = Model("apart", ENGINES, cache=Cache(isolate="tenant"))
    found = salters([Model("shared", ENGINES), apart], DRAWN, {})
    assert found.keys() == {"apart"}
    assert found["apart"].salt("a") == Salter(DRAWN).salt("a")


def test_a_secret_that_is_configured_is_used() -> None:
    model = Model("m", ENGINES, cache=Cache(isolate="tenant", secret=EnvSecret("S")))
    secret = "0123456789abcdef"
    assert salters([model], DRAWN, {"S": secret})["m"].salt("a") == Salter(secret.encode()).salt("a")
    with pytest.raises(ConfigError, match=r"models, m, cache\.secret: .*not set"):
        salters([model], DRAWN, {})
