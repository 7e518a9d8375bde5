"""The threads of the store: one commit for many, nothing half done, and who goes wrong goes wrong alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, NullPool, create_engine, event
from sqlalchemy.exc import OperationalError

from maitred.store import connections
from maitred.store import lane as lanes
from maitred.store.lane import CALL_S, Kept, Lane
from maitred.store.place import VANISHED
from maitred.store.rows import StoreError
from maitred.store.store import Store
from tests.store.place import ALL, LEASE, NOW, end, kept, new, on_loop, remembering, spoken, talk, texts, turn
from tests.store.postgres import Postgres
from tests.store.test_store import KEY

PATIENCE_S = 60.0
"""Only a failing test ever waits this long."""


class Unwatched:
    """A connection of which nothing is seen."""

    def __init__(self, connection: Connection) -> None:
        pass

    def usable(self) -> bool:
        return True

    def cut(self) -> None:
        pass

    def close(self) -> None:
        pass


class Book:
    """A file with one table of numbers, a grouped lane to it, and how often it was committed to."""

    def __init__(self, path: Path) -> None:
        engine = create_engine(
            f"sqlite:///{path}", poolclass=NullPool, connect_args={"isolation_level": None}
        )
        self.path = path
        self.commits = 0
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        event.listen(engine, "commit", self._committed)
        self.connect = engine.connect
        self.lane = Lane("numbers", engine.connect, Unwatched, grouped=True)

    def _committed(self, _: Connection) -> None:
        self.commits += 1

    def numbers(self) -> list[int]:
        book = sqlite3.connect(self.path)
        try:
            return [number for (number,) in book.execute("SELECT number FROM numbers ORDER BY number")]
        finally:
            book.close()


@contextmanager
def held(book: Book) -> Iterator[None]:
    """While the lane's thread is busy, so that whatever is submitted waits."""
    begun, release = Event(), Event()

    def busy(_: Connection) -> None:
        begun.set()
        assert release.wait(PATIENCE_S)

    done = book.lane.submit(busy)
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        release.set()
        assert not done.cancelled()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    opened = Book(tmp_path / "numbers.db")
    yield opened
    opened.lane.close()


def insert(number: int) -> Callable[[Connection], int]:
    def work(connection: Connection) -> int:
        connection.exec_driver_sql(f"INSERT INTO numbers VALUES ({number})")
        return number

    return work


@on_loop
async def _grouped(book: Book) -> None:
    with held(book):
        done = [book.lane.submit(insert(number)) for number in range(20)]
    assert await asyncio.gather(*done) == list(range(20))


def test_what_waits_shares_one_commit(book: Book) -> None:
    _grouped(book)
    assert (book.numbers(), book.commits) == (list(range(20)), 2)  # one is that of who held it


@on_loop
async def _spoiled(book: Book) -> list[object]:
    def bug(connection: Connection) -> None:
        insert(7)(connection)
        raise ZeroDivisionError

    with held(book):
        works: list[Callable[[Connection], Any]] = [insert(1), bug, insert(1), insert(2)]
        done = [book.lane.submit(work) for work in works]
    return list(await asyncio.gather(*done, return_exceptions=True))


def test_one_that_goes_wrong_spoils_nothing_for_the_others(book: Book) -> None:
    one, bug, again, two = _spoiled(book)
    assert (one, two, book.numbers()) == (1, 2, [1, 2])
    assert isinstance(bug, ZeroDivisionError)
    assert "UNIQUE" in str(again)


@on_loop
async def _left(book: Book) -> None:
    begun, release = Event(), Event()

    def slow(connection: Connection) -> None:
        begun.set()
        assert release.wait(PATIENCE_S)
        insert(1)(connection)

    running = book.lane.submit(slow)
    assert begun.wait(PATIENCE_S)
    waiting = book.lane.submit(insert(2))
    running.cancel()
    waiting.cancel()
    release.set()
    await book.lane.submit(insert(3))


def test_who_stops_waiting_leaves_it_whole_or_not_begun(book: Book) -> None:
    _left(book)
    assert book.numbers() == [1, 3]


@on_loop
async def _crowd(book: Book) -> None:
    with held(book):
        done = [book.lane.submit(insert(number)) for number in range(3)]
        with pytest.raises(StoreError, match="too many wait"):
            await book.lane.submit(insert(3))
    await asyncio.gather(*done)


def test_no_more_wait_than_may(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "WAITING_MAX", 3)
    _crowd(book)


def test_a_loop_that_ended_does_not_end_the_thread(book: Book) -> None:
    begun, release = Event(), Event()

    def slow(_: Connection) -> None:
        begun.set()
        assert release.wait(PATIENCE_S)

    @on_loop
    async def leaves() -> None:
        book.lane.submit(slow)
        assert begun.wait(PATIENCE_S)

    leaves()
    release.set()
    _grouped(book)


@on_loop
async def test_what_takes_too_long_is_given_up(book: Book) -> None:
    with held(book):
        late = book.lane.submit(insert(1), within_s=0.001)
        with pytest.raises(TimeoutError, match=r"no answer in 0\.001 s"):
            await late
    assert await book.lane.submit(insert(2)) == 2
    assert book.numbers() == [2]


@on_loop
async def test_what_is_done_is_not_given_up_however_late_the_loop_hears_of_it(book: Book) -> None:
    cut: list[Cut] = []

    class Cut(Unwatched):
        def cut(self) -> None:
            cut.append(self)

    one, next_began = Lane("one", book.connect, Cut), Event()
    done = one.submit(lambda _: 1, within_s=0)
    one.submit(lambda _: next_began.set())
    assert next_began.wait(PATIENCE_S)
    assert (await done, cut) == (1, [])
    one.close()


@on_loop
async def test_after_its_end_it_does_nothing(book: Book) -> None:
    book.lane.close()
    with pytest.raises(StoreError, match="the store is closed"):
        await book.lane.submit(insert(1))


@on_loop
async def test_its_end_does_not_wait_for_what_hangs(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CLOSE_S", 0.001)
    with held(book):
        book.lane.close()
        assert all(thread.is_alive() for thread in book.lane._threads)


class Said(Exception):
    """What a driver says of a transaction."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "invalidated", "tries"), [("40P01", False, 2), ("57P01", True, 2), ("57014", False, 1)]
)
def test_what_can_be_done_again_is_once(tmp_path: Path, sqlstate: str, invalidated: bool, tries: int) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/m.db", poolclass=NullPool)
    one = Kept(engine.connect, Unwatched)
    tried: list[Connection] = []

    def work(connection: Connection) -> None:
        tried.append(connection)
        raise OperationalError("COMMIT", None, Said(sqlstate), connection_invalidated=invalidated)

    with pytest.raises(OperationalError):
        one.do(work)
    assert len({id(connection) for connection in tried}) == tries
    one.drop()


@on_loop
async def test_a_commit_that_was_not_heard_of_is_not_done_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Kept._once
    deaf = [True]

    def unheard(connection: Connection, work: Callable[[Connection], Any]) -> Any:
        result = once(connection, work)
        if deaf.pop() if deaf else False:
            raise OperationalError("COMMIT", None, Said("08006"), connection_invalidated=True)
        return result

    async with remembering(url) as state:
        monkeypatch.setattr(Kept, "_once", staticmethod(unheard))
        whole = await kept(state, "1", "one")
        deaf.append(True)
        begun = new(previous_id=whole.id, root_id=whole.id)
        await state.begin(begun, ALL, 0, 1)
        deaf.append(True)
        await state.finish(end(begun, turn("2", "two")))
        assert deaf == []
        assert texts((await state.history("a", begun.id, ALL)).items) == ["1", "one", "2", "two"]
    store = Store.open(url)
    for doing in (store.add_key(KEY), store.revoke_key(KEY.id, 7)):
        deaf.append(True)
        assert await doing in (None, True)
    assert [key.revoked_ms for key in await store.keys()] == [7]
    await store.close()


# -- files and servers that come and go ---------------------------------------------------------------


@on_loop
async def test_a_file_that_is_put_in_place_of_another_is_used(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with remembering(f"sqlite:///{path}") as state:
        first = await kept(state, "1", "one")
        backup, source = sqlite3.connect(tmp_path / "copy.db"), sqlite3.connect(path)
        source.backup(backup)
        source.close()
        backup.close()
        second = await kept(state, "2", "two", previous_id=first.id)
        path.unlink()
        with pytest.raises(StoreError, match="no such table"):
            await kept(state)
        for file in tmp_path.glob("m.db*"):
            file.unlink()
        shutil.move(tmp_path / "copy.db", path)
        assert texts((await state.history("a", first.id, ALL)).items) == ["1", "one"]
        third = await kept(state, "3", "three", previous_id=first.id)
        assert texts((await state.history("a", third.id, ALL)).items) == ["1", "one", "3", "three"]
        assert second.id not in {row.id for row in (await state.history("a", third.id, ALL)).items}


@on_loop
async def test_a_file_that_cannot_be_looked_at_cannot_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with remembering(f"sqlite:///{folder}/m.db") as state:
        await kept(state)
        folder.rename(tmp_path / "elsewhere")
        folder.touch()
        with pytest.raises(StoreError, match=r"m\.db: unable to open database file"):
            await state.check()


def test_a_connection_that_cannot_be_watched_is_not_used(book: Book) -> None:
    class Full(Unwatched):
        def __init__(self, connection: Connection) -> None:
            raise OSError("Too many open files")

    one = Kept(book.connect, Full)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many"):
            one.do(insert(1))
    assert not book.numbers()


@on_loop
async def test_a_file_that_somebody_holds_is_waited_for_and_no_longer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with remembering(url, statement_s=0.05) as state:
        first = await kept(state)
        holder = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            await kept(state)
        assert len((await state.history("a", first.id, ALL)).items) == 2  # who reads need not wait
        holder.close()
        await kept(state)


@on_loop
async def test_a_server_that_comes_back_is_used_at_once(server: Postgres) -> None:
    async with remembering(server.make("comes-back")) as state:
        first = await kept(state, "1", "one")
        server.kill()
        for doing in (kept(state), state.history("a", first.id, ALL), state.check()):
            with pytest.raises(StoreError, match=r"^postgresql at"):
                await doing
        server.start()
        second = await kept(state, "2", "two", previous_id=first.id)
        server.kill()
        server.start()
        await state.begin(new(), ALL, 0, 1)
        assert texts((await state.history("a", second.id, ALL)).items) == ["1", "one", "2", "two"]


@on_loop
async def test_a_statement_that_takes_too_long_is_given_up(server: Postgres) -> None:
    url = server.make("slow-turns")
    async with remembering(url, statement_s=0.05) as state:
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE responses")
            with pytest.raises(StoreError, match="due to statement timeout"):
                await kept(state)
        await kept(state)


@on_loop
async def test_a_server_that_stands_still_takes_its_connection_with_it_and_no_more(server: Postgres) -> None:
    def number(connection: Connection) -> int:
        return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    lanes = connections.lanes(Store.open(server.make("still")).place, "test", 2)
    for asked in (lanes.read, lanes.write):
        still = await asked(number)
        with stopped(still):
            with pytest.raises(StoreError, match=r"^postgresql at a socket: no answer in 0\.01 s"):
                await asked(number, 0.01)
            assert await asked(number) != still
    await lanes.close()


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """While this process does nothing."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@on_loop
async def test_a_server_whose_machine_is_gone_is_not_waited_for_long(server: Postgres) -> None:
    def told(connection: Connection) -> dict[str, str]:
        driver = connection.connection.driver_connection
        assert driver is not None
        parameters: dict[str, str] = driver.info.get_parameters()
        return parameters

    lanes = connections.lanes(Store.open(server.make("vanished")).place, "test", 2)
    for asked in (lanes.read, lanes.write):
        idle, interval, count, unheard = await asked(lambda c: [int(told(c)[name]) for name in VANISHED])
        assert max(idle + interval * count, unheard / 1000) < CALL_S
    await lanes.close()


@on_loop
async def test_who_reads_much_keeps_no_turn_from_being_written(url: str) -> None:
    free = Event()
    async with remembering(url) as state:
        conversation = await talk(state)
        reads = [asyncio.create_task(state._read("slow", lambda _: free.wait(PATIENCE_S))) for _ in range(9)]
        await asyncio.sleep(0)
        begun = new()
        await kept(state)
        await state.begin(begun, ALL, NOW, LEASE)
        await state.finish(end(begun, turn("q", "a")))
        await spoken(state, conversation, "q", "a")
        assert not any(read.done() for read in reads)
        free.set()
        assert all(await asyncio.gather(*reads))
