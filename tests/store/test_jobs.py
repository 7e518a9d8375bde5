"""The queue of the background on both databases: each job is one gateway's, and tenants take turns."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from maitred.store import jobs
from maitred.store.state import StateStore
from maitred.store.state_rows import (
    CANCELLED,
    COMPLETED,
    EXPIRED,
    FAILED,
    LOST,
    QUEUED,
    RUNNING,
    EventRow,
    JobRow,
    Locked,
    Lost,
    NewJob,
    NewResponse,
    Repeated,
    StillRunning,
)
from tests.store.place import (
    ALL,
    DAY,
    LEASE,
    NOW,
    end,
    kept,
    new,
    on_loop,
    remembering,
    spoken,
    talk,
    texts,
    turn,
)
from tests.store.postgres import Postgres


async def queued(state: StateStore, tenant: str = "a", band: str = "batch", **more: Any) -> NewResponse:
    response = new(tenant, background=True, **more)
    await state.submit(response, NewJob(band, b'{"input":"\\u00e4"}', NOW + DAY), NOW)
    return response


async def taken(state: StateStore, limit: int = 10, now_ms: int = NOW, lease_ms: int = LEASE) -> list[JobRow]:
    return await state.take("batch", limit, now_ms, lease_ms)


@on_loop
async def test_a_job_is_queued_taken_and_done(url: str) -> None:
    async with remembering(url) as state:
        first = await kept(state, "1", "one")
        response = await queued(state, previous_id=first.id, root_id=first.id)
        assert (await state.response("a", response.id)).status == QUEUED
        with pytest.raises(StillRunning):
            await state.history("a", response.id, ALL)
        assert await state.take("chat", 10, NOW, LEASE) == []
        (job,) = await taken(state)
        assert (job.response.id, job.response.status, job.response.lease_ms) == (response.id, RUNNING, LEASE)
        assert job.response.previous_id == first.id
        assert (job.band, job.request, job.attempts, job.expires_ms) == (
            "batch",
            b'{"input":"\\u00e4"}',
            1,
            NOW + DAY,
        )
        assert await taken(state) == []
        assert await state.renew([response.id], LEASE + 1) == {response.id}
        await state.finish(end(response, turn("2", "two")))
        assert texts((await state.history("a", response.id, ALL)).items) == ["1", "one", "2", "two"]
        assert {row.table for row in await state.stats()} == {"responses", "items"}


@on_loop
async def test_gateways_that_take_at_once_take_different_jobs(url: str) -> None:
    async with remembering(url) as state, remembering(url) as other:
        submitted = {(await queued(state)).id for _ in range(30)}
        seen: list[str] = []
        while len(seen) < 30:
            for jobs in await asyncio.gather(*(taken(one, 4) for one in (state, other, state, other))):
                seen += [job.response.id for job in jobs]
        assert len(seen) == 30
        assert set(seen) == submitted
        assert await taken(state) == []


@on_loop
async def test_tenants_take_turns_and_what_is_running_counts(url: str) -> None:
    async with remembering(url) as state:
        for tenant in "aaaab":
            await queued(state, tenant)
        assert [job.response.tenant for job in await taken(state, 3)] == ["a", "b", "a"]
        await queued(state, "b")
        assert [job.response.tenant for job in await taken(state, 1)] == ["b"]
        assert [job.response.tenant for job in await taken(state)] == ["a", "a"]


@on_loop
async def test_where_many_tenants_wait_they_are_looked_at_round_about(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TENANTS", 2)
    async with remembering(url) as state:
        for tenant in "abcdeabcde":
            await queued(state, tenant)
        served = [(await taken(state, 1))[0].response.tenant for _ in range(10)]
        assert sorted(served[:5]) == sorted(served[5:]) == list("abcde")
        assert await taken(state) == []


@on_loop
async def test_tenants_that_are_passed_by_keep_their_jobs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TENANTS", 1)
    async with remembering(url) as state:
        for tenant in "abc":
            await queued(state, tenant)
        (job,) = await state.take("batch", 3, NOW, LEASE, ["a", "b"])
        assert job.response.tenant == "c"
        assert await state.waiting() == {"a": 1, "b": 1}
        assert len(await taken(state)) == 2


def test_a_job_is_submitted_and_taken_by_as_many_steps_whatever_waits(
    empty_file: Path, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{shutil.copy(empty_file, tmp_path / 'maitred.db')}")
    job, steps = NewJob("batch", b"{}", NOW + DAY), Counter[int]()

    with engine.begin() as connection:
        driver: Any = connection.connection.driver_connection
        for waiting in (30, 3000):
            while jobs.waiting(connection).total() < waiting:
                for tenant in "abc":
                    jobs.submit(connection, new(tenant, background=True), job, NOW)
            driver.set_progress_handler(lambda of=waiting: steps.update((of,)), 1)
            jobs.submit(connection, new("a", background=True), job, NOW)
            assert len(jobs.take(connection, "m", "batch", 4, NOW, LEASE)) == 4
            driver.set_progress_handler(None, 1)
    assert steps[3000] < steps[30] * 1.1
    engine.dispose()


@on_loop
async def test_a_job_is_submitted_once(url: str) -> None:
    async with remembering(url) as state:
        response = await queued(state, idempotency_key="k")
        job = NewJob("batch", b"{}", NOW + DAY)
        await state.submit(response, job, NOW)  # after a commit that was not heard of
        with pytest.raises(Repeated):
            await queued(state, idempotency_key="k")
        assert len(await taken(state)) == 1


@on_loop
async def test_a_waiting_job_holds_its_conversation(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        response = await queued(state, conversation_id=conversation)
        for now_ms in (NOW, NOW + DAY):
            with pytest.raises(Locked):
                await state.begin(new(conversation_id=conversation), ALL, now_ms, now_ms)
        await taken(state)
        with pytest.raises(Locked):
            await state.begin(new(conversation_id=conversation), ALL, NOW, LEASE)
        await state.finish(end(response, turn("1", "one")))
        await spoken(state, conversation, "2", "two")
        assert texts((await state.conversation_history("a", conversation, ALL)).items) == [
            "1",
            "one",
            "2",
            "two",
        ]


@on_loop
async def test_cancelling_ends_a_job_in_every_phase_at_once(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        waiting = await queued(state, conversation_id=conversation)
        assert (await state.cancel("a", waiting.id)).status == CANCELLED
        assert await taken(state) == []
        running = await queued(state, conversation_id=conversation)
        await taken(state)
        row = await state.cancel("a", running.id)
        assert (row.status, row.lease_ms) == (CANCELLED, None)
        assert await state.cancel("a", running.id) == row
        assert await state.renew([running.id], LEASE) == set()
        for doing in (
            state.finish(end(running, turn("q", "a"))),
            state.append_events("a", running.id, EventRow(0, 1, b"{}"), NOW),
        ):
            with pytest.raises(Lost):
                await doing
        done = await spoken(state, conversation, "1", "one")
        assert (await state.cancel("a", done.id)).status == COMPLETED


@on_loop
async def test_who_deletes_a_job_and_who_takes_it_do_not_wait_for_each_other(server: Postgres) -> None:
    async with remembering(server.make("deletes")) as state:
        response = await queued(state)
        with psycopg.connect(server.url("deletes")) as taker:
            taker.execute("SELECT 1 FROM responses FOR UPDATE")
            deleting = asyncio.create_task(state.delete_response("a", response.id))
            while not taker.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
                await asyncio.sleep(0)
            taker.execute("SET lock_timeout = '100ms'")
            taker.execute("UPDATE jobs SET waiting = false")
        await deleting
        assert await taken(state) == []


@on_loop
async def test_a_foreground_response_is_not_cancelled(url: str) -> None:
    async with remembering(url) as state:
        response = new()
        await state.begin(response, ALL, NOW, LEASE)
        assert (await state.cancel("a", response.id)).status == RUNNING


@on_loop
async def test_a_stream_is_read_again_from_any_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(url) as state:
        response = await queued(state)
        await taken(state)
        chunks = [EventRow(first, first + 4, f'["{first}"]'.encode()) for first in range(0, 500 * 5, 5)]
        for chunk in chunks:
            await state.append_events("a", response.id, chunk, NOW)
        await state.append_events("a", response.id, chunks[-1], NOW)  # after a commit that was not heard of
        row, part = await state.events("a", response.id, -1)
        assert (row.status, part) == (RUNNING, chunks[:200])
        row, part = await state.events("a", response.id, 1002)
        assert part == chunks[200:400]
        assert (await state.events("a", response.id, 2499))[1] == []
        await state.finish(end(response))
        row, part = await state.events("a", response.id, 2493)
        assert (row.status, part) == (COMPLETED, chunks[498:])
        await state.delete_response("a", response.id)
        assert await state.stats() == []


@on_loop
async def test_a_job_of_a_dead_gateway_is_taken_again_but_not_for_ever(url: str) -> None:
    async with remembering(url) as dead, remembering(url) as state:
        response = await queued(state)
        for attempt in (1, 2, 3):
            (job,) = await taken(dead)
            assert job.attempts == attempt
            assert not await state.sweep(LEASE, DAY)
            assert (await state.response("a", response.id)).status == RUNNING
            await state.sweep(LEASE + 1, DAY)
        row = await state.response("a", response.id)
        assert (row.status, row.reason) == (FAILED, LOST)
        assert await taken(state) == []


@on_loop
async def test_what_somebody_may_have_read_of_a_dead_gateway_is_not_said_anew(url: str) -> None:
    async with remembering(url) as dead, remembering(url) as state:
        response = await queued(state)
        await taken(dead)
        await dead.append_events("a", response.id, EventRow(0, 1, b"[]"), NOW)
        await state.sweep(LEASE + 1, DAY)
        row, chunks = await state.events("a", response.id, -1)
        assert (row.status, row.reason, len(chunks)) == (FAILED, LOST, 1)
        assert await taken(state) == []


@on_loop
async def test_a_gateway_that_slept_comes_too_late(url: str) -> None:
    async with remembering(url) as slept, remembering(url) as state:
        response = await queued(state)
        await taken(slept)
        await state.sweep(LEASE + 1, DAY)
        await taken(state, now_ms=LEASE + 1, lease_ms=LEASE + DAY)
        assert await slept.renew([response.id], LEASE) == set()
        for doing in (
            slept.finish(end(response, turn("late", "late"))),
            slept.append_events("a", response.id, EventRow(0, 1, b"[]"), NOW),
        ):
            with pytest.raises(Lost):
                await doing
        await state.finish(end(response, turn("1", "one")))


@on_loop
async def test_a_job_that_nobody_took_in_time_fails(url: str) -> None:
    async with remembering(url) as state:
        conversation = await talk(state)
        response = await queued(state, conversation_id=conversation)
        assert await taken(state, now_ms=NOW + DAY) == []
        await state.sweep(NOW + DAY - 1, DAY)
        assert (await state.response("a", response.id)).status == QUEUED
        await state.sweep(NOW + DAY, DAY)
        row = await state.response("a", response.id)
        assert (row.status, row.reason) == (FAILED, EXPIRED)
        await spoken(state, conversation, "1", "one")
