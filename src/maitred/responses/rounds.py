"""Asking the model in rounds: it calls tools that the gateway runs, and is asked again with what came of it.

Each round is a call of the model of its own, through the same queue. What fails after the first is no refusal
any more, for tools may have done something by then: the response ends as failed, and keeps its items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from maitred.core.outcome import Refusal
from maitred.responses.mcp.tools import Tools
from maitred.responses.refused import EngineRefused
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.response import Usage

if TYPE_CHECKING:
    from maitred.responses.turn import Turn

_T = TypeVar("_T")


class Work:
    """What a turn does between calls of the model; `stop` ends it where nobody wants it any more."""

    __slots__ = ("stop",)

    def __init__(self) -> None:
        self.stop: Callable[[], object] = _nothing

    async def of(self, doing: Coroutine[Any, Any, _T]) -> _T | None:
        """What comes of it; None where it was stopped."""
        task = asyncio.create_task(doing)
        self.stop = task.cancel
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self.stop = _nothing
        return None if task.cancelled() else task.result()


async def rounds(turn: Turn, tools: Tools) -> Answer:
    """Ask until the model has said all it has to. Raises Refusal, EngineRefused before anything was done."""
    made = turn.made
    try:
        made += await turn.work.of(tools.begin(turn.said(), turn.told_events, turn.telling.say)) or ()
        usage: Usage | None = None
        while not turn.unwanted:
            try:
                answer = await turn.ask_once()
            except (Refusal, EngineRefused) as refused:
                if not made:
                    raise
                return Answer(made, usage=usage, error=refused.message)
            made += answer.items
            usage = usage + answer.usage if usage and answer.usage else usage or answer.usage
            calls = [call for call in answer.calls if tools.mine(call.name)]
            if not calls or answer.error or answer.incomplete or turn.unwanted:
                return structs.replace(answer, items=made, usage=usage)
            ran = await turn.work.of(tools.run(calls))
            if ran is None:
                break
            made += ran.items
            if not ran.again or len(calls) < len(answer.calls):
                return structs.replace(answer, items=made, usage=usage)
            turn.create = tools.later(turn.create)
        return Answer(made, usage=usage)
    finally:
        tools.close()


def _nothing() -> None:
    """Nothing is done."""
