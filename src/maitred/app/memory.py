"""The store of what is remembered: the one that the configuration names, else a file of the user's.

It is opened when it is first needed, for whoever never asks for a stateful API should not pay for a database;
at once where the operator named one, or where an earlier run left one whose work may be waiting.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from maitred.app.identity import open_store
from maitred.app.kept import kept
from maitred.config.auth import Store
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.control.sweeper import Sweeper
from maitred.observe.findings import Findings
from maitred.store.rows import SchemaError, StoreError

if TYPE_CHECKING:
    from maitred.store.state import StateStore
    from maitred.store.store import Store as Database

log = logging.getLogger("maitred")

KIND, PLACE = "memory_unreachable", "store"
"""The finding that it cannot be opened."""


class Memory:
    """Gives the store when it is called. `shared` is the database that is open for keys, if one is."""

    def __init__(
        self,
        config: Config,
        shared: Callable[[], Database | None],
        findings: Findings,
        observed: Callable[[str, float], None],
    ) -> None:
        self._place = config.store
        self._resume_s = config.responses.background.resume_s
        self._shared = shared
        self._findings = findings
        self._observed = observed
        self._opening: asyncio.Task[StateStore] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.opened: StateStore | None = None
        self._own: Database | None = None
        self._ill = False

    async def __call__(self) -> StateStore:
        """The store. Raises StoreError."""
        if self.opened is not None:
            return self.opened
        if self._opening is None:  # one attempt for all who wait
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._has_opened)
        return await asyncio.shield(self._opening)

    def _has_opened(self, opening: asyncio.Task[StateStore]) -> None:
        self._opening = None
        if opening.cancelled():
            return
        error = opening.exception()
        if isinstance(error, StoreError):
            self.failed(error)
        elif error is None:
            self.opened = opening.result()

    def failed(self, error: StoreError) -> None:
        """It cannot be used."""
        self._ill = True
        what = f"{error}; stateful requests are answered with 503, all others go on"
        self._findings.tell(KIND, PLACE, what, "see to the database, or name another in store.url")

    def worked(self) -> None:
        """It can be used."""
        if self._ill:
            self._ill = False
            self._findings.settle(KIND, PLACE)

    async def start(self) -> None:
        """Open it now, if it was named or is there already. Raises SchemaError; being away is no error."""
        if self._place.url or self._shared() is not None or default_file().exists():
            try:
                await self()
            except SchemaError:
                raise
            except StoreError:
                log.debug("the store is opened when it is there")

    async def close(self) -> None:
        """Let go of it."""
        for task in (self._opening, self._sweeping):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.opened is not None:
            await self.opened.close()
        if self._own is not None:
            with suppress(StoreError):
                await self._own.close()

    async def _open(self) -> StateStore:
        store = await asyncio.to_thread(self._database)
        from maitred.store.state import StateStore  # noqa: PLC0415 - takes a quarter of a second

        state = StateStore(store, self._observed)
        async with AsyncExitStack() as undone:
            undone.push_async_callback(state.close)
            await state.start()
            await state.seal()  # now, so that nobody waits for it
            undone.pop_all()
        sweeper = Sweeper(state, self._findings, self._place.sweep_s, self._resume_s)
        self._sweeping = asyncio.create_task(kept("sweeping the store", sweeper.run))
        log.info("what is remembered is kept at %s", store.place)
        return state

    def _database(self) -> Database:
        if (shared := self._shared()) is not None:
            return shared
        if self._own is None:
            place = place_of(self._place)
            if not self._place.url:
                try:
                    default_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                except OSError as error:
                    raise StoreError(f"{default_file().parent}: {error.strerror}") from None
            try:
                self._own = open_store(place)
            except ConfigError as error:
                raise StoreError(str(error)) from None
        return self._own


def place_of(settings: Store) -> Store:
    """Where it is kept by these settings, where no keys are."""
    return settings if settings.url else structs.replace(settings, url=f"sqlite:///{default_file()}")


def default_file() -> Path:
    """Where it is kept where nothing is said of it: with the user's other programs' state."""
    home = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return folder / "maitred" / "maitred.db"
