"""What the facts of engines, side by side, tell an operator: a look at the table, and nothing else."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from maitred.core.endpoints import EndpointTable
from maitred.core.words import Endpoint
from maitred.engines.facts import PREFIX_CACHING_ON, SALT_UNHEEDED

KINDS = ("prefix_caching_off", "context_differs", "cache_shared")
"""The kinds of finding this review knows, and so can settle."""


def review(table: EndpointTable, isolated: Container[str] = ()) -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with endpoints or between them, each as (kind, where, what, do).

    `isolated`: pools that are to keep their tenants' caches apart.
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
            if (
                pool in isolated
                and (unheeded := SALT_UNHEEDED.get(endpoint.facts.engine))
                and endpoint.facts.model
            ):
                yield ("cache_shared", endpoint.name, *unheeded)
        yield from _contexts(pool, endpoints)


def _contexts(pool: str, endpoints: Sequence[Endpoint]) -> Iterator[tuple[str, str, str, str]]:
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
