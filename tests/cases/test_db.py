"""B84: a database that is away is no wrong key. BerriAI/litellm#29986, #38121, #34929; langfuse#13482.

While it was away valid keys were answered with 401 for hours, and clients threw their data away; or readiness
failed, and every gateway left the load balancer at once. Here known keys go on, unknown ones get 503 and a
time to come back, readiness does not ask the database, and it all ends by itself.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from maitred.app import keys
from maitred.config.auth import Auth, Store
from maitred.config.flow import Accounts, Budget, Tenant
from maitred.config.secret import EnvSecret
from maitred.config.tree import Config
from maitred.store.rows import KeyRow, SchemaError
from tests.cases.place import Place, on_sockets, opened, serving
from tests.cases.upstream import Engine
from tests.e2e.children import MAITRED, Child, Gateway
from tests.e2e.children import ask as ask_process
from tests.net.http import Answer, get, post
from tests.ports import free_ports
from tests.proxy.place import CHAT, chat
from tests.store.postgres import Postgres

REFRESH_S = 0.05
AUTH = Auth(keys="store", pepper=EnvSecret("KEYS_PEPPER"), refresh_s=REFRESH_S)
STORE = Store(EnvSecret("KEYS_STORE"))


@pytest.fixture
def database(server: Postgres, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Postgres:
    """The server, with an empty database for the gateway of this test."""
    monkeypatch.setenv("KEYS_PEPPER", "a-pepper-of-the-tests")
    monkeypatch.setenv("KEYS_STORE", server.make(request.node.name))
    return server


async def add(tenant: str = "support") -> str:
    """Make a key as the command does."""
    config = Config(auth=AUTH, store=STORE)
    return (await asyncio.to_thread(keys.add, config, KeyRow("", b"", tenant, 0)))[1]


async def upgrade() -> None:
    await asyncio.to_thread(keys.upgrade, Config(store=STORE))


async def ask(place: Place, key: str) -> Answer:
    return await place.ask(post(CHAT, chat(max_tokens=2), f"Authorization: Bearer {key}"))


async def answered(place: Place, key: str, status: int) -> Answer:
    """Ask until the answer is this one, which a test that fails never gets."""
    while (answer := await ask(place, key)).status != status:
        assert answer.status in {200, 401, 503}
        await asyncio.sleep(0.005)
    return answer


def kinds(place: Place) -> list[str]:
    return [finding.kind for finding in place.findings]


class TestADatabaseThatIsKilled:
    """PostgreSQL itself, ended by SIGKILL in the middle of everything."""

    @on_sockets
    async def test_b84_known_keys_pass_unknown_ones_wait_and_it_recovers(self, database: Postgres) -> None:
        await upgrade()
        known, late = await add(), await add("late")
        async with serving(auth=AUTH, store=STORE) as place:
            assert (await ask(place, known)).status == 200
            assert (await ask(place, "mk_wrong")).status == 401
            statuses: list[int] = []

            async def flow() -> None:
                while True:
                    statuses.append((await ask(place, known)).status)

            flowing = asyncio.create_task(flow())
            await asyncio.to_thread(database.kill)
            refused = await answered(place, "mk_wrong", 503)
            assert (refused.outcome, refused.value(b"retry-after")) == ("auth_unavailable", b"5")
            assert refused.value(b"x-should-retry") == b"true"
            assert "store_unreachable" in kinds(place)
            assert set(kinds(place)) <= {"store_unreachable", "memory_unreachable", "unswept"}
            assert (await place.ask(get("/readyz"))).status == 200
            assert (await ask(place, late)).status == 200  # nobody came with it before
            before = len(statuses)
            await place.until(lambda: len(statuses) > before + 20)

            await asyncio.to_thread(database.start)
            await answered(place, "mk_wrong", 401)
            await place.until(lambda: "store_unreachable" not in kinds(place))
            new = await add("new")
            await answered(place, new, 200)
            flowing.cancel()
            await asyncio.wait([flowing])
            assert set(statuses) == {200}

    @on_sockets
    async def test_b84_a_start_without_it_opens_no_door_and_shuts_none(self, database: Postgres) -> None:
        await upgrade()
        key = await add()
        await asyncio.to_thread(database.kill)
        async with serving(auth=AUTH, store=STORE) as place:
            for any_key in (key, "mk_wrong"):
                assert (await ask(place, any_key)).outcome == "auth_unavailable"
            assert (await place.ask(post(CHAT, chat()))).status == 401  # this one has none
            assert (await place.ask(get("/readyz"))).status == 200
            await asyncio.to_thread(database.start)
            await answered(place, key, 200)
            assert (await ask(place, "mk_wrong")).status == 401

    @on_sockets
    async def test_b84_a_revoked_key_is_refused_within_one_reading(self, database: Postgres) -> None:
        await upgrade()
        key = await add()
        async with serving(auth=AUTH, store=STORE) as place:
            assert (await ask(place, key)).status == 200
            config = Config(auth=AUTH, store=STORE)
            assert await asyncio.to_thread(keys.revoke, config, key.split("_")[1])
            table, revoked_at, status = place.app.identities.keys, time.monotonic(), 200
            while status == 200:
                read_at = table._read_at
                status = (await ask(place, key)).status
                assert status == 401 or read_at < revoked_at
                await asyncio.sleep(0.005)


SHARED: dict[str, Any] = {"auth": AUTH, "store": STORE, "accounts": Accounts(period_s=0.02)}
USED = 7
"""Tokens that each request here takes, by its engine's word."""


@asynccontextmanager
async def beside(place: Place) -> AsyncIterator[Place]:
    """Another gateway of the same configuration, before the same engines."""
    other = Place(place.engines, place.script, place.app.config)
    try:
        await other.open()
        yield other
        await other.settle()
    finally:
        await other.app.stop()
        other.close()


async def spent(place: Place) -> int:
    """What is written down of the tenant's day."""
    store = place.app.identities.store
    assert store is not None
    rows = await store.accounts(f"{datetime.now(UTC):%Y-%m}")
    return sum(row.day_tokens for row in rows if row.holder == "tenant support")


async def written(place: Place, tokens: int) -> None:
    while await spent(place) < tokens:
        await asyncio.sleep(0.005)


def budget(tokens: int) -> dict[str, Tenant]:
    return {"support": Tenant(budget=Budget(tokens_per_day=tokens))}


class TestTwoGateways:
    """One PostgreSQL, two gateways that know nothing of each other."""

    @on_sockets
    async def test_they_know_the_same_keys_and_one_budget_is_spent_once(self, database: Postgres) -> None:
        await upgrade()
        async with serving(**SHARED, tenants=budget(200)) as one, beside(one) as other:
            key = await add()
            served = 0
            for place in (one, other):
                await answered(place, key, 200)
                served += 1
            for place in cycle((one, other)):
                await written(one, served * USED)
                answer = await ask(place, key)
                if answer.status != 200:
                    break
                served += 1
            assert (answer.status, answer.json["error"]["code"]) == (429, "insufficient_quota")
            assert await spent(other) == served * USED <= 200
            assert 200 - served * USED < 50  # less than another request is estimated at
            config = Config(auth=AUTH, store=STORE)
            assert await asyncio.to_thread(keys.revoke, config, key.split("_")[1])
            for place in (one, other):
                while (await ask(place, key)).status != 401:
                    await asyncio.sleep(0.005)

    @on_sockets
    async def test_b84_what_is_spent_while_it_is_killed_is_written_afterwards(
        self, database: Postgres
    ) -> None:
        await upgrade()
        key, statuses = await add(), Counter[int]()
        async with serving(**SHARED, tenants=budget(10**9)) as one, beside(one) as other:

            async def flow(place: Place) -> None:
                while flowing:
                    statuses[(await ask(place, key)).status] += 1

            flowing = True
            flows = [asyncio.create_task(flow(place)) for place in (one, other)]
            await written(one, 20 * USED)
            await asyncio.to_thread(database.kill)
            await one.until(lambda: all("accounts_unwritten" in kinds(place) for place in (one, other)))
            before = statuses[200]
            await one.until(lambda: statuses[200] > before + 20)
            await asyncio.to_thread(database.start)
            await one.until(lambda: not kinds(one) and not kinds(other))
            flowing = False
            await asyncio.wait(flows)
            await written(one, statuses[200] * USED)
            assert set(statuses) == {200}


@on_sockets
async def test_an_old_schema_stops_the_start_and_an_upgrade_while_it_waits_does_not(
    database: Postgres,
) -> None:
    async def begin(place: Place) -> None:
        with pytest.raises(SchemaError, match="run maitred db upgrade"):
            await place.begin()
        await upgrade()
        await place.open()

    async with opened([Engine()], begin=begin, auth=AUTH, store=STORE) as place:
        await answered(place, "mk_wrong", 401)


def test_b84_a_gateway_that_is_killed_knows_its_keys_again(tmp_path: Path) -> None:
    """SIGKILL: nothing it knew is lost, for nothing was only in its memory."""
    (tmp_path / "pepper").write_text("a-pepper-of-the-tests")
    (port,) = free_ports(1)
    (tmp_path / "maitred.yaml").write_text(
        f"version: 1\nmodels: [{{name: m, endpoints: [http://127.0.0.1:{port}]}}]\n"
        f"auth: {{keys: store, pepper: {{file: {tmp_path}/pepper}}, refresh: 50ms}}\n"
    )
    key = command(tmp_path, "add", "--tenant", "support").split()[-1]
    headers = {"authorization": f"Bearer {key}"}

    for end in (signal.SIGKILL, signal.SIGTERM):
        with Gateway("serve", cwd=tmp_path) as gateway:
            assert status(gateway, headers) == 200
            assert status(gateway, {}) == 401
            gateway.signal(end)
            gateway.wait()
    assert key not in (tmp_path / "maitred.db").read_bytes().decode("latin-1")
    command(tmp_path, "revoke", key.split("_")[1])
    with Gateway("serve", cwd=tmp_path) as gateway:
        assert status(gateway, headers) == 401


def command(folder: Path, *words: str) -> str:
    """What `maitred keys` prints."""
    with Child(*MAITRED, "keys", *words, cwd=folder) as child:
        assert child.wait() == 0, child.output
        return child.output


def status(gateway: Gateway, headers: dict[str, Any]) -> int:
    """Whether it shows its models to who sends this."""
    with ask_process(gateway.port, "GET", "/v1/models", headers=headers) as answer:
        return answer.status
