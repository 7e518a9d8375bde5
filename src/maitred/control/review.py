"""What the facts of engines, side by side, tell an operator: a look at the table, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from maitred.config.cache import TENANT
from maitred.config.tree import Model
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Endpoint
from maitred.engines.facts import PREFIX_CACHING_ON, SALT_UNHEEDED, TELLS_SALTS

KINDS = ("prefix_caching_off", "context_differs", "cache_shared", "events_unsalted")
"""The kinds of finding this review knows, and so can settle."""
Told = tuple[str, str, str, str]
NOTHING: Mapping[str, Model] = MappingProxyType({})


def review(table: EndpointTable, models: Mapping[str, Model] = NOTHING) -> Iterator[Told]:
    """What is wrong with endpoints or between them, each as (kind, where, what, do).

    `models` are those that the configuration names.
    """
    for pool, endpoints in table.by_pool.items():
        for endpoint in endpoints:
            if endpoint.facts.prefix_caching is False:
                yield (
                    "prefix_caching_off",
                    endpoint.name,
                    "prefix caching is off",
                    PREFIX_CACHING_ON[endpoint.facts.engine],
                )
            if pool in models and models[pool].cache.isolate == TENANT and endpoint.facts.model:
                yield from _isolation(endpoint, models[pool])
        yield from _contexts(pool, endpoints)


def _isolation(endpoint: Endpoint, model: Model) -> Iterator[Told]:
    engine = endpoint.facts.engine
    if engine in SALT_UNHEEDED:
        yield ("cache_shared", endpoint.name, *SALT_UNHEEDED[engine])
    if model.cache.events is not None and engine not in TELLS_SALTS:
        what = "its KV events do not tell whose blocks they are, so its cache is guessed"
        yield ("events_unsalted", endpoint.name, what, "leave out cache.events, or cache.isolate")


def _contexts(pool: str, endpoints: Sequence[Endpoint]) -> Iterator[Told]:
    known = [e for e in endpoints if e.facts.context_tokens]
    contexts = {e.name: e.facts.context_tokens for e in known}
    if len(set(contexts.values())) > 1:
        said = ", ".join(
            f"{name.removeprefix(pool + '/')} takes {tokens}" for name, tokens in contexts.items()
        )
        yield (
            "context_differs",
            pool,
            f"its endpoints differ in context length: {said} tokens",
            "start them with the same --max-model-len",
        )
