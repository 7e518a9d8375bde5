"""The pool: connections are used again, the newest first, and none is ever left behind."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
import uvloop

from maitred.core.outcome import FailureKind
from maitred.net.client import Patience
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import RESOLVE_S, ConnectFailed, Pool
from maitred.net.seams import Sockets
from maitred.net.sweep import Sweep
from maitred.net.virtual import run
from tests.net.engine import Line, Reading, line
from tests.net.http import turns
from tests.net.site import took

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"


async def idle(at: Line, count: int) -> None:
    """Let so many connections be idle."""
    asked = [await at.ask() for _ in range(count)]
    for (reading, _), engine in zip(asked, at.engines[-count:], strict=True):
        engine.send(WHOLE)
        await reading.over.wait()


def test_the_newest_idle_connection_is_taken_first() -> None:
    async def main() -> None:
        async with line() as at:
            assert at.pool.take(at.url) is None
            await idle(at, 3)
            assert (at.pool.open, at.pool.idle) == (3, 3)
            for newest in reversed(at.engines):
                connection = at.pool.take(at.url)
                assert connection is not None
                reading, _ = await at.ask(connection)
                newest.send(WHOLE)
                await reading.over.wait()
                connection.abort()
                await turns()
            assert at.pool.take(at.url) is None
            assert at.pool.open == 0

    run(main())


def test_addresses_do_not_share_connections() -> None:
    async def main() -> None:
        async with line() as at:
            await idle(at, 1)
            assert at.pool.take("http://127.0.0.1:1") is None
            assert at.pool.take(at.url) is not None

    run(main())


def test_what_has_closed_is_not_taken() -> None:
    async def main() -> None:
        async with line() as at:
            await idle(at, 3)
            at.engines[2].transport.close()
            at.engines[0].reset()
            await turns()
            assert (at.pool.open, at.pool.idle) == (1, 1)
            connection = at.pool.take(at.url)
            assert connection is not None
            assert not connection.closing
            assert at.pool.take(at.url) is None

    run(main())


def test_a_connection_that_is_just_closing_is_no_trap() -> None:
    """Its end is told in the next turn of the loop; who takes it before learns at once that it is stale."""

    async def main() -> None:
        async with line() as at:
            await idle(at, 1)
            connection = at.pool.take(at.url)
            assert connection is not None
            at.pool.opened(connection)(connection)  # idle again
            connection.abort()
            taken = at.pool.take(at.url)
            if taken is not None:
                reading = Reading()
                taken.send(b"GET / HTTP/1.1\r\n\r\n", (), 0, reading)
                assert reading.failure is not None
                assert reading.failure[0] is FailureKind.STALE_CONNECTION

    run(main())


def test_idle_connections_grow_old_one_by_one() -> None:
    async def main() -> None:
        async with line(keep_alive_s=4.0) as at:
            await idle(at, 1)
            await asyncio.sleep(2)
            await idle(at, 1)
            assert at.pool.idle == 2
            await asyncio.sleep(2.5)
            assert at.pool.idle == 1
            await asyncio.sleep(2)
            assert at.pool.open == 0

    run(main())


def test_a_refused_connection_is_told() -> None:
    async def main() -> None:
        async with line() as at:
            at.network.refuse(*at.address)
            with pytest.raises(ConnectFailed) as failed:
                await at.pool.connect(at.url)
            assert failed.value.kind is FailureKind.CONNECT
            assert at.pool.open == 0

    run(main())


def test_a_connection_that_takes_too_long_is_given_up() -> None:
    async def connect(at: Line) -> None:
        with pytest.raises(ConnectFailed, match="2 s") as failed:
            await at.pool.connect(at.url)
        assert failed.value.kind is FailureKind.UNREACHABLE
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()  # it was the pool, and nobody else

    async def main() -> None:
        async with line() as at:
            at.network.hang(*at.address)
            assert await took(connect(at)) == 2.0
            assert at.network.open_transports == 0

    run(main())


def test_a_connect_cancelled_as_it_becomes_too_late_is_cancelled() -> None:
    async def main() -> None:
        async with line() as at:
            at.network.hang(*at.address)
            connecting = asyncio.create_task(at.pool.connect(at.url))
            asyncio.get_running_loop().call_later(at.pool.connect_s, connecting.cancel)
            await asyncio.wait((connecting,))
            assert connecting.cancelled()
            assert at.network.open_transports == 0

    run(main())


@pytest.mark.parametrize("hangs", [True, False])
def test_a_cancelled_connect_leaves_nothing(hangs: bool) -> None:
    async def main() -> None:
        async with line() as at:
            at.network.connect_delay_s = 1.0
            if hangs:
                at.network.hang(*at.address)
            connecting = asyncio.create_task(at.pool.connect(at.url))
            await asyncio.sleep(0.5)
            connecting.cancel()
            await asyncio.sleep(2)
            assert connecting.cancelled()
            assert at.pool.open == at.network.open_transports == 0

    run(main())


def test_closing_ends_busy_connections_too() -> None:
    async def main() -> None:
        async with line() as at:
            await idle(at, 1)
            reading, _ = await at.ask()
            at.pool.close()
            await turns()
            assert at.pool.open == at.pool.idle == 0
            assert not reading.over.is_set()

    run(main())


def test_a_connect_cancelled_at_any_turn_of_a_real_loop_leaves_nothing() -> None:
    """A loop may make the connection and then cancel who waits for it, without telling that it is lost."""

    async def main() -> None:
        sockets, loop = Sockets(), asyncio.get_running_loop()
        sweep = Sweep(loop.time)
        pool = Pool(sockets, sweep, Patience())
        listener = await sockets.listen(asyncio.Protocol, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.address[1]}"
        for moment in range(12):
            connecting = asyncio.create_task(pool.connect(url))
            await turns(moment)
            connecting.cancel()
            await asyncio.wait([connecting])
            if not connecting.cancelled():
                connecting.result().abort()
        await turns(50)
        listener.close()
        await turns(50)
        assert (pool.open, len(sweep)) == (0, 0)

    uvloop.run(main())


SEVERAL = "Multiple exceptions: [Errno {}] Connect call failed ('::1', 1), [Errno {}] Connect call failed"
"""What asyncio makes of a name with two addresses; such an error has no number."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "no"), FailureKind.LOCAL_LIMIT),
        (OSError(errno.EADDRNOTAVAIL, "no"), FailureKind.LOCAL_LIMIT),
        (OSError(errno.ECONNREFUSED, "no"), FailureKind.CONNECT),
        (OSError(errno.ECONNRESET, "no"), FailureKind.CONNECT),
        (ConnectionResetError(), FailureKind.CONNECT),
        (OSError(errno.EHOSTUNREACH, "no"), FailureKind.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "no"), FailureKind.UNREACHABLE),
        (OSError(errno.ETIMEDOUT, "no"), FailureKind.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "no"), FailureKind.UNRESOLVED),
        (socket.gaierror(socket.EAI_AGAIN, "no"), FailureKind.UNRESOLVED),
        (UnicodeError("no"), FailureKind.UNRESOLVED),
        (OSError(SEVERAL.format(errno.EADDRNOTAVAIL, errno.ECONNREFUSED)), FailureKind.CONNECT),
        (OSError(SEVERAL.format(errno.ENETUNREACH, errno.EHOSTUNREACH)), FailureKind.UNREACHABLE),
        (OSError(SEVERAL.format(errno.EADDRNOTAVAIL, errno.EHOSTUNREACH)), FailureKind.UNREACHABLE),
        (OSError(SEVERAL.format(errno.EMFILE, errno.EMFILE)), FailureKind.LOCAL_LIMIT),
    ],
)
def test_who_is_to_blame_for_a_failed_connect(error: Exception, kind: FailureKind) -> None:
    class Broken(MemoryNetwork):
        async def connect(self, *_: object, **__: object) -> Any:
            raise error

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectFailed) as failed:
            await Pool(Broken(), Sweep(loop.time), Patience()).connect("http://127.0.0.1:1")
        assert failed.value.kind is kind
        assert failed.value.detail

    run(main())


@pytest.mark.parametrize("loop_run", [asyncio.run, uvloop.run])
def test_a_real_port_refuses_and_a_real_name_does_not_resolve(loop_run: Any) -> None:
    async def main() -> None:
        sockets = Sockets()
        pool = Pool(sockets, Sweep(asyncio.get_running_loop().time), Patience())
        listener = await sockets.listen(asyncio.Protocol, "127.0.0.1", 0)
        listener.close()
        for host, kind in (
            (f"127.0.0.1:{listener.address[1]}", FailureKind.CONNECT),
            (f"localhost:{listener.address[1]}", FailureKind.CONNECT),
            ("a..b:1", FailureKind.UNRESOLVED),
        ):
            with pytest.raises(ConnectFailed) as failed:
                await pool.connect(f"http://{host}")
            assert failed.value.kind is kind

    loop_run(main())


@pytest.mark.parametrize(
    ("resolver", "kind", "late_s"),
    [
        ([("an", "address")], FailureKind.UNREACHABLE, 2.0),
        (socket.gaierror(socket.EAI_AGAIN, "no"), FailureKind.UNRESOLVED, 2.0),
        (None, FailureKind.UNRESOLVED, 2.0 + RESOLVE_S),
    ],
)
def test_a_late_connect_to_a_name_is_the_resolvers_fault_if_it_is(
    resolver: Any, kind: FailureKind, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: object) -> Any:
        assert host == "engine"
        if resolver is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(resolver, Exception):
            raise resolver
        return resolver

    async def connect(pool: Pool) -> None:
        with pytest.raises(ConnectFailed) as failed:
            await pool.connect("http://engine:1")
        assert failed.value.kind is kind

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        async with line() as at:
            at.network.hang("engine", 1)
            assert await took(connect(at.pool)) == late_s

    run(main())


# -- silence ----------------------------------------------------------------------------------------


def test_an_endpoint_is_silent_while_it_owes_answers_and_says_nothing() -> None:
    async def main() -> None:
        async with line() as at:
            loop = asyncio.get_running_loop()

            def silent_s() -> float:
                return round(at.pool.silent_s(at.url, loop.time()))

            await idle(at, 1)
            await asyncio.sleep(1)
            assert silent_s() == 0
            await at.ask()
            await asyncio.sleep(10)
            assert silent_s() == 10
            assert at.pool.silent_s("http://127.0.0.1:1", loop.time()) == 0
            _, other = await at.ask()
            await asyncio.sleep(10)
            assert silent_s() == 20
            other.send(WHOLE)
            await asyncio.sleep(3)
            assert silent_s() == 3
            await asyncio.sleep(10)  # by now that connection has grown old
            assert (at.pool.open, silent_s()) == (1, 13)
            _, other = await at.ask()
            other.send(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.sleep(1)
            other.reset()
            await asyncio.sleep(1)
            assert silent_s() == 2

    run(main())


def test_what_was_heard_is_forgotten_with_the_last_connection() -> None:
    async def main() -> None:
        async with line() as at:
            await idle(at, 3)
            await asyncio.sleep(10)
            assert (at.pool.open, at.pool._heard_at, at.pool._idle) == (0, {}, {})

    run(main())


def test_a_question_is_no_work_and_its_answer_no_sign_of_any() -> None:
    async def main() -> None:
        async with line() as at:
            loop = asyncio.get_running_loop()
            question = await at.pool.connect(at.url, question=True)
            asked, _ = await at.ask(question)
            await asyncio.sleep(10)
            assert (at.pool.open, at.pool.silent_s(at.url, loop.time())) == (1, 0.0)
            await at.ask()
            await asyncio.sleep(10)
            at.engines[0].send(WHOLE)
            await asked.over.wait()
            await turns()
            assert round(at.pool.silent_s(at.url, loop.time())) == 10
            assert (at.pool.open, at.pool.idle) == (1, 0)
            await at.ask(await at.pool.connect(at.url, question=True))
            assert at.pool.open == 2
            at.pool.close()
            await turns()
            assert at.pool.open == 0

    run(main())
