#!/usr/bin/env python3
"""What the store takes for a turn, and whether that stays flat: a small and a large database in turn.

    .venv/bin/python benchmarks/store.py [--conversations 10000] [--items 50] [--folder DIR]

The small one has a hundredth of the conversations. They take turns every operation, so what the machine
does meanwhile happens to both. On SQLite with synchronous FULL, and on a PostgreSQL that is started here.
Beside it what the disk takes for a write of 16 KiB that must reach it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvloop
from tests.store.place import ALL, LEASE, NOW, end, new, new_id, remembering, said, turn
from tests.store.postgres import postgres

from maitred.store.state import StateStore
from maitred.store.state_rows import ConversationRow, NewItem, Page

TIMES = 300
CHAIN = 100
AT_ONCE = 64
TEXT = "When does the ship sail, and who is on board? " * 8
Doing = Callable[[], Awaitable[object]]


class Place:
    """A database with conversations of the same length, and one chain of responses."""

    def __init__(self, state: StateStore, seed: int) -> None:
        self.state = state
        self.random = random.Random(seed)
        self.conversations: list[str] = []
        self.last = ""
        self.root = ""

    async def fill(self, conversations: int, items: int) -> None:
        """Fill it."""
        self.conversations = [new_id("conv") for _ in range(conversations)]
        for start in range(0, conversations, AT_ONCE):
            some = self.conversations[start : start + AT_ONCE]
            await asyncio.gather(*(self._talk(id_, items) for id_ in some))
        previous = None
        for _ in range(CHAIN):
            response = new(previous_id=previous, root_id=self.root)
            await self.state.keep(response, end(response, turn(TEXT, TEXT)))
            previous, self.root = response.id, self.root or response.id
        self.last = previous or ""

    async def _talk(self, id_: str, items: int) -> None:
        row = ConversationRow(id_, "a", b"{}", NOW, None)
        await self.state.create_conversation(row, [said(TEXT) for _ in range(items)])

    def operations(self) -> dict[str, Doing]:
        """What is measured, by name."""
        return {
            "see that it answers": self._check,
            "keep a turn (one commit)": self._keep,
            "begin and finish a turn (two commits)": self._begun,
            f"history of {CHAIN} turns, {2 * CHAIN} items": self._history,
            "history of a conversation": lambda: self.state.conversation_history("a", self._any(), ALL),
            "list its 20 newest items": lambda: self.state.conversation_items("a", self._any(), Page()),
            "append an item": lambda: self.state.add_items("a", self._any(), [said(TEXT)], NOW, None),
            "a turn of a conversation": lambda: self._begun(self._any()),
        }

    def _any(self) -> str:
        return self.random.choice(self.conversations)

    async def _check(self) -> None:
        await self.state.items("a", ["msg_none"])

    async def _keep(self) -> None:
        response = new()
        await self.state.keep(response, end(response, _turn()))

    async def _begun(self, conversation: str | None = None) -> None:
        response = new(conversation_id=conversation)
        await self.state.begin(response, ALL, NOW, LEASE)
        await self.state.finish(end(response, _turn()))

    async def _history(self) -> None:
        assert len((await self.state.history("a", self.last, ALL)).items) == 2 * CHAIN


def _turn() -> list[NewItem]:
    return turn(TEXT, TEXT)


def disk(folder: Path) -> Doing:
    """A write that must reach the disk."""
    number = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)

    async def write() -> None:
        os.write(number, b"x" * 16_384)
        os.fdatasync(number)

    return write


async def measured(doing: list[Doing]) -> Iterator[list[float]]:
    """Milliseconds that each took, one after the other in turn."""
    took: list[list[float]] = [[] for _ in doing]
    for _ in range(TIMES):
        for one, times in zip(doing, took, strict=True):
            began = time.perf_counter()
            await one()
            times.append((time.perf_counter() - began) * 1000)
    return iter(took)


def told(times: list[float]) -> str:
    """Median and 95th percentile."""
    return f"{median(times):.2f} / {quantiles(times, n=20)[-1]:.2f}"


async def run(kind: str, urls: tuple[str, str], sizes: tuple[int, int], items: int, folder: Path) -> None:
    """Measure one kind of database, and print a table."""
    async with AsyncExitStack() as stack:
        places = []
        for url, size in zip(urls, sizes, strict=True):
            place = Place(await stack.enter_async_context(remembering(url)), size)
            began = time.monotonic()
            await place.fill(size, items)
            print(f"{size} conversations of {items} items: {time.monotonic() - began:.0f} s", file=sys.stderr)
            places.append(place)
        print(f"\n| {kind}, ms p50 / p95 | {sizes[0]:,} conversations | {sizes[1]:,} conversations |")
        print("|---|---|---|")
        for name in places[0].operations():
            small, large = await measured([place.operations()[name] for place in places])
            print(f"| {name} | {told(small)} | {told(large)} |")
        (synced,) = await measured([disk(folder)])
        print(f"| (16 KiB to the disk) | {told(synced)} | |")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; else a temporary one")
    options = parser.parse_args()
    sizes = (max(1, options.conversations // 100), options.conversations)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        urls = (f"sqlite:///{folder}/small.db", f"sqlite:///{folder}/large.db")
        uvloop.run(run("SQLite", urls, sizes, options.items, folder))
        with postgres(fsync=True) as server:
            urls = (server.make("small"), server.make("large"))
            uvloop.run(run("PostgreSQL", urls, sizes, options.items, folder))


if __name__ == "__main__":
    main()
