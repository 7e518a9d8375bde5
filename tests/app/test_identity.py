"""A gateway that asks who comes: keys in a store, tokens of an issuer, and what a reload makes of both."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import structs

from maitred.app import keys
from maitred.app.desk import Desk
from maitred.config.auth import Auth, JwksFile, Jwt, Store
from maitred.config.flow import Price, Tenant
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret
from maitred.config.tree import Config, Http
from maitred.control import jwt as verifying
from maitred.core.limits import Limits
from maitred.core.words import Identity
from maitred.observe.exposition import render
from maitred.store.rows import KeyRow
from tests.cases.place import Place, on_sockets, serving
from tests.control.test_jwt import AUDIENCE, ISSUER, key_set, public, token
from tests.net.http import Answer, get, post, turns
from tests.ports import free_port
from tests.proxy.place import CHAT, chat

PEPPER = EnvSecret("KEYS_PEPPER")
AUTH = Auth(keys="store", pepper=PEPPER, refresh_s=0.02)
MODELS = "/v1/models"


@pytest.fixture(autouse=True)
def _pepper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS_PEPPER", "a-pepper-of-the-tests")


async def add(config: Config, tenant: str = "support", **options: Any) -> tuple[str, str]:
    """Make a key as the command does; its id, and the key."""
    return await asyncio.to_thread(keys.add, config, KeyRow("", b"", tenant, 0, **options))


@asynccontextmanager
async def guarded(folder: Path, auth: Auth = AUTH, **sections: Any) -> AsyncIterator[Place]:
    """A gateway that lets in by this."""
    store = Store(f"sqlite:///{folder}/m.db")
    async with serving(auth=auth, store=store, **sections) as place:
        yield place


async def ask(
    place: Place, key: str | bytes | None, *headers: str, path: str = CHAT, model: str = "m"
) -> Answer:
    if key is not None:
        headers = (f"Authorization: Bearer {key if isinstance(key, str) else key.decode()}", *headers)
    request = get(path, *headers) if path != CHAT else post(CHAT, chat(model=model), *headers)
    return await place.ask(request)


@on_sockets
async def test_a_key_lets_in_and_no_key_does_not(tmp_path: Path) -> None:
    async with guarded(tmp_path) as place:
        wrong = await ask(place, "mk_wrong")
        assert (wrong.status, wrong.json["error"]["code"]) == (401, "invalid_api_key")
        assert wrong.value(b"www-authenticate") == b"Bearer"
        nobody = await ask(place, None)
        assert (nobody.status, nobody.outcome) == (401, "unauthenticated")
        assert "Authorization: Bearer KEY" in nobody.json["error"]["message"]
        id_, key = await add(place.app.config)
        await place.until(lambda: bool(_known(place)))
        assert (await ask(place, key)).status == 200
        assert (await place.ask(post(CHAT, chat(), f"x-api-key: {key}"))).status == 200
        assert await asyncio.to_thread(keys.revoke, place.app.config, id_)
        await place.until(lambda: not _known(place))
        assert (await ask(place, key)).status == 401


@on_sockets
async def test_a_key_goes_no_further_than_the_door(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path) as place:
        _, key = await add(place.app.config)
        await place.until(lambda: bool(_known(place)))
        assert (await ask(place, key)).status == 200
        await ask(place, key, model="other")
        sent = b"".join(bytes(line.received) for engine in place.engines for line in engine.serving)
        assert b"POST /v1/chat" in sent
        metrics = b"".join(render(place.app.metrics))
        said = [sent, metrics, json.dumps(place.lines).encode(), caplog.text.encode()]
        assert not any(
            part in text for text in said for part in (key.encode(), key.rpartition("_")[2].encode())
        )


def _known(place: Place) -> Any:
    return place.app.identities.keys._by_digest


@on_sockets
async def test_a_keys_budget_in_money_that_counts_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "a key's budget in money counts nothing while no model has a price; write price: "
    async with guarded(tmp_path) as place:
        store, config = place.app.identities.store, place.app.config
        assert store is not None
        await store.add_key(KeyRow("k", b"k" * 32, "t", 1, limits=Limits(money_per_day=5)))
        await place.until(lambda: bool(_known(place)))
        assert [message.startswith(said) for message in caplog.messages] == [True]
        models = tuple(structs.replace(model, price=Price(output=1)) for model in config.models)
        for each in (models, config.models):
            place.app.apply(structs.replace(config, models=each))
        assert [message.startswith(said) for message in caplog.messages] == [True, True]


@on_sockets
async def test_the_head_is_enough_to_refuse(tmp_path: Path) -> None:
    """The body is not waited for, a health path needs no key, and a page may ask what it may send."""
    origin = "https://chat.example.com"
    async with guarded(tmp_path, http=Http(cors=(origin,))) as place:
        client = await place.client()
        client.send(get(CHAT, "Content-Type: application/json", "Content-Length: 50000000", method="POST"))
        assert (await client.answer()).status == 401
        for path in ("/livez", "/readyz", "/health", "/ping"):
            assert (await ask(place, None, path=path)).status == 200
        assert (await ask(place, None, path=MODELS)).status == 401
        assert (await ask(place, None, path=f"{MODELS}/m")).status == 401
        assert (await ask(place, None, path="/v1/unknown")).status == 404
        asks = ("Access-Control-Request-Method: POST", f"Origin: {origin}")
        assert (await place.ask(get(CHAT, *asks, method="OPTIONS"))).status == 204
        anthropic = await place.ask(post("/v1/messages", chat(max_tokens=1)))
        assert (anthropic.status, anthropic.json["error"]["type"]) == (401, "authentication_error")


@on_sockets
async def test_a_key_speaks_only_for_tenants_that_are_named_now(tmp_path: Path) -> None:
    async with guarded(tmp_path, tenants={"a": Tenant()}) as place:
        _, key = await add(place.app.config, may_set=("tenant",))
        await place.until(lambda: bool(_known(place)))

        async def asked_for(tenant: str) -> str:
            known = len(place.lines)
            assert (await ask(place, key, f"x-maitred-tenant: {tenant}")).status == 200
            await place.until(lambda: len(place.lines) > known)
            return str(place.lines[-1]["tenant"])

        assert [await asked_for(name) for name in ("a", "b")] == ["a", "support"]
        place.app.apply(structs.replace(place.app.config, tenants={"b": Tenant()}))
        assert [await asked_for(name) for name in ("a", "b")] == ["support", "b"]


@on_sockets
async def test_b77_a_key_sees_and_uses_its_models_only(tmp_path: Path) -> None:
    async with guarded(tmp_path, model={"aliases": ("alias",)}) as place:
        config = place.app.config
        _, of_m = await add(config, models=("m",))
        _, of_alias = await add(config, models=("alias",))
        _, of_other = await add(config, models=("other",))
        await place.until(lambda: len(_known(place) or ()) == 3)

        async def listed(key: str) -> list[str]:
            return [entry["id"] for entry in (await ask(place, key, path=MODELS)).json["data"]]

        assert [await listed(key) for key in (of_m, of_alias, of_other)] == [["alias", "m"], ["alias"], []]
        assert (await ask(place, of_alias, path=f"{MODELS}/m")).status == 404
        assert [(await ask(place, of_alias, model=model)).status for model in ("m", "alias")] == [404, 200]
        refused = await ask(place, of_other)
        assert (refused.status, refused.outcome) == (404, "model_not_found")


@on_sockets
async def test_a_token_of_the_issuer_lets_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set())
    jwt = Jwt(ISSUER, AUDIENCE, JwksFile(path), tenant="team")
    async with serving(auth=Auth(jwt=jwt)) as place:
        tokens = place.app.identities._tokens
        assert tokens is not None
        await place.until(lambda: tokens._keys is not None)
        assert (await ask(place, token())).status == 200
        assert place.app.identities.identify({b"x-api-key": token()}) == Identity("support")
        assert (await ask(place, token(aud="another"))).status == 401
        assert (await ask(place, "mk_any")).status == 401
        assert place.app.identities.store is None


class Issuer:
    """An identity provider at an address of its own, which tells where its keys are."""

    def __init__(self, *kinds: str) -> None:
        self.lists(*kinds)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lists(self, *kinds: str) -> None:
        self._keys = key_set(*map(public, kinds))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        found = b"GET /.well-known/openid-configuration " in asked
        body = json.dumps({"jwks_uri": f"{self.url}/keys"}).encode() if found else self._keys
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()
        await writer.wait_closed()


@on_sockets
async def test_an_issuer_may_change_its_keys_and_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "ASK_AGAIN_S", 0.1)
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(Issuer("RSA", "EC"))
        auth = Auth(jwt=Jwt(issuer.url, AUDIENCE, tenant="team"))
        place = await stack.enter_async_context(serving(auth=auth))

        async def statuses(kind: str, last: int) -> set[int]:
            """Those of a token by this key, until one is the last."""
            signed = token(kind, "ES256" if kind == "EC" else "RS256", iss=issuer.url)
            seen = {(await ask(place, signed)).status}
            while last not in seen:
                await asyncio.sleep(0.005)
                seen.add((await ask(place, signed)).status)
            return seen

        await statuses("RSA", 200)
        assert await statuses("EC", 200) == {200}
        for new in ("RSA2", "RSA3"):  # the latter when the keys were read a moment ago
            issuer.lists("EC", new)
            assert await statuses(new, 200) == {503, 200}  # but never 401
        assert await statuses("RSA", 401) <= {503, 401}  # though it had been let in
        await issuer.close()
        assert await statuses("EC", 200) == {200}
        while [finding.kind for finding in place.findings] != ["jwks_unreachable"]:
            assert await statuses("RSA4", 503) == {503}
            await asyncio.sleep(0.005)
        issuer.lists("RSA4")
        await issuer.open()
        assert await statuses("RSA4", 200) == {503, 200}
        assert not place.findings


@on_sockets
async def test_a_reload_changes_who_is_let_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set())
    async with serving(store=Store(f"sqlite:///{tmp_path}/m.db")) as place:
        assert (await ask(place, None)).status == 200
        config = place.app.config
        with_both = structs.replace(AUTH, jwt=Jwt(ISSUER, AUDIENCE, JwksFile(path)))
        place.app.apply(structs.replace(config, auth=with_both))
        assert (await ask(place, None)).status == 401
        reading = place.app.identities._reading
        _, key = await add(place.app.config)
        await place.until(lambda: bool(_known(place)))
        assert (await ask(place, key)).status == 200
        await place.until(lambda: place.app.identities._tokens._keys is not None)  # type: ignore[union-attr]
        assert (await ask(place, token())).status == 200
        place.app.apply(structs.replace(config, auth=structs.replace(with_both, refresh_s=0.01)))
        assert place.app.identities._reading is reading
        place.app.apply(structs.replace(config, auth=AUTH))
        await turns()
        assert reading is not None
        assert reading.done()
        assert (await ask(place, token())).status == 401
        place.app.apply(structs.replace(config, auth="none"))
        assert (await ask(place, None)).status == 200


@on_sockets
async def test_what_cannot_be_let_in_by_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded(tmp_path) as place:
        bad = structs.replace(place.app.config, auth=Auth(keys="store", pepper=EnvSecret("NOWHERE")))
        with pytest.raises(
            ConfigError, match=r"auth\.pepper: the environment variable named there is not set"
        ):
            await Desk(place.app, lambda: bad).reload()
        assert place.app.config.auth == AUTH
        assert [finding.kind for finding in place.findings] == ["reload_failed"]
        monkeypatch.setitem(sys.modules, "maitred.control.jwt", None)
        bad = structs.replace(bad, auth=Auth(jwt=Jwt(ISSUER, AUDIENCE, "https://sso/keys")))
        with pytest.raises(ConfigError, match=r"pip install 'maitred\[jwt\]'"):
            place.app.apply(bad)


@on_sockets
async def test_a_store_without_keys_is_for_the_accounts_and_lets_everybody_in(tmp_path: Path) -> None:
    async with serving(store=Store(f"sqlite:///{tmp_path}/m.db")) as place:
        assert place.app.identities.store is not None
        assert (await ask(place, None)).status == 200
    assert (tmp_path / "m.db").exists()


@on_sockets
async def test_a_store_may_come_with_a_reload_and_only_another_one_needs_a_restart(tmp_path: Path) -> None:
    async with serving() as place:
        kept = structs.replace(place.app.config, auth=AUTH, store=Store(f"sqlite:///{tmp_path}/m.db"))
        assert place.app.apply(kept) == []
        _, key = await add(kept)
        await place.until(lambda: bool(_known(place)))
        assert (await ask(place, key)).status == 200
        assert place.app.apply(structs.replace(kept, store=Store(f"sqlite:///{tmp_path}/n.db"))) == [
            "store.url"
        ]
        assert (await ask(place, key)).status == 200
        assert place.app.apply(kept) == []


@on_sockets
async def test_a_key_that_is_revoked_while_its_body_comes_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as place:
        id_, key = await add(place.app.config)
        await place.until(lambda: bool(_known(place)))
        request = post(CHAT, chat(), f"Authorization: Bearer {key}")
        client = await place.client()
        client.send(request[:-5])
        await place.until(lambda: bool(place.app.front.connections))
        assert await asyncio.to_thread(keys.revoke, place.app.config, id_)
        await place.until(lambda: not _known(place))
        client.send(request[-5:])
        answer = await client.answer()
        assert (answer.status, answer.value(b"www-authenticate")) == (401, b"Bearer")
