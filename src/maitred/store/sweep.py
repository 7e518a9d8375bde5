"""What time ends: leases that lapsed, jobs that waited too long, and what is kept no longer. In small parts.

Any gateway sweeps; what another is working on is passed by. A chain lives as long as its newest response:
what a living one builds upon is given that one's time.
"""

from __future__ import annotations

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    select,
    tuple_,
    update,
)

from maitred.store import conversations as talks
from maitred.store import turns
from maitred.store.state_rows import EXPIRED, FAILED, QUEUED, RUNNING, UNFINISHED
from maitred.store.state_tables import conversations, events, jobs, responses

PART = 25
ATTEMPTS_MAX = 3
"""So often a job is begun whose gateways die."""

_J, _R, _C, _E = jobs.c, responses.c, conversations.c, events.c
_NOW: BindParameter[int] = bindparam("now")
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_LAPSED = (
    select(_R.id)
    .where(_R.lease_ms < _NOW, _R.status == RUNNING)
    .limit(PART)
    .with_for_update(skip_locked=True)
)
_AGAIN = select(_J.response_id).where(
    _J.response_id.in_(_IDS),
    _J.attempts < ATTEMPTS_MAX,
    ~exists().where(_E.response_id == _J.response_id),  # what somebody may have read is not said differently
)
_REQUEUE = (
    update(responses).where(_R.id.in_(_IDS)).values(status=QUEUED, lease_ms=None),
    update(jobs).where(_J.response_id.in_(_IDS)).values(waiting=True),
)
_WAITED = (
    select(_R.id)
    .where(_R.id == _J.response_id, _R.status == QUEUED, _J.expires_ms <= _NOW)
    .limit(PART)
    .with_for_update(of=responses, skip_locked=True)
)
_EXPIRE = (
    update(responses).where(_R.id.in_(_IDS)).values(status=FAILED, reason=EXPIRED),
    delete(jobs).where(_J.response_id.in_(_IDS)),
)
_OLD = (
    select(_R.id, _R.root_id)
    .where(_R.expires_ms <= _NOW, _R.status.not_in(UNFINISHED))
    .order_by(_R.expires_ms)
    .limit(PART)
    .with_for_update(skip_locked=True)
)
_ALIVE = (
    select(_R.root_id, func.max(_R.expires_ms))
    .where(_R.root_id.in_(_IDS))
    .group_by(_R.root_id)
    .having(func.max(_R.expires_ms) > _NOW)
)
_PROLONG = update(responses).where(_R.id.in_(_IDS)).values(expires_ms=bindparam("until"))
_OLD_TALKS = select(_C.id).where(_C.expires_ms <= _NOW).limit(PART).with_for_update(skip_locked=True)
_old = select(_E.response_id, _E.last).where(_E.created_ms < bindparam("before")).limit(PART)
_OLD_EVENTS = delete(events).where(tuple_(_E.response_id, _E.last).in_(_old))


def sweep(connection: Connection, now_ms: int, events_ttl_ms: int) -> bool:
    """Do a part of what is due; whether there may be more."""
    parts = (
        _lapsed(connection, now_ms),
        _waited(connection, now_ms),
        _old_responses(connection, now_ms),
        _old_talks(connection, now_ms),
        connection.execute(_OLD_EVENTS, {"before": now_ms - events_ttl_ms}).rowcount,
    )
    return max(parts) >= PART


def _lapsed(connection: Connection, now_ms: int) -> int:
    """Whose makers died: a job is queued again where it can be made anew, all else has failed."""
    ids = _ids(connection, _LAPSED, now_ms)
    again = set(connection.execute(_AGAIN, {"ids": ids}).scalars()) if ids else set()
    if again:
        for statement in _REQUEUE:
            connection.execute(statement, {"ids": list(again)})
    if lost := [id_ for id_ in ids if id_ not in again]:
        turns.lose(connection, lost)
    return len(ids)


def _waited(connection: Connection, now_ms: int) -> int:
    """Jobs that nobody took in time have failed."""
    if ids := _ids(connection, _WAITED, now_ms):
        for statement in _EXPIRE:
            connection.execute(statement, {"ids": ids})
    return len(ids)


def _old_responses(connection: Connection, now_ms: int) -> int:
    """Chains of which all are old go; the old of a living one get the time of its newest."""
    rows = connection.execute(_OLD, {"now": now_ms}).all()
    if not rows:
        return 0
    roots = list({row.root_id for row in rows})
    newest = connection.execute(_ALIVE, {"ids": roots, "now": now_ms})
    alive: dict[str, int] = {root: until for root, until in newest}  # noqa: C416 - rows are no pairs to mypy
    for root, until in alive.items():
        prolonged = [row.id for row in rows if row.root_id == root]
        connection.execute(_PROLONG, {"ids": prolonged, "until": until})
    if gone := [row.id for row in rows if row.root_id not in alive]:
        turns.wipe(connection, gone)
    return len(rows)


def _old_talks(connection: Connection, now_ms: int) -> int:
    if ids := _ids(connection, _OLD_TALKS, now_ms):
        talks.wipe(connection, ids)
    return len(ids)


def _ids(connection: Connection, asked: Select[str], now_ms: int) -> list[str]:
    return list(connection.execute(asked, {"now": now_ms}).scalars())
