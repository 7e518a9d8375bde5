"""What a turn does between calls of the model."""

from __future__ import annotations

import asyncio

from maitred.responses.rounds import Work


def test_what_was_stopped_begins_nothing_more() -> None:
    begun: list[str] = []

    async def does(what: str) -> str:
        begun.append(what)
        return what

    async def main() -> None:
        work = Work()
        assert await work.of(does("one")) == "one"
        work.stop()
        assert await work.of(does("two")) is None
        assert begun == ["one"]

    asyncio.run(main())
