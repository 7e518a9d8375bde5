"""Receipts as clients and operators see them: who may ask gets one, and others leave none but by sample."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from maitred.app.desk import Desk
from maitred.config.tree import Decisions
from maitred.core.words import Identity
from maitred.observe.decisions import Page, Wanted
from tests.net.http import post
from tests.proxy.place import CHAT, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD, GOOD_STREAM, JSON, End, Plan, whole

KEYS = {
    b"Bearer sk-trusted": Identity("a", "1", may_set=("receipt",)),
    b"Bearer sk-other": Identity("b", "2"),
}
ASKS = "x-maitred-receipt: 1"
NONE, ALL = Decisions(sample=0.0), Decisions(sample=1.0)


def know(place: Place) -> None:
    """Have the gateway know these keys."""
    front = place.app.front
    front.service = structs.replace(front.service, identify=lambda fields: KEYS[fields[b"authorization"]])


def ask(key: str, *headers: str, stream: bool = False) -> bytes:
    body = chat(stream=stream, user="canary-user")
    return post(CHAT, body, f"Authorization: Bearer sk-{key}", *headers)


async def kept(place: Place) -> Page:
    return await Desk(place.app, lambda: place.app.config).decisions(Wanted())


@pytest.mark.parametrize("stream", [False, True])
@in_virtual_time()
async def test_who_may_ask_is_told(stream: bool) -> None:
    async with serving(GOOD_STREAM if stream else GOOD, kitchens=2, decisions=NONE) as place:
        know(place)
        answer = await place.ask(ask("trusted", ASKS, stream=stream))
        receipt = answer.value(b"x-maitred-receipt").decode()
        assert receipt.startswith("policy=default; endpoint=m/")
        assert (
            "; home=none; cached=0/25; index=approximate; reason=no_events; attempt=1; wait=0.000; "
            in receipt
        )
        costs = receipt.split("; cost=")[1].split(",")
        assert costs[0] == costs[1]  # nothing speaks for either
        [decision] = (await kept(place)).decisions
        assert b"canary" not in bytes(decision)
        decoded = msgspec.json.decode(decision)
        assert decoded["id"] == answer.value(b"x-request-id").decode()
        assert decoded["receipt"]["endpoint"] == receipt.split("endpoint=")[1].split(";")[0]
        assert not [name for asked in place.menu.asked for name, _ in asked.headers if "receipt" in name]


@pytest.mark.parametrize(
    ("key", "headers"), [("trusted", []), ("trusted", ["x-maitred-receipt: 0"]), ("other", [ASKS])]
)
@in_virtual_time()
async def test_nobody_else_is_told_and_nothing_is_kept(key: str, headers: list[str]) -> None:
    async with serving(decisions=NONE) as place:
        know(place)
        answer = await place.ask(ask(key, *headers))
        assert (answer.status, answer.values(b"x-maitred-receipt")) == (200, [])
        assert (await kept(place)).decisions == []


@in_virtual_time()
async def test_samples_are_kept_and_their_clients_told_nothing() -> None:
    async with serving(decisions=ALL) as place:
        know(place)
        answer = await place.ask(ask("other", ASKS))
        assert answer.values(b"x-maitred-receipt") == []
        assert len((await kept(place)).decisions) == 1
        place.app.apply(structs.replace(place.app.config, decisions=Decisions(keep=1, sample=0.0)))
        know(place)
        await place.ask(ask("other"))
        assert len((await kept(place)).decisions) == 1


@in_virtual_time()
async def test_a_second_attempt_is_another_decision() -> None:
    async with serving([End.RESET], GOOD, kitchens=2, decisions=NONE) as place:
        know(place)
        answer = await place.ask(ask("trusted", ASKS))
        assert b"attempt=2" in answer.value(b"x-maitred-receipt")
        second, first = [msgspec.json.decode(each) for each in (await kept(place)).decisions]
        assert first["id"] == second["id"]
        refused = {row["endpoint"]: row["why_not"] for row in second["receipt"]["candidates"]}
        assert refused[first["receipt"]["endpoint"]] == "failed"


@in_virtual_time()
async def test_an_engine_cannot_tell_one() -> None:
    plan: Plan = [whole(JSON, "x-maitred-receipt: policy=canary")]
    async with serving(plan, decisions=NONE) as place:
        know(place)
        assert (await place.ask(ask("other"))).values(b"x-maitred-receipt") == []
