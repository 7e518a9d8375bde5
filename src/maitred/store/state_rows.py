"""What is remembered of conversations, as values, and what the store refuses because of what is in it.

JSON comes and goes as bytes that the store does not look into. Times are UTC in ms since 1970. Free of any
database, like `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

QUEUED = "queued"
RUNNING = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"
FAILED = "failed"
CANCELLED = "cancelled"
UNFINISHED = (QUEUED, RUNNING)

LEFT = "left"
"""Its client left, so it holds only what was delivered."""
LOST = "lost"
"""Its gateway died."""
EXPIRED = "expired"
"""It waited too long in the queue."""


class NewItem(Struct, frozen=True):
    """An item to be kept. `output`: the model's, or of a tool that the gateway ran. No id is used twice."""

    id: str
    data: bytes
    output: bool = False


class ItemRow(Struct, frozen=True):
    """An item as it is kept; `seq` is its place in its conversation, else in its response."""

    id: str
    data: bytes
    output: bool
    response_id: str | None
    seq: int


class NewResponse(Struct, frozen=True):
    """A response to be kept. `root_id` is the first of its chain (`History.root_id`), "" if it is itself.

    `expires_ms` None: never. `digest` is of the body, for whoever comes again with the same idempotency key.
    """

    id: str
    tenant: str
    model: str
    snapshot: bytes
    created_ms: int
    expires_ms: int | None
    previous_id: str | None = None
    root_id: str = ""
    conversation_id: str | None = None
    background: bool = False
    idempotency_key: str | None = None
    digest: bytes = b""


class ResponseRow(Struct, frozen=True):
    """A response as it is kept, without its items. `reason` says more than `status`: LEFT, LOST, EXPIRED."""

    id: str
    tenant: str
    model: str
    root_id: str
    previous_id: str | None
    conversation_id: str | None
    status: str
    reason: str | None
    background: bool
    snapshot: bytes
    created_ms: int
    expires_ms: int | None
    lease_ms: int | None
    digest: bytes


class Finish(Struct, frozen=True):
    """How a response ended: its items, input before output, and what else is to be told of it.

    `conversation_id` and `background` are the response's own.
    """

    tenant: str
    id: str
    status: str
    snapshot: bytes
    items: Sequence[NewItem]
    reason: str | None = None
    conversation_id: str | None = None
    background: bool = False

    @property
    def by_itself(self) -> bool:
        """Whether nothing else is to be written for it."""
        return self.conversation_id is None and not self.background

    @property
    def whole(self) -> bool:
        """Whether it may be built upon, and its items belong to the conversation."""
        return chainable(self.status, self.reason)


class Bounds(Struct, frozen=True):
    """How much of a conversation may be remembered. `truncate`: drop the oldest turns, else TooLong."""

    items_max: int
    bytes_max: int
    truncate: bool = False


class History(Struct, frozen=True):
    """What was said before, the oldest first. `root_id`: the chain's first response, or the conversation."""

    root_id: str
    items: Sequence[ItemRow] = ()
    dropped: bool = False


class ConversationRow(Struct, frozen=True):
    """A conversation, without its items."""

    id: str
    tenant: str
    metadata: bytes
    created_ms: int
    expires_ms: int | None


class Page(Struct, frozen=True):
    """A part of a list: what comes after the item of id `after`, in the order asked for."""

    limit: int = 20
    descending: bool = True
    after: str | None = None


class Listed(Struct, frozen=True):
    """One page, and whether there is another."""

    items: Sequence[ItemRow]
    more: bool


class NewJob(Struct, frozen=True):
    """A response to be made in the background; `request` is all that a gateway needs for it."""

    band: str
    request: bytes
    expires_ms: int


class JobRow(Struct, frozen=True):
    """A job that was taken: it is its taker's until `lease_ms` of the response."""

    response: ResponseRow
    band: str
    request: bytes
    attempts: int
    expires_ms: int


class EventRow(Struct, frozen=True):
    """A chunk of a stream: its events of the numbers `first` to `last`."""

    first: int
    last: int
    data: bytes


class TableStats(Struct, frozen=True):
    """What a tenant has in a table; `bytes` is of content alone, without indexes and the like."""

    table: str
    tenant: str
    rows: int
    bytes: int


def chainable(status: str, reason: str | None) -> bool:
    """Whether a response that ended so may be built upon."""
    return reason is None and status in {COMPLETED, INCOMPLETE}


class StateConflict(Exception):  # noqa: N818 - each names what is the case
    """Not done, because of what is in the store."""


class NotKept(StateConflict):
    """Nothing of this id is this tenant's: unknown, foreign and deleted are one."""


def possible(id_: str) -> str:
    """An id that a client names, if a database can be asked for it at all. Raises NotKept."""
    if not id_.isascii() or "\0" in id_:
        raise NotKept(id_)
    return id_


class ChainBroken(NotKept):
    """Something that it builds upon was deleted, so it cannot be continued."""


class StillRunning(StateConflict):
    """What is to be built upon has not ended."""


class NotChainable(StateConflict):
    """What is to be built upon failed, was cancelled or left. Its argument is the status."""


class Locked(StateConflict):
    """Another turn of the conversation is running. Its argument is that turn's response."""


class TooLong(StateConflict):
    """More was said than may be remembered."""


class Repeated(StateConflict):
    """The idempotency key was used before."""

    def __init__(self, row: ResponseRow) -> None:
        super().__init__(row.id)
        self.row = row


class QueueFull(StateConflict):
    """As many jobs wait as may."""


class Lost(StateConflict):
    """It is not running any more: cancelled, deleted, or somebody took it for dead. Nothing was written."""
