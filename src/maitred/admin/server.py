"""The admin port's server: uvicorn in a thread and a loop of its own, so that no reader slows a stream.

The gateway's state belongs to the gateway's loop. What must be read there is sent there as a callback and
waited for briefly: an admin port that hangs with the gateway would be no help when it matters.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread

import uvicorn

from maitred.admin.app import EndpointRow, build, is_loopback
from maitred.core.words import Endpoint

ANSWER_S = 2.0
"""How long the gateway's loop may take to answer a question."""
CONNECTIONS_MAX = 64
STOP_S = 5.0


class AdminServer:
    """Serves the admin port at `host:port` (a loopback address; port 0 takes a free one).

    `render` gives the metrics and is called in the admin thread. `endpoints` gives the gateway's
    endpoints and is called on `loop`, the gateway's own.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        loop: asyncio.AbstractEventLoop,
        endpoints: Callable[[], Iterable[Endpoint]],
        render: Callable[[], Iterator[bytes]],
    ) -> None:
        self._host = host
        self._port = port
        self._loop = loop
        self._endpoints = endpoints
        self._render = render
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self) -> tuple[str, int]:
        """Listen and serve; the address listened at. Raises OSError when it cannot be had."""
        listener = self._listen()
        config = uvicorn.Config(
            build(self._render, self._rows),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = server = _Server(config)
        # Off the main thread uvicorn leaves signals alone.
        self._thread = Thread(target=server.run, args=([listener],), name="admin", daemon=True)
        self._thread.start()
        host, port = listener.getsockname()[:2]
        return host, port

    def stop(self) -> None:
        """Close the port and wait for the thread, at most STOP_S seconds. Harmless when never started."""
        if self._server is not None and self._thread is not None:
            self._server.leave()
            self._thread.join(STOP_S)

    def _listen(self) -> socket.socket:
        where = f"admin.listen: {self._host}:{self._port}"
        if not is_loopback(self._host):
            raise OSError(f"{where} is not a loopback address")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(f"{where} cannot be had: {why}; choose another with --admin") from error

    async def _rows(self) -> list[EndpointRow]:
        """The endpoints as the gateway's loop sees them. Raises TimeoutError when it does not answer."""
        answer: Future[list[EndpointRow]] = Future()

        def look() -> None:
            if answer.set_running_or_notify_cancel():  # else nobody waits for it any more
                answer.set_result([EndpointRow.of(endpoint) for endpoint in self._endpoints()])

        try:
            self._loop.call_soon_threadsafe(look)
        except RuntimeError as closed:
            raise TimeoutError("the gateway's loop is closed") from closed
        return await asyncio.wait_for(asyncio.wrap_future(answer), ANSWER_S)


class _Server(uvicorn.Server):
    """uvicorn without its tick: ten wake-ups a second for a port that is read twice a minute."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = asyncio.Event()

    def leave(self) -> None:
        """Have the thread close the port and end; from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # closed just now
                self._loop.call_soon_threadsafe(self._left.set)

    async def main_loop(self) -> None:
        """Serve until `leave`."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._left.wait()
