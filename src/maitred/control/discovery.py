"""Finding out which engines are there and what they serve: they are asked each second until they answer.

The addresses come from the configuration, with the models they must serve or, when only addresses were
given, without: then every model that an engine names becomes a pool of those that name it. An engine that
answered is left in peace until a connection to it fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from maitred.config.tree import Config
from maitred.control.models import Models, Route
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Change, Endpoint, Endpoints, EndpointState, Facts, Probed
from maitred.engines.dialect import ModelCard, read_models
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool

log = logging.getLogger("maitred.discovery")

PERIOD_S = 1.0
ANSWER_S = 5.0
UNSURE = (EndpointState.PROBING, EndpointState.EJECTED)


class Discovery:
    """Keeps the model names and the core's endpoints in step with what engines answer."""

    def __init__(
        self,
        config: Config,
        models: Models,
        table: EndpointTable,
        pool: Pool,
        update: Callable[[Change], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._models = models
        self._table = table
        self._pool = pool
        self._update = update
        self._sleep = sleep
        self._asking: dict[str, asyncio.Task[None]] = {}
        # What is wrong, by URL, or by endpoint name what is wrong with it alone.
        self._why: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._learned: dict[str, tuple[str, ...]] = dict.fromkeys(config.endpoints, ())
        self._served_as = {model.name: model.served_as for model in config.models}
        models.serve(
            Route(name, model.name, model.served_as if model.served_as != name else None)
            for model in config.models
            for name in (model.name, *model.aliases)
        )
        update(Endpoints({model.name: model.endpoints for model in config.models}))

    async def run(self) -> None:
        """Ask, each second, whoever has not answered; until cancelled."""
        try:
            while True:
                for url in self._unsure():
                    if url not in self._asking:
                        self._asking[url] = asyncio.create_task(self._ask(url))
                await self._sleep(PERIOD_S)
        finally:
            for task in list(self._asking.values()):
                task.cancel()

    def _unsure(self) -> list[str]:
        unsure = [url for url, models in self._learned.items() if not models]
        unsure += [e.url for e in self._table.by_name.values() if e.state in UNSURE]
        return list(dict.fromkeys(unsure))

    async def _ask(self, url: str) -> None:
        try:
            status, body = await fetch(self._pool, url, "/v1/models", ANSWER_S)
            if status != 200:
                raise ValueError(f"answers GET /v1/models with {status}")
            cards = read_models(body)
            if not cards:
                raise ValueError("serves no model")
        except ConnectFailed as failed:
            self._tell(url, f"does not answer ({failed.detail})")
        except ValueError as error:
            self._tell(url, str(error))
        else:
            self._learn(url, cards)
        finally:
            del self._asking[url]

    def _learn(self, url: str, cards: list[ModelCard]) -> None:
        self._forgive(url)
        if url in self._learned:
            names = tuple(card.id for card in cards)
            if names != self._learned[url]:
                self._learned[url] = names
                self._serve_learned()
        by_id = {card.id: card for card in cards}
        for endpoint in self._at(url):
            wanted = self._served_as.get(endpoint.pool, endpoint.pool)
            card = by_id.get(wanted)
            if card is None:
                other = cards[0].id
                self._tell(url, f"serves {other!r}, not {wanted!r}; add served_as: {other}", endpoint)
                continue
            self._models.learn(endpoint.pool, card.raw)
            self._forgive(endpoint.name)
            facts = Facts(engine=card.engine, model=card.id, context_tokens=card.context_tokens)
            self._update(Probed(endpoint.name, ok=True, facts=facts))

    def _serve_learned(self) -> None:
        pools: dict[str, list[str]] = {}
        for url, names in self._learned.items():
            for name in names:
                pools.setdefault(name, []).append(url)
        self._models.serve(Route(name, name) for name in pools)
        self._update(Endpoints({name: tuple(urls) for name, urls in pools.items()}))

    def _at(self, url: str) -> list[Endpoint]:
        return [endpoint for endpoint in self._table.by_name.values() if endpoint.url == url]

    def _tell(self, url: str, why: str, only: Endpoint | None = None) -> None:
        """Say what is wrong with an address, or with only one endpoint there.

        To the core at once, and to the log once, when it is still so a second later: engines that start
        together with the gateway are not worth a warning.
        """
        about = only.name if only else url
        if self._why.get(about) == why and self._told.get(about) != why:
            self._told[about] = why
            log.warning("%s %s; asking again each second", url, why)
        self._why[about] = why
        for endpoint in [only] if only else self._at(url):
            if endpoint.why != why:
                self._update(Probed(endpoint.name, ok=False, why=why))

    def _forgive(self, about: str) -> None:
        self._why.pop(about, None)
        self._told.pop(about, None)
