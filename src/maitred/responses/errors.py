"""What the store refuses, as clients are told it; ids that are unknown, foreign or deleted read all alike."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.store.rows import StoreError
from maitred.store.state_rows import (
    ChainBroken,
    Locked,
    NotChainable,
    NotKept,
    QueueFull,
    StateConflict,
    StillRunning,
    TooLong,
)

PREVIOUS = "previous_response_id"


def unavailable() -> Refusal:
    """The store is away; why is the operator's, in a finding."""
    message = "what is remembered cannot be read or written for the moment"
    return Refusal(Outcome.STORE_UNAVAILABLE, message, retry_after_s=1.0)


def refusal_of(wrong: Refusal | StateConflict | StoreError, param: str | None = None) -> Refusal:
    """The refusal; `param` names the member of the request by which the store was asked."""
    match wrong:
        case Refusal():
            return wrong
        case ChainBroken():
            message = "what it builds upon was deleted, so it cannot be continued"
            return Refusal(Outcome.PREVIOUS_NOT_FOUND, message, param=param)
        case NotKept() if param == PREVIOUS:
            return Refusal(Outcome.PREVIOUS_NOT_FOUND, "no such response is kept here", param=param)
        case NotKept():
            return Refusal(Outcome.NOT_FOUND, "nothing of this id is kept here", param=param)
        case StillRunning():
            return Refusal(Outcome.RESPONSE_RUNNING, "the response is not complete yet", param=param)
        case NotChainable():
            message = f"the response is {wrong}, so it cannot be continued"
            return Refusal(Outcome.BAD_REQUEST, message, param=param)
        case Locked():
            message = "another turn of this conversation runs; wait for its end"
            return Refusal(Outcome.CONVERSATION_LOCKED, message, param="conversation")
        case TooLong():
            message = "the history is longer than may be here; truncation: auto leaves out its beginning"
            return Refusal(Outcome.CONTEXT_TOO_LONG, message, param=param)
        case QueueFull():
            return Refusal(Outcome.QUEUE_FULL, "too many background responses wait already")
        case StoreError():
            return unavailable()
        case _:
            return Refusal(Outcome.NOT_FOUND, "it was deleted or cancelled meanwhile", param=param)
