#!/usr/bin/env python3
"""Play a workload against a running gateway, with the official OpenAI client.

    maitred twin -c examples/lost-node/fleet.yaml &
    maitred serve -c examples/lost-node/fleet.yaml &
    .venv/bin/python examples/play.py examples/lost-node/workload.yaml --minutes 2

Prompts are made of words that nobody reads, as long as the workload says; what it shares is shared. Every ten
seconds one line says what became of them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random

import openai

from maitred.sim.arrival import Arrival, Workload
from maitred.sim.workload import load_workload

BYTES_PER_TOKEN = 4
LINE_S = 10.0


def text(segment: int, tokens: int) -> str:
    """The same piece of text for the same id, about so many tokens long."""
    words = Random(segment)
    return "".join(f"{words.randrange(1000):03d} " for _ in range(tokens))[: tokens * BYTES_PER_TOKEN]


class Player:
    """Sends what is due and counts what became of it."""

    def __init__(self, workload: Workload, base: str, until_s: float) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0, timeout=600)
        self._workload = workload
        self._began = time.monotonic()
        self._until_s = until_s
        self.outcomes: Counter[str] = Counter()
        self.ttfts_s: list[float] = []

    async def run(self) -> None:
        """Play until the time is up; what runs then is waited for."""
        async with asyncio.TaskGroup() as group:
            lines = group.create_task(self._say())
            async with asyncio.TaskGroup() as requests:
                for arrival in self._workload.begin(0.0):
                    await self._send(requests, arrival)
            lines.cancel()
        print(self._line())

    async def _send(self, group: asyncio.TaskGroup, arrival: Arrival) -> None:
        if arrival.at < self._until_s:
            await asyncio.sleep(self._began + arrival.at - time.monotonic())
            group.create_task(self._ask(group, arrival))

    async def _ask(self, group: asyncio.TaskGroup, arrival: Arrival) -> None:
        try:
            async with asyncio.timeout(arrival.patience_s):
                ttft_s = await self._answer(arrival)
            self.outcomes["completed"] += 1
            self.ttfts_s.append(ttft_s)
        except TimeoutError:
            self.outcomes["left"] += 1
        except openai.APIStatusError as error:
            self.outcomes[error.response.headers.get("x-maitred-outcome", str(error.status_code))] += 1
        except openai.APIError as error:
            self.outcomes[f"broken off: {type(error).__name__}"] += 1
        for following in self._workload.over(arrival, time.monotonic() - self._began):
            await self._send(group, following)

    async def _answer(self, arrival: Arrival) -> float:
        """Read an answer to its end; seconds to its first token, or to all of it when it is no stream."""
        sent = time.monotonic()
        prompt = "".join(text(segment, tokens) for segment, tokens in arrival.prompt)
        answer = await self._client.chat.completions.create(
            model=arrival.adapter or arrival.model,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=arrival.output_tokens,
            extra_body={"ignore_eos": True},
            stream=arrival.stream,
        )
        first = None
        if isinstance(answer, openai.AsyncStream):
            async with answer:
                async for _ in answer:
                    first = first or time.monotonic()
        return (first or time.monotonic()) - sent

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(LINE_S)
            print(self._line(), flush=True)

    def _line(self) -> str:
        recent = sorted(self.ttfts_s)
        p50, p90 = (recent[int(len(recent) * part)] if recent else 0.0 for part in (0.5, 0.9))
        told = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common())
        return f"{time.monotonic() - self._began:5.0f} s: TTFT p50 {p50:.2f} s, p90 {p90:.2f} s; {told}"


def main() -> None:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", type=Path)
    parser.add_argument("--base", default="http://127.0.0.1:8000", help="the gateway")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long new requests are sent")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    workload = load_workload(given.workload).workload(Random(given.seed))
    asyncio.run(Player(workload, given.base, given.minutes * 60).run())


if __name__ == "__main__":
    main()
