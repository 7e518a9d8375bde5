"""The operator's desk on a whole gateway: holding endpoints, and reloading without dropping anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from maitred.app.desk import Desk
from maitred.config.kinds import Address
from maitred.config.raw import ConfigError
from maitred.config.tree import Config, Http, Listen, Model, Queue, Upstream
from maitred.core.words import EndpointState
from tests.net.http import post
from tests.proxy.place import CHAT, WHOLE, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD, JSON, Plan, whole

SLOW: Plan = [2.0, whole(JSON)]


def desk(place: Place, *configs: Config | ConfigError) -> Desk:
    """A desk whose reloads find these, one after the other."""
    found = iter(configs)

    def load() -> Config:
        config = next(found)
        if isinstance(config, ConfigError):
            raise config
        return config

    async def here(load: Callable[[], Config]) -> Config:
        return load()

    return Desk(place.app, load, here)


def changed(place: Place, **sections: Any) -> Config:
    return structs.replace(place.app.config, **sections)


def model(place: Place, **options: Any) -> tuple[Model, ...]:
    return (structs.replace(place.app.config.models[0], **options),)


def kinds(place: Place) -> dict[str, str]:
    return {finding.kind: finding.where for finding in place.app.findings.current()}


@in_virtual_time()
async def test_a_held_endpoint_gets_nothing_until_it_is_let_in_again() -> None:
    async with serving(kitchens=2) as place:
        at = desk(place)
        first, second = [endpoint.name for endpoint in await at.endpoints()]
        assert await at.hold(first, held=True)
        assert not await at.hold("m/nobody:1", held=True)
        for _ in range(3):
            assert (await place.ask()).body == JSON
        assert {asked.kitchen for asked in place.menu.asked} == {1}
        assert await at.hold(first, held=False)
        await place.until(lambda: place.states == [EndpointState.READY] * 2)
        assert await at.hold(second, held=True)
        assert (await place.ask()).body == JSON
        assert place.menu.asked[-1].kitchen == 0


@in_virtual_time()
async def test_a_reload_changes_names_limits_and_addresses_under_load() -> None:
    async with serving(SLOW, kitchens=2, model={"cap": 1}) as place:
        kept, gone = place.kitchens
        asking = [asyncio.ensure_future(place.ask()) for _ in range(6)]
        await place.menu.called(2)
        new = model(place, endpoints=(kept.url,), aliases=("other",), cap=2)
        assert await desk(place, changed(place, models=new)).reload() == []
        assert {(await answer).body for answer in asking} == {JSON}
        assert [endpoint.url for endpoint in place.app.house.gateway.table.by_name.values()] == [kept.url]
        served = [asked.kitchen for asked in place.menu.asked]
        assert (served.count(kept.number), served.count(gone.number)) == (5, 1)
        assert (await place.ask(post(CHAT, chat(model="other")))).body == JSON.replace(b'"m"', b'"other"')
        assert place.outcomes == ["completed"] * 7
        assert place.app.metrics.reloads == {"ok": 1, "failed": 0}
        assert place.app.house.gateway.settings.version == 1


@in_virtual_time()
async def test_a_bad_file_changes_nothing_and_is_a_finding_until_a_good_one_comes() -> None:
    async with serving() as place:
        before = place.app.config
        at = desk(place, ConfigError(["maitred.yaml:3 listn: unknown key"]), before)
        with pytest.raises(ConfigError):
            await at.reload()
        assert place.app.config is before
        assert kinds(place) == {"reload_failed": "configuration"}
        assert "maitred.yaml:3 listn" in place.app.findings.current()[0].what
        assert (await place.ask()).body == JSON
        await at.reload_quietly()
        assert kinds(place) == {}
        assert place.app.metrics.reloads == {"ok": 1, "failed": 1}


@in_virtual_time()
async def test_what_takes_a_restart_is_said_until_it_is_taken_back() -> None:
    async with serving() as place:
        first = place.app.config
        moved = changed(place, listen=Listen(Address("127.0.0.1", 1)))
        at = desk(place, moved, first)
        assert await at.reload() == ["listen.data"]
        assert kinds(place) == {"restart_needed": "listen.data"}
        await at.reload()
        assert kinds(place) == {}


@in_virtual_time()
async def test_limits_of_clients_and_engines_follow() -> None:
    async with serving(GOOD, GOOD, [], upstream=Upstream(attempts=1)) as place:
        small = changed(place, http=Http(body_bytes_max=10), upstream=Upstream(attempts=1, first_byte_s=3.0))
        old = await place.client()
        await desk(place, small).reload()
        assert (await place.ask(WHOLE)).status == 413
        old.send(WHOLE)
        assert (await old.answer()).status == 200  # who was there before keeps what held then
        await place.drop_idle()
        old.send(WHOLE)
        assert (await old.answer()).status == 200
        await place.drop_idle()
        old.send(WHOLE)
        assert (await old.answer()).status == 504


@in_virtual_time()
async def test_who_waits_for_a_model_that_goes_is_told_and_who_is_served_is_served() -> None:
    async with serving(SLOW, model={"cap": 1, "queue": Queue(wait_s=30.0, requests_max=9)}) as place:
        asking = [asyncio.ensure_future(place.ask()) for _ in range(3)]
        await place.menu.called()
        await place.until(lambda: place.waiting == 2)
        other = Model(name="another", endpoints=place.app.config.models[0].endpoints)
        await desk(place, changed(place, models=(other,))).reload()
        answers = [await answer for answer in asking]
        assert sorted(answer.status for answer in answers) == [200, 503, 503]
        assert {answer.outcome for answer in answers if answer.status == 503} == {"no_endpoint"}


@in_virtual_time()
async def test_reloads_take_turns() -> None:
    async with serving() as place:
        two = [changed(place, models=model(place, aliases=(name,))) for name in "ab"]
        at = desk(place, *two)
        await asyncio.gather(at.reload(), at.reload())
        assert place.app.config is two[1]
        assert place.app.models.find("a") is None
        assert place.app.models.find("b") is not None
