"""Responses made in the background: a queue that any gateway takes from, and what running ones have streamed.

Who took a job holds its response's lease. When that lapses the sweeper puts the job back, for another to
take.
Whoever changes a job holds its response's row first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import structs
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    literal,
    select,
    update,
)

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
    ResponseRow,
)
from maitred.store.state_tables import events, jobs, responses
from maitred.store.written import insert_new

EVENT_CHUNKS_AT_ONCE = 200
TENANTS = 64
"""So many are compared when a job is taken; where more of them wait it is others each time, round about."""

_J, _R, _E = jobs.c, responses.c, events.c
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_TENANT: BindParameter[str] = bindparam("tenant_")
_ID: BindParameter[str] = bindparam("id_")
_BAND: BindParameter[str] = bindparam("band_")
_WAITING = select(_J.tenant, func.count()).where(_J.waiting).group_by(_J.band, _J.tenant)


def _next_tenant(after: ColumnElement[str]) -> ColumnElement[str]:
    """The next of those that have jobs waiting, by name and round about."""
    mine = select(func.min(_J.tenant)).where(_J.band == _BAND, _J.waiting)
    later, first = mine.where(_J.tenant > after).scalar_subquery(), mine.scalar_subquery()
    return func.coalesce(later, first)


def _heads() -> Select[Any]:
    """The job of each of some tenants whose turn it is, those first of which the fewest are running."""
    step = literal(1).label("step")
    walk = select(_next_tenant(bindparam("after")).label("tenant"), step).cte(recursive=True)
    further = select(_next_tenant(walk.c.tenant), walk.c.step + 1).where(
        walk.c.step < bindparam("tenants"), walk.c.tenant.is_not(None)
    )
    walk = walk.union_all(further)
    passing: BindParameter[list[str]] = bindparam("passing", expanding=True)
    of = select(walk.c.tenant).distinct().where(walk.c.tenant.not_in(passing)).subquery()
    theirs = (_J.band == _BAND, _J.tenant == of.c.tenant)
    running = select(func.count()).where(*theirs, ~_J.waiting).scalar_subquery().label("running")
    waiting = select(_J.response_id).where(*theirs, _J.waiting, _J.expires_ms > bindparam("now"))
    head = waiting.order_by(_J.expires_ms, _J.response_id).limit(1).scalar_subquery()
    heads = select(running, head.label("id")).select_from(of).subquery()
    first = select(heads.c.running, heads.c.id).join(jobs, _J.response_id == heads.c.id)
    return first.order_by(heads.c.running, _J.expires_ms, _J.response_id).limit(bindparam("limit"))


_HEADS = _heads()
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


def submit(connection: Connection, new: NewResponse, job: NewJob, now_ms: int) -> None:
    """Queue a response. It takes its conversation's turn now. Raises Repeated, NotKept, Locked."""
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


def waiting(connection: Connection) -> Counter[str]:
    """How many jobs wait, by tenant."""
    found = Counter[str]()
    for tenant, count in connection.execute(_WAITING):
        found[tenant] += count
    return found


def take(
    connection: Connection,
    maker: str,
    band: str,
    limit: int,
    now_ms: int,
    lease_ms: int,
    passing: Sequence[str] = (),
    after: str = "",
) -> list[JobRow]:
    """The next of this band, which are the maker's until `lease_ms`. Others that take get other ones.

    Those of the tenants `passing` are passed by. Where too many tenants wait, those `after` this one are
    compared.
    """
    asked = {"band_": band, "passing": list(passing), "tenants": TENANTS + len(passing), "now": now_ms}
    ids: list[str] = []
    while len(ids) < limit:
        heads = connection.execute(_HEADS, asked | {"limit": limit - len(ids), "after": after}).all()
        wanted = [head.id for head in heads if head.running == heads[0].running]
        free = connection.execute(_FREE, {"ids": wanted}).scalars().all() if wanted else ()
        if not free:
            break
        connection.execute(_TAKE, {"ids": free})
        ids += [id_ for id_ in wanted if id_ in free]
    if not ids:
        return []
    connection.execute(_START, {"ids": ids, "maker_": maker, "lease": lease_ms})
    rows: dict[str, JobRow] = {}
    for of, request, attempts, expires_ms, *row in connection.execute(_TAKEN, {"ids": ids}):
        response = turns.response_row(row)
        rows[response.id] = JobRow(response, of, request.encode(), attempts, expires_ms)
    return [rows[id_] for id_ in ids]


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
