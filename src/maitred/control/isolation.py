"""Which models keep their tenants' caches apart, and with what."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from maitred.config.cache import TENANT
from maitred.config.raw import ConfigError
from maitred.config.tree import Model
from maitred.wire.salt import Salter


def salters(
    models: Iterable[Model], drawn: bytes, environ: Mapping[str, str] = os.environ
) -> dict[str, Salter]:
    """By name, those that do; with the secret `drawn` where none is configured. Raises ConfigError."""
    found = {}
    for model in models:
        if model.cache.isolate == TENANT:
            secret = drawn
            if model.cache.secret is not None:
                try:
                    secret = model.cache.secret.reveal(environ).encode()
                except ValueError as error:
                    raise ConfigError([f"models, {model.name}, cache.secret: {error}"]) from error
            found[model.name] = Salter(secret)
    return found
