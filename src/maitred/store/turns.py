"""Responses as they come and go: kept whole at their end, or begun, made and finished.

Whoever works on a response and on its conversation takes the conversation's row first, so no two ever wait
for each other. A response that is being made is its maker's (a gateway's) for as long as it is `in_progress`:
what ends it otherwise (cancelling, deleting, a lease that lapsed) changes that, and the maker comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, case, delete, func, select, update

from maitred.store import history
from maitred.store.state_rows import (
    FAILED,
    LOST,
    RUNNING,
    UNFINISHED,
    Bounds,
    Finish,
    History,
    Listed,
    Locked,
    Lost,
    NewItem,
    NewResponse,
    NotKept,
    Page,
    Repeated,
    ResponseRow,
    possible,
)
from maitred.store.state_tables import NEVER_MS, conversations, events, items, jobs, responses
from maitred.store.written import PASSING, SERVER, insert_new, inserting, updating, write

_R, _I, _C = responses.c, items.c, conversations.c
_ID: BindParameter[str] = bindparam("id_")
_TENANT: BindParameter[str] = bindparam("tenant_")
_MAKER: BindParameter[str] = bindparam("maker_")
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)

RESPONSE = (
    _R.id,
    _R.tenant,
    _R.model,
    _R.root_id,
    _R.previous_id,
    _R.conversation_id,
    _R.status,
    _R.reason,
    _R.background,
    _R.snapshot,
    _R.created_ms,
    _R.expires_ms,
    _R.lease_ms,
    _R.digest,
)
"""The columns of a ResponseRow, in its order."""

_FIND = select(*RESPONSE).where(_R.id == _ID, _R.tenant == _TENANT)
_FIND_KEY = select(*RESPONSE).where(_R.tenant == _TENANT, _R.idempotency_key == bindparam("key"))
_HOLD = select(_C.turn).where(_C.id == _ID, _C.tenant == _TENANT).with_for_update()
_FREE = update(conversations).where(_C.id == _ID, _C.turn == bindparam("turn_")).values(turn=None)
_NEXT = select(func.coalesce(func.max(_I.seq) + 1, 0)).where(_I.conversation_id == _ID)
_FINISH = (
    update(responses)
    .where(_R.id == _ID, _R.tenant == _TENANT, _R.status == RUNNING, _R.maker == _MAKER)
    .values(
        status=bindparam("status_"),
        reason=bindparam("reason_"),
        snapshot=bindparam("snapshot_"),
        item_count=bindparam("count_"),
        item_bytes=bindparam("bytes_"),
        conversation_seq=bindparam("seq_"),
        lease_ms=None,
    )
    .returning(_R.id)
)
_KEPT, _ENDED = inserting(), updating(_FINISH)
_RUNNING = select(_R.status, _R.lease_ms).where(_R.id == _ID)
_TAKE = (
    update(conversations)
    .where(_C.id == _ID)
    .values(
        turn=bindparam("turn_"),
        expires_ms=case((_C.expires_ms > bindparam("until"), _C.expires_ms), else_=bindparam("until")),
    )
)
_RENEW = (
    update(responses)
    .where(_R.id.in_(_IDS), _R.status == RUNNING, _R.maker == _MAKER)
    .values(lease_ms=bindparam("lease"))
    .returning(_R.id)
)
_RENEW_PASSING = _RENEW.returning(PASSING)
_LOSE = (
    update(responses)
    .where(_R.id.in_(_IDS), _R.status == RUNNING)
    .values(status=FAILED, reason=LOST, lease_ms=None)
)
_DROP_JOBS = delete(jobs).where(jobs.c.response_id.in_(_IDS))
_WIPE = (
    delete(responses).where(_R.id.in_(_IDS)),  # first: see jobs.py
    delete(items).where(_I.response_id.in_(_IDS), _I.conversation_id.is_(None)),
    update(items).where(_I.response_id.in_(_IDS)).values(response_id=None),
    delete(events).where(events.c.response_id.in_(_IDS)),
    _DROP_JOBS,
)


# -- reading ------------------------------------------------------------------------------------------


def check(connection: Connection) -> None:
    """See that the table is there."""
    connection.execute(_FIND, {"id_": "", "tenant_": ""})


def response(connection: Connection, tenant: str, id_: str) -> ResponseRow:
    """This response, whatever has become of it. Raises NotKept."""
    row = connection.execute(_FIND, {"id_": possible(id_), "tenant_": tenant}).first()
    if row is None:
        raise NotKept(id_)
    return response_row(row)


def repeated(connection: Connection, tenant: str, key: str) -> ResponseRow | None:
    """The response that was asked for with this idempotency key."""
    row = connection.execute(_FIND_KEY, {"tenant_": tenant, "key": key}).first()
    return None if row is None else response_row(row)


def response_items(connection: Connection, tenant: str, id_: str, page: Page, output: bool | None) -> Listed:
    """What a response was told and said itself, or one of both; not what it builds upon."""
    response(connection, tenant, id_)
    mine = _I.response_id == id_
    return history.listed(connection, tenant, mine if output is None else mine & (_I.output == output), page)


# -- a turn -------------------------------------------------------------------------------------------


def keep(connection: Connection, new: NewResponse, end: Finish) -> None:
    """A response that is over, at once; of no conversation. Raises Repeated."""
    row = _row(new, end.status) | {
        "reason": end.reason,
        "snapshot": end.snapshot.decode(),
        "item_count": len(end.items),
        "item_bytes": _bytes(end.items),
    }
    if not write(connection, _KEPT, row, end):
        _see_key(connection, new)


def begin(
    connection: Connection, maker: str, new: NewResponse, bounds: Bounds, now_ms: int, lease_ms: int
) -> History:
    """A response that is being made. Of a conversation it takes the turn, and gives what was said there.

    Raises Repeated, NotKept, Locked, TooLong.
    """
    open_(connection, new, RUNNING, now_ms, passing=True, maker=maker, lease_ms=lease_ms)
    if new.conversation_id is None:
        return History(new.root_id or new.id)
    return history.of_conversation(connection, new.tenant, new.conversation_id, bounds)


def open_(
    connection: Connection,
    new: NewResponse,
    status: str,
    now_ms: int,
    *,
    passing: bool = False,
    **values: object,
) -> bool:
    """A response that has not ended, with its turn in its conversation; False where it is there already.

    `values` are more of its row. `passing`: a loss of power may undo it. Raises Repeated, NotKept, Locked.
    """
    if new.idempotency_key is not None:  # before the turn: it may be the same request that holds it
        _see_key(connection, new)
    if new.conversation_id is not None:
        _take_turn(connection, new, new.conversation_id, now_ms)
    if insert_new(connection, responses, _row(new, status) | values, passing=passing):
        return True
    _see_key(connection, new)  # else it is there by a commit that was not heard of
    return False


def renew(connection: Connection, maker: str, ids: Sequence[str], lease_ms: int) -> set[str]:
    """Say that the makers of these live; which of them are still this one's. A loss of power may undo it."""
    asked = {"ids": list(ids), "maker_": maker, "lease": lease_ms}
    statement = _RENEW_PASSING if connection.dialect.name == SERVER else _RENEW
    return set(connection.execute(statement, asked).scalars())


def finish(connection: Connection, maker: str, end: Finish) -> None:
    """A response that was begun is over. Raises Lost."""
    conversation_id, seq = end.conversation_id, None
    if conversation_id is not None and hold(connection, end.tenant, conversation_id) == end.id and end.whole:
        seq = connection.execute(_NEXT, {"id_": conversation_id}).scalar_one()
    asked = {"id_": end.id, "tenant_": end.tenant}
    values = {
        "maker_": maker,
        "status_": end.status,
        "reason_": end.reason,
        "snapshot_": end.snapshot.decode(),
        "count_": len(end.items),
        "bytes_": _bytes(end.items),
        "seq_": seq,
    }
    into = None if seq is None else conversation_id
    if not write(connection, _ENDED, asked | values, end, conversation_id=into, seq=seq or 0):
        found = connection.execute(_FIND, asked).first()
        row = None if found is None else response_row(found)
        if row is None or (row.status, row.snapshot) != (end.status, end.snapshot):
            raise Lost(end.id)
        return  # it was this very end, of which the database could not tell that it came through
    release(connection, end)


def remove(connection: Connection, tenant: str, id_: str) -> None:
    """Delete a response and what nobody else has of it, also while it is made. Raises NotKept."""
    row = response(connection, tenant, id_)
    if row.conversation_id is not None:
        hold(connection, tenant, row.conversation_id)
    wipe(connection, [id_])
    release(connection, row)


# -- parts, for whoever else changes responses -----------------------------------------------------------


def hold(connection: Connection, tenant: str, conversation_id: str) -> str | None:
    """Keep others from this conversation until the commit; the response whose turn it is there, if one's."""
    return connection.execute(_HOLD, {"id_": conversation_id, "tenant_": tenant}).scalar()


def see_free(connection: Connection, tenant: str, conversation_id: str, now_ms: int, for_: str = "") -> None:
    """Hold a conversation in which no turn but this is running. Raises NotKept, Locked."""
    found = connection.execute(_HOLD, {"id_": possible(conversation_id), "tenant_": tenant}).first()
    if found is None:
        raise NotKept(conversation_id)
    if found.turn is None or found.turn == for_:
        return
    running = connection.execute(_RUNNING, {"id_": found.turn}).first()
    if running is None or running.status not in UNFINISHED:
        return
    if running.lease_ms is None or running.lease_ms >= now_ms:
        raise Locked(found.turn)
    lose(connection, [found.turn])


def lose(connection: Connection, ids: Sequence[str]) -> None:
    """These are made by nobody any more."""
    connection.execute(_LOSE, {"ids": ids})
    connection.execute(_DROP_JOBS, {"ids": ids})


def release(connection: Connection, over: ResponseRow | Finish) -> None:
    """It is not made any more: its conversation is free, and its job done."""
    if over.conversation_id is not None:
        connection.execute(_FREE, {"id_": over.conversation_id, "turn_": over.id})
    if over.background:
        connection.execute(_DROP_JOBS, {"ids": [over.id]})


def wipe(connection: Connection, ids: Sequence[str]) -> None:
    """Delete responses, and their items that are in no conversation."""
    for statement in _WIPE:
        connection.execute(statement, {"ids": ids})


def response_row(row: Iterable[Any]) -> ResponseRow:
    """A row of RESPONSE, as a value."""
    values = dict(zip(ResponseRow.__struct_fields__, row, strict=True))
    values["snapshot"] = values["snapshot"].encode()
    if values["expires_ms"] == NEVER_MS:
        values["expires_ms"] = None
    return ResponseRow(**values)


def _take_turn(connection: Connection, new: NewResponse, conversation_id: str, now_ms: int) -> None:
    see_free(connection, new.tenant, conversation_id, now_ms, for_=new.id)
    expires_ms = NEVER_MS if new.expires_ms is None else new.expires_ms
    connection.execute(_TAKE, {"id_": conversation_id, "turn_": new.id, "until": expires_ms})


def _row(new: NewResponse, status: str) -> dict[str, object]:
    return {
        "id": new.id,
        "tenant": new.tenant,
        "model": new.model,
        "root_id": new.root_id or new.id,
        "previous_id": new.previous_id,
        "conversation_id": new.conversation_id,
        "conversation_seq": None,
        "status": status,
        "reason": None,
        "background": new.background,
        "created_ms": new.created_ms,
        "expires_ms": NEVER_MS if new.expires_ms is None else new.expires_ms,
        "maker": None,
        "lease_ms": None,
        "idempotency_key": new.idempotency_key,
        "digest": new.digest,
        "item_count": 0,
        "item_bytes": 0,
        "snapshot": new.snapshot.decode(),
    }


def _see_key(connection: Connection, new: NewResponse) -> None:
    """See that its idempotency key is not another's. Raises Repeated."""
    if new.idempotency_key is not None:
        there = repeated(connection, new.tenant, new.idempotency_key)
        if there is not None and there.id != new.id:
            raise Repeated(there)


def _bytes(kept: Sequence[NewItem]) -> int:
    return sum(len(item.data) for item in kept)
