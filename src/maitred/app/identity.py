"""Who is let in, put together from the configuration: the store, the table of keys, the issuer's keys.

What is not configured is not loaded: the database's and the tokens' libraries take a while to import.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from maitred.app.kept import kept
from maitred.config.auth import STORE_DEFAULT, Auth, Jwt, Store
from maitred.config.prices import unpriced
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.control.keys import KeyTable
from maitred.core.words import Identity
from maitred.door.identify import Fields, Identifier, anybody
from maitred.net.pool import Pool
from maitred.observe.findings import Findings
from maitred.store.rows import SchemaError, StoreError

if TYPE_CHECKING:
    from maitred.control.jwt import TokenVerifier
    from maitred.store.store import Store as Database

log = logging.getLogger("maitred")


def open_store(settings: Store) -> Database:
    """The database of these settings, untouched yet. Raises ConfigError."""
    from maitred.store.store import Store as Database  # noqa: PLC0415 - takes a quarter of a second

    url = settings.url or STORE_DEFAULT
    try:
        revealed = url if isinstance(url, str) else url.reveal(os.environ, 1)
        return Database.open(
            revealed, settings.pool, settings.statement_s, full=settings.synchronous == "full"
        )
    except (StoreError, ValueError) as error:
        raise ConfigError([f"store.url: {error}"]) from error


class Identities:
    """The side of a gateway that tells who asks. `store` is None where nothing is kept.

    `start`, then `stop`; `apply` at any time. Raises ConfigError when it is made.
    """

    def __init__(self, config: Config, pool: Pool, findings: Findings, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._findings = findings
        self._clock = clock
        self._identifier: Identifier | None = None
        self._tokens: TokenVerifier | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self.store: Database | None = None
        self.keys = KeyTable(findings, clock, self._other_keys)
        self.apply(config)

    @property
    def identify(self) -> Callable[[Fields], Identity]:
        """What tells whose request a head is of, by the configuration now in force."""
        return anybody if self._identifier is None else self._identifier.identify

    async def start(self) -> None:
        """Read the keys, and keep reading. Raises SchemaError; that the store is away is no error."""
        wrong = await self.keys.refresh()
        if isinstance(wrong, SchemaError):
            raise wrong
        self._tasks.append(asyncio.create_task(kept("reading the keys", self.keys.run)))
        self._read_tokens_keys()

    def apply(self, config: Config) -> None:
        """Let in by this configuration from now on. Raises ConfigError, and then nothing is changed."""
        auth = config.auth if isinstance(config.auth, Auth) else Auth()
        pepper = b""
        if auth.pepper is not None:
            try:
                pepper = auth.pepper.reveal(os.environ).encode()
            except ValueError as error:
                raise ConfigError([f"auth.pepper: {error}"]) from error
        tokens = self._verifier(auth.jwt)
        if self.store is None and (auth.keys or config.store.url):
            self.store = open_store(config.store)
        self.keys.source = self.store if auth.keys else None
        self.keys.refresh_s = auth.refresh_s
        self.keys.hurry()
        before, self._tokens = self._tokens, tokens
        if before is not tokens and self._tasks:
            self._read_tokens_keys()
        keys = self.keys if auth.keys else None
        self._identifier = Identifier(keys, pepper, tokens) if isinstance(config.auth, Auth) else None
        self._unpriced = unpriced(config.models)
        self._see_to_prices()

    async def stop(self) -> None:
        """End the loops, and let go of the store."""
        tasks = [*self._tasks, *([self._reading] if self._reading else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.store is not None:
            with suppress(StoreError):
                await self.store.close()

    def _verifier(self, settings: Jwt | None) -> TokenVerifier | None:
        if settings is None or (self._tokens is not None and self._tokens.settings == settings):
            return self._tokens if settings is not None else None
        try:
            from maitred.control.jwt import TokenVerifier  # noqa: PLC0415 - brings cryptography along
        except ImportError as error:
            raise ConfigError(["auth.jwt: needs another package; pip install 'maitred[jwt]'"]) from error
        return TokenVerifier(settings, self._pool, self._findings, self._clock, self._forget)

    def _read_tokens_keys(self) -> None:
        """Read the keys of the issuer that is configured now, and those of no other."""
        if self._reading is not None:
            self._reading.cancel()
        tokens = self._tokens
        self._reading = (
            asyncio.create_task(kept("reading the issuer's keys", tokens.run)) if tokens is not None else None
        )

    def _other_keys(self) -> None:
        self._forget()
        self._see_to_prices()

    def _see_to_prices(self) -> None:
        if self.keys.budgeted and self._unpriced:
            log.warning("a key's budget in money %s", self._unpriced)

    def _forget(self) -> None:
        if self._identifier is not None:
            self._identifier.forget()
