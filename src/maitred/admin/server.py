"""The admin port's server: uvicorn in a thread and a loop of its own, so that no reader slows a stream.

The gateway's state belongs to the gateway's loop. What concerns it is sent there as a callback and waited for
briefly: an admin port that hangs with the gateway would be no help when it matters.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from maitred.admin.app import Desk, Question, build
from maitred.config.tree import Admin

T = TypeVar("T")

CONNECTIONS_MAX = 256
HEAD_S = 10.0
"""How long a connection may take to send a whole request head, the wait for it included."""
TAKE_S = 30.0
"""How long it may take beyond that until the answer is over and taken."""
STOP_S = 5.0


class AdminServer:
    """Serves the admin port as `settings` say (port 0 takes a free one).

    `render` gives the metrics and is called in the admin thread. `desk` is asked on `loop`, the gateway's
    own; `clock` is the gateway's.
    """

    def __init__(
        self,
        settings: Admin,
        *,
        loop: asyncio.AbstractEventLoop,
        desk: Desk,
        render: Callable[[], Iterator[bytes]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._desk = desk
        self._render = render
        self._clock = clock
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self) -> tuple[str, int]:
        """Listen and serve; the address listened at. Raises OSError when that or the token cannot be had."""
        token = self._token()
        listener = self._listen()
        config = uvicorn.Config(
            build(self._desk, self._ask, self._render, self._clock, token, self._settings.hosts),
            loop="asyncio",
            http=_Connection,
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

    def _token(self) -> str | None:
        try:
            return self._settings.token.reveal(os.environ) if self._settings.token else None
        except ValueError as error:
            raise OSError(f"admin.token: {error}") from error

    def _listen(self) -> socket.socket:
        address = self._settings.listen
        where = f"admin.listen: {address}"
        if self._settings.token is None and not address.is_loopback:
            raise OSError(f"{where} is open to other machines and admin.token is not set")
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            return socket.create_server((address.host, address.port), family=family)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise OSError(f"{where} cannot be had: {why}; choose another with --admin") from error

    async def _ask(self, question: Question[T], limit_s: float) -> T:
        """The answer of the gateway's loop. Raises TimeoutError when none comes; it is given up then."""
        answer: Future[T] = Future()

        def ask() -> None:
            if answer.set_running_or_notify_cancel():  # else nobody waits for it any more
                self._loop.create_task(question()).add_done_callback(tell)

        def tell(asked: asyncio.Task[T]) -> None:
            if asked.cancelled():
                answer.set_exception(TimeoutError("the gateway is being stopped"))
            elif (error := asked.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(asked.result())

        try:
            self._loop.call_soon_threadsafe(ask)
        except RuntimeError as closed:
            raise TimeoutError("the gateway's loop is closed") from closed
        return await asyncio.wait_for(asyncio.wrap_future(answer), limit_s)


class _Connection(H11Protocol):
    """uvicorn's connection with an end: its own timeout begins with the first answer and ends with any byte.

    A few clients that say nothing, or take nothing, would hold all the places there are.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._end = self.loop.call_later(HEAD_S, self._expire)

    def on_response_complete(self) -> None:
        """Begin to wait for the next."""
        self._end.cancel()
        self._end = self.loop.call_later(HEAD_S, self._expire)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._end.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        # There is no cycle before the first request, whatever its type says.
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.transport.abort()
        else:
            self._end = self.loop.call_later(TAKE_S, self.transport.abort)


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
