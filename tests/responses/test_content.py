"""What turns say is in the store, for their tenant, and nowhere else: no log, metric or refusal has it.

The counterpart of `tests/cases/test_content.py`, for the outcomes that only what is remembered can have.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from maitred.core.outcome import Outcome
from maitred.observe.exposition import render
from maitred.store.rows import StoreError
from tests.net.http import Answer
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    Remembering,
    call,
    in_real_time,
    remembering,
    says,
    streams,
    turn,
)

PROMPT, SAID, KEY = (f"canary-{name}-7c9e" for name in ("prompt", "said", "key"))
HEADERS = (f"Authorization: Bearer {KEY}", f"Cookie: session={KEY}")

Do = Callable[[Remembering], Awaitable[Answer]]


def says_much(**members: Any) -> bytes:
    """A turn full of canaries."""
    said = {"instructions": PROMPT, "metadata": {"about": PROMPT}, "user": PROMPT, **members}
    return turn(PROMPT, *HEADERS, **said)


async def conversation(it: Remembering) -> str:
    """A new one, with something in it."""
    items = [{"role": "user", "content": PROMPT}]
    made = await it.ask(call("POST", CONVERSATIONS, {"items": items, "metadata": {"of": PROMPT}}, *HEADERS))
    id_: str = made.json["id"]
    return id_


async def completes(it: Remembering) -> Answer:
    """Turns of every kind, and what may be asked of them."""
    first = (await it.ask(says_much())).json["id"]
    await it.ask(says_much(previous_response_id=first, stream=True))
    await it.ask(says_much(conversation=await conversation(it)))
    return await it.ask(call("GET", f"{RESPONSES}/{first}/input_items", None, *HEADERS))


async def at_once(it: Remembering) -> Answer:
    """Two turns in one conversation."""
    id_, go = await conversation(it), asyncio.Event()
    it.place.menu.set([go, *says(SAID)])
    both = [asyncio.create_task(it.ask(says_much(conversation=id_))) for _ in range(2)]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    go.set()
    return max(await asyncio.gather(*both), key=lambda answer: answer.status)


async def goes_on_from_what_runs(it: Remembering) -> Answer:
    """A turn after one that is still in the background."""
    go = asyncio.Event()
    it.place.menu.set([go, *says(SAID)])
    id_ = (await it.ask(says_much(background=True))).json["id"]
    refused = await it.ask(says_much(previous_response_id=id_))
    go.set()
    return refused


async def reuses(it: Remembering) -> Answer:
    """One idempotency key, two bodies."""
    key = f"Idempotency-Key: {PROMPT}"
    await it.ask(turn(PROMPT, key, *HEADERS))
    return await it.ask(turn(PROMPT + PROMPT, key, *HEADERS))


async def without_a_store(it: Remembering) -> Answer:
    """The database cannot be reached."""

    async def away() -> None:
        raise StoreError("the database is away")

    store = await it.place.app.memory()
    store.check = away  # type: ignore[method-assign]
    return await it.ask(says_much())


def asks(request: bytes) -> Do:
    """One request."""
    return lambda it: it.ask(request)


CASES: dict[Outcome, Do] = {
    Outcome.COMPLETED: completes,
    Outcome.BAD_REQUEST: asks(says_much(prompt={"id": PROMPT})),
    Outcome.NOT_FOUND: asks(call("GET", f"{RESPONSES}/resp_{PROMPT}", None, *HEADERS)),
    Outcome.PREVIOUS_NOT_FOUND: asks(says_much(previous_response_id="resp_" + 48 * "0")),
    Outcome.CONVERSATION_LOCKED: at_once,
    Outcome.RESPONSE_RUNNING: goes_on_from_what_runs,
    Outcome.KEY_REUSED: reuses,
    Outcome.STORE_UNAVAILABLE: without_a_store,
}


@pytest.mark.parametrize("outcome", CASES, ids=lambda outcome: outcome.label)
@in_real_time
async def test_it_is_told_without_a_word_of_content(
    outcome: Outcome, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plans = [says(SAID), streams(SAID), says(SAID)] if outcome is Outcome.COMPLETED else [says(SAID)]
    async with remembering(url, *plans) as it:
        answer = await CASES[outcome](it)
        assert outcome.label in it.place.outcomes
        if outcome is not Outcome.COMPLETED:
            assert PROMPT not in answer.body.decode(), "a refusal repeats it"
        await it.place.until(lambda: not it.place.app.journeys and it.rows("jobs") == [])
        metrics = b"".join(render(it.place.app.metrics)).decode()
        lines = [{name: text for name, text in line.items() if name != "path"} for line in it.place.lines]
        told = "\n".join([caplog.text, metrics, json.dumps(lines)])
        for canary in (PROMPT, SAID, KEY):
            assert canary not in told
