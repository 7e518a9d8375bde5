"""Asking the model in rounds: it calls tools that the gateway runs, and is asked again with what came of it.

Each round is a call of the model of its own, through the same queue. Once a tool was called nothing is
refused any more, for it may have done something: what fails then ends the response, which keeps its items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from maitred.core.outcome import Refusal
from maitred.responses.mcp.tools import Tools
from maitred.responses.model import EngineRefused
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.response import Usage

if TYPE_CHECKING:
    from maitred.responses.turn import Turn

_T = TypeVar("_T")


class Work:
    """What a turn does between calls of the model. `over`: it was stopped, so nothing more is begun."""

    __slots__ = ("_task", "over")

    def __init__(self) -> None:
        self.over = False
        self._task: asyncio.Task[Any] | None = None

    def stop(self) -> None:
        """Nobody wants it any more."""
        self.over = True
        if self._task is not None:
            self._task.cancel()

    async def of(self, doing: Coroutine[Any, Any, _T]) -> _T | None:
        """What comes of it; None where it was stopped."""
        if self.over:
            doing.close()
            return None
        task = self._task = asyncio.create_task(doing)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._task = None
        return None if task.cancelled() else task.result()


async def rounds(turn: Turn, tools: Tools) -> Answer:
    """Ask until the model has said all it has to. Raises Refusal, EngineRefused while no tool was called."""
    try:
        await _begin(turn, tools)
        return await _go_on(turn, tools)
    finally:
        tools.close()


async def _begin(turn: Turn, tools: Tools) -> None:
    """List what was not listed, and make the calls that were approved."""
    events = turn.events if turn.create.said.stream else None
    if events is not None:
        turn.model.prepare()
    turn.made += await turn.work.of(tools.begin(turn.said(), events, turn.model.tell)) or ()
    turn.create = tools.possible(turn.create)
    if tools.approved and not turn.work.over:
        await turn.known()
        turn.made += await turn.work.of(tools.go_on()) or ()


async def _go_on(turn: Turn, tools: Tools) -> Answer:
    """Ask, make the calls that are asked for, ask again."""
    made, usage = turn.made, None
    while not turn.work.over:
        offered = bool(tools.functions)
        try:
            answer = await turn.ask_once()
        except (Refusal, EngineRefused) as refused:
            if not tools.called:
                raise
            if await _room(turn, tools, refused):
                continue
            return Answer(made, usage=usage, error=refused.message)
        made += answer.items
        usage = _sum(usage, answer.usage)
        calls = [call for call in answer.calls if offered and tools.mine(call.name)]
        if not calls or answer.error or answer.incomplete or turn.work.over:
            return structs.replace(answer, items=made, usage=usage)
        await turn.known()
        ran = await turn.work.of(tools.run(calls))
        if ran is None:
            break
        made += ran.items
        if not ran.again or len(calls) < len(answer.calls):
            return structs.replace(answer, items=made, usage=usage)
        turn.create = tools.later(turn.create)
    return Answer(made, usage=usage)


async def _room(turn: Turn, tools: Tools, refused: Refusal | EngineRefused) -> bool:
    """Wait for room, where only that was wanting."""
    wait_s = refused.wait_s if isinstance(refused, Refusal) else None
    return wait_s is not None and bool(await turn.work.of(tools.wait(wait_s)))


def _sum(before: Usage | None, now: Usage | None) -> Usage | None:
    return before + now if before is not None and now is not None else before or now
