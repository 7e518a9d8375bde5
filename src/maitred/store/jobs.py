"""Responses made in the background: a queue that any gateway takes from, and what running ones have streamed.

Who took a job holds its response's lease. When that lapses the sweeper puts the job back, for another to
take.
Whoever changes a job holds its response's row first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs
from sqlalchemy import BindParameter, Connection, bindparam, case, func, select, update

from maitred.store import turns
from maitred.store.state_rows import (
    CANCELLED,
    QUEUED,
    RUNNING,
    UNFINISHED,
    EventRow,
    JobRow,
    Lost,
    NewJob,
    NewResponse,
    QueueFull,
    ResponseRow,
)
from maitred.store.state_tables import events, jobs, responses
from maitred.store.written import insert_new

EVENT_CHUNKS_AT_ONCE = 200

_J, _R, _E = jobs.c, responses.c, events.c
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_TENANT: BindParameter[str] = bindparam("tenant_")
_ID: BindParameter[str] = bindparam("id_")
_WAITING = select(func.count(), func.coalesce(func.sum(case((_J.tenant == _TENANT, 1), else_=0)), 0)).where(
    _J.waiting
)
_turns = (
    select(
        _J.response_id,
        _J.waiting,
        _J.created_ms,
        _J.expires_ms,
        func.row_number()
        .over(partition_by=_J.tenant, order_by=(_J.created_ms, _J.response_id))
        .label("turn"),
    )
    .where(
        _J.band.in_(bindparam("bands", expanding=True)),
        _J.tenant.not_in(bindparam("passing", expanding=True)),
    )
    .subquery()
)
_NEXT = (
    select(_turns.c.response_id)
    .where(_turns.c.waiting, _turns.c.expires_ms > bindparam("now"))
    .order_by(_turns.c.turn, _turns.c.created_ms, _turns.c.response_id)
    .limit(bindparam("limit"))
)
"""Tenants in turn, where what of a tenant is running counts as turns that it has had."""
_FREE = select(_R.id).where(_R.id.in_(_IDS), _R.status == QUEUED).with_for_update(skip_locked=True)
_TAKE = update(jobs).where(_J.response_id.in_(_IDS)).values(waiting=False, attempts=_J.attempts + 1)
_START = (
    update(responses)
    .where(_R.id.in_(_IDS))
    .values(status=RUNNING, maker=bindparam("maker_"), lease_ms=bindparam("lease"))
)
_TAKEN = select(_J.band, _J.request, _J.attempts, _J.expires_ms, *turns.RESPONSE).where(
    _J.response_id == _R.id, _R.id.in_(_IDS)
)
_CANCEL = (
    update(responses)
    .where(_R.id == _ID, _R.tenant == _TENANT, _R.background, _R.status.in_(UNFINISHED))
    .values(status=CANCELLED, lease_ms=None)
)
_MADE = (
    select(_R.id)
    .where(_R.id == _ID, _R.tenant == _TENANT, _R.status == RUNNING, _R.maker == bindparam("maker_"))
    .with_for_update(read=True)
)
_STREAMED = (
    select(_E.first, _E.last, _E.data)
    .where(_E.response_id == _ID, _E.tenant == _TENANT, _E.last > bindparam("after"))
    .order_by(_E.last)
    .limit(EVENT_CHUNKS_AT_ONCE)
)


def submit(
    connection: Connection, new: NewResponse, job: NewJob, now_ms: int, waiting_max: int, own_max: int
) -> None:
    """Queue a response; no more than so many in all and of its tenant. It takes its conversation's turn now.

    Raises QueueFull, Repeated, NotKept, Locked.
    """
    waiting, own = connection.execute(_WAITING, {"tenant_": new.tenant}).one()
    if waiting >= waiting_max or own >= own_max:
        raise QueueFull(waiting, own)
    if not turns.open_(connection, new, QUEUED, now_ms):
        return
    row = {
        "response_id": new.id,
        "tenant": new.tenant,
        "band": job.band,
        "waiting": True,
        "attempts": 0,
        "created_ms": new.created_ms,
        "expires_ms": job.expires_ms,
        "request": job.request.decode(),
    }
    connection.execute(jobs.insert(), row)


def waiting(connection: Connection) -> int:
    """How many jobs wait."""
    count: int = connection.execute(select(func.count()).where(_J.waiting)).scalar_one()
    return count


def take(
    connection: Connection,
    maker: str,
    bands: Sequence[str],
    limit: int,
    now_ms: int,
    lease_ms: int,
    passing: Sequence[str] = (),
) -> list[JobRow]:
    """The next of these bands, which are the maker's until `lease_ms`. Others that take get other ones.

    Those of the tenants `passing` are passed by.
    """
    asked = {"bands": list(bands), "passing": list(passing), "now": now_ms, "limit": limit}
    wanted = connection.execute(_NEXT, asked).scalars().all()
    ids = connection.execute(_FREE, {"ids": wanted}).scalars().all() if wanted else ()
    if not ids:
        return []
    connection.execute(_TAKE, {"ids": ids})
    connection.execute(_START, {"ids": ids, "maker_": maker, "lease": lease_ms})
    rows: dict[str, JobRow] = {}
    for band, request, attempts, expires_ms, *row in connection.execute(_TAKEN, {"ids": ids}):
        response = turns.response_row(row)
        rows[response.id] = JobRow(response, band, request.encode(), attempts, expires_ms)
    return [rows[id_] for id_ in wanted if id_ in rows]


def cancel(connection: Connection, tenant: str, id_: str) -> ResponseRow:
    """End a response of the background, at once; one that has ended comes back as it is. Raises NotKept."""
    row = turns.response(connection, tenant, id_)
    if row.conversation_id is not None:
        turns.hold(connection, tenant, row.conversation_id)
    if connection.execute(_CANCEL, {"id_": id_, "tenant_": tenant}).rowcount:
        turns.release(connection, row)
    return turns.response(connection, tenant, id_)


def append_events(
    connection: Connection, maker: str, tenant: str, id_: str, chunk: EventRow, now_ms: int
) -> None:
    """Keep what was streamed. Raises Lost where it is not to be made any more."""
    if connection.execute(_MADE, {"id_": id_, "tenant_": tenant, "maker_": maker}).first() is None:
        raise Lost(id_)
    row = structs.asdict(chunk) | {"response_id": id_, "tenant": tenant, "created_ms": now_ms}
    insert_new(connection, events, row | {"data": chunk.data.decode()})


def streamed(connection: Connection, tenant: str, id_: str, after: int) -> tuple[ResponseRow, list[EventRow]]:
    """What was streamed after the event of this number, some chunks at a time. Raises NotKept.

    The response was read first: when it has ended all events up to its end are there.
    """
    row = turns.response(connection, tenant, id_)
    found = connection.execute(_STREAMED, {"id_": id_, "tenant_": tenant, "after": after})
    return row, [EventRow(first, last, data.encode()) for first, last, data in found]
