"""Running a gateway in this process: log, loop, signals, admin port, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import uvloop

from maitred.app.desk import Desk
from maitred.app.gateway import GatewayApp
from maitred.config.tree import Config
from maitred.net.seams import Sockets
from maitred.observe import logs
from maitred.observe.access import AccessLog, Style
from maitred.observe.exposition import render
from maitred.observe.sink import Sink
from maitred.store.rows import StoreError

if TYPE_CHECKING:
    from maitred.admin.server import AdminServer

log = logging.getLogger("maitred")

GC_THRESHOLDS = (2_000, 0, 50_000)
"""A request leaves no reference cycles behind, so the collector is only a safety net.

What is young is looked at once, and little of it, so that no pause reaches 10 ms while 100,000 requests wait.
"""

HEAP_BYTES = 16 * 1024 * 1024
"""Bodies up to this size come from the heap, and twice as much of it is kept for those that follow."""

LAST_WORDS_S = 1.0
"""How long the end of the process waits for whoever reads its log."""

Beside = Callable[[GatewayApp, str], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def nothing(_app: GatewayApp, _base: str) -> AsyncIterator[None]:
    """Run nothing beside the gateway."""
    yield


def run(config: Config, load: Callable[[], Config], beside: Beside = nothing) -> str | None:
    """Serve until a signal; None, or one line on what could not be started.

    `load` reads the configuration anew, for a reload. `beside` is entered once the port is open, with the
    URL clients use, and left when all is drained; where there is one, SIGHUP ends the process as a closed
    terminal should, else it reloads.
    """
    style: Style = "json" if config.log.format == "json" else "human"
    sink = Sink(sys.stderr.fileno())
    logs.setup(style, config.log.level, sink)
    raise_file_limit()
    keep_heap()
    access = AccessLog(sink, style) if config.log.access else None
    try:
        uvloop.run(_serve(config, load, beside, sink, access))
    except (OSError, StoreError) as error:
        return str(error)
    finally:
        sink.finish(LAST_WORDS_S)
    return None


def raise_file_limit() -> None:
    """Take all the open files that the system allows.

    A request in flight holds two; the usual 1024 are meant for programs that call `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.debug("open files: at most %d, before %d", hard, soft)
    except (OSError, ValueError) as error:
        log.debug("open files: at most %d, no more to be had: %s", soft, error)


def keep_heap() -> None:
    """Have the C library keep the memory that bodies leave behind.

    Else it gives that back to the system after each large one, and asks for it again at the next, page by
    page. glibc goes by the largest block that was ever freed (mallopt(3)); one not written to costs nothing.
    """
    bytes(HEAP_BYTES)


async def _serve(
    config: Config, load: Callable[[], Config], beside: Beside, sink: Sink, access: AccessLog | None
) -> None:
    app = GatewayApp(config, Sockets(), time.monotonic, access, sink.flush)
    desk = Desk(app, load)
    signals = _Signals(desk.reload_quietly if beside is nothing else None)
    admin: AdminServer | None = None
    try:
        base = f"http://{_host(*await _listen(app, config))}"
        admin = _admin(config, app, desk)
        admin_host, admin_port = admin.start()
        log.info("serving at %s, metrics and status at http://%s", base, _host(admin_host, admin_port))
        gc.collect()
        gc.freeze()  # what start-up made lives for ever; collecting must not walk it again and again
        gc.set_threshold(*GC_THRESHOLDS)
        async with beside(app, base):
            name = await signals.first()
            log.info("%s: draining; a second signal ends at once", name)
            await signals.unless_second(app.drain())
    finally:
        await app.stop()
        if admin is not None:
            admin.stop()


async def _listen(app: GatewayApp, config: Config) -> tuple[str, int]:
    try:
        return await app.start()
    except OSError as error:
        if isinstance(error, socket.gaierror) or not error.errno:  # the numbers of a gaierror are its own
            why = error.strerror or str(error)
        else:
            why = os.strerror(error.errno)
        raise OSError(
            f"cannot listen at {config.listen.data}: {why}; choose another with --listen"
        ) from error


def _admin(config: Config, app: GatewayApp, desk: Desk) -> AdminServer:
    from maitred.admin.server import AdminServer  # noqa: PLC0415 - brings a web framework along

    metrics = app.metrics
    return AdminServer(
        config.admin,
        loop=asyncio.get_running_loop(),
        clock=time.monotonic,
        desk=desk,
        render=lambda: render(metrics),
    )


def _host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Signals:
    """SIGTERM and SIGINT: the first asks for an end, the second insists. SIGHUP reloads, or does the same."""

    def __init__(self, reload: Callable[[], Coroutine[object, object, None]] | None) -> None:
        self._names: asyncio.Queue[str] = asyncio.Queue()
        self._reloads: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._names.put_nowait, number.name)
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up, reload)

    def _hang_up(self, reload: Callable[[], Coroutine[object, object, None]]) -> None:
        task = asyncio.create_task(reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def first(self) -> str:
        """Wait for a signal; its name."""
        return await self._names.get()

    async def unless_second(self, work: Awaitable[object]) -> None:
        """Let `work` come to its end, or give it up at another signal."""
        working = asyncio.ensure_future(work)
        insisted = asyncio.create_task(self._names.get())
        await asyncio.wait((working, insisted), return_when=asyncio.FIRST_COMPLETED)
        for task in (working, insisted):
            task.cancel()
        await asyncio.gather(working, insisted, return_exceptions=True)
