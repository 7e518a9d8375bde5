"""Listening to engines over real ZMQ sockets: a twin that publishes as vLLM does, and some that do not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
import uvloop
import zmq
import zmq.asyncio

from maitred.config.cache import TENANT, Cache, Events
from maitred.config.kinds import Address
from maitred.config.tree import Config, Model
from maitred.control.kv_events import NO_LONGER, SILENT_SEATED, UNSALTED, Listener
from maitred.control.kv_feed import MESSAGE_BYTES_MAX, NOTHING_YET
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Endpoint, EndpointState, Facts, KvEvents
from maitred.net.seams import Sockets
from maitred.observe.findings import Findings
from maitred.observe.kv_events import KvFigures
from maitred.twin.kv_events import Form
from maitred.twin.kv_events import KvEvents as Publisher
from maitred.wire.prefix import blocks_of, root
from tests.ports import free_port
from tests.twin.place import Place, serving

PATIENCE_S = 60.0
"""Only a failing test ever waits this long."""
LONG = {"messages": [{"role": "user", "content": "a long story " * 40}], "max_tokens": 1}
"""A prompt of 4 full blocks."""
STORED = ["BlockStored", [1, 2], None, [5, 6, 7, 8], 2]


def config(**events: Any) -> Config:
    return Config(models=(Model("q", ("http://h",), cache=Cache(events=Events(**events))),))


async def until(so: Callable[[], object]) -> None:
    """Wait for what comes over sockets."""
    async with asyncio.timeout(PATIENCE_S):
        while not so():
            await asyncio.sleep(0.002)


class Scene:
    """A listener that looks when it is told to, and what it told."""

    def __init__(self, config: Config) -> None:
        self.table = EndpointTable()
        self.told: list[KvEvents] = []
        self.findings = Findings()
        self.listener = Listener(
            config,
            self.table,
            self.told.append,
            self.findings,
            asyncio.get_running_loop().time,
            lambda: 1.8e9,
        )

    def add(self, url: str = "http://127.0.0.1:8001", pool: str = "q") -> Endpoint:
        name = f"{pool}/{url.removeprefix('http://')}"
        endpoint = self.table.by_name[name] = Endpoint(name, pool, url, EndpointState.READY)
        self.listener.look()
        return endpoint

    def of(self, endpoint: Endpoint) -> KvFigures:
        return next(known for known in self.listener.figures() if known.endpoint == endpoint.name)

    def there(self, endpoint: Endpoint) -> set[int]:
        """What the core thinks is there."""
        there = set[int]()
        for change in self.told:
            if change.endpoint == endpoint.name:
                there = (set() if change.cleared else there - set(change.removed)) | set(change.stored)
        return there

    @property
    def found(self) -> dict[str, tuple[str, str]]:
        self.listener.look()
        return {one.where: (one.what, one.do) for one in self.findings.current()}


@asynccontextmanager
async def listening(**events: Any) -> AsyncIterator[Scene]:
    scene = Scene(config(**events))
    try:
        yield scene
    finally:
        await scene.listener.close()


class Plain:
    """A publisher that says what it is told to."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.number = 0
        self.said: dict[int, bytes] = {}

    def say(self, *events: Any, topic: bytes = b"", number: int | None = None, lost: bool = False) -> None:
        self.number = self.number if number is None else number
        payload = self.said[self.number] = msgspec.msgpack.encode([1.8e9, events, 0])
        if not lost:
            self.socket.send_multipart([topic, self.number.to_bytes(8), payload])
        self.number += 1

    async def heard(self, figures: Callable[[], KvFigures], topic: bytes = b"") -> None:
        """Say nothing in particular until it is heard, as what is said before is lost."""
        await self.until(lambda: figures().heard_at is not None, topic)

    async def until(self, so: Callable[[], object], topic: bytes = b"") -> None:
        """Say nothing in particular until it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not so():
                self.say(topic=topic)
                await asyncio.sleep(0.002)


@contextmanager
def closing(context: zmq.asyncio.Context) -> Iterator[None]:
    try:
        yield
    finally:
        context.destroy(linger=0)


@contextmanager
def publisher(*, bind: int | None = None, connect: int | None = None) -> Iterator[Plain]:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        if bind is not None:
            socket.bind(f"tcp://127.0.0.1:{bind}")
        else:
            socket.connect(f"tcp://127.0.0.1:{connect}")
        yield Plain(socket)


@asynccontextmanager
async def twin(port: int, replay: int | None, form: Form = "map", **profile: Any) -> AsyncIterator[Place]:
    events = Publisher(
        f"tcp://*:{port}", 32, lambda: 1.8e9, f"tcp://127.0.0.1:{replay}" if replay else None, form=form
    )
    async with serving(None, Sockets(), events, **profile) as place:
        yield place


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(test())


async def keys_of(place: Place, salt: str = "") -> set[int]:
    """Our keys of the long prompt."""
    answer = await place.post("/tokenize", {"messages": LONG["messages"]})
    ids = b"".join(number.to_bytes(4, "little") for number in answer.json["tokens"])
    return set(blocks_of(root("q"), ids, 32, salt))


@pytest.mark.parametrize("form", ["map", "array"])
def test_what_an_engine_caches_is_known_by_the_keys_of_requests(form: Form) -> None:
    async def test() -> None:
        port, replay = free_port(), free_port()
        async with twin(port, replay, form) as place, listening(port=port, replay=replay) as scene:
            await place.chat(**LONG)
            endpoint = scene.add(place.url)
            keys = await keys_of(place)
            await until(lambda: scene.there(endpoint) == keys)  # by the replay: it was said before we came
            figures = scene.of(endpoint)
            assert (figures.why, figures.blocks, figures.block_tokens) == ("", 4, 32)
            if form == "map":  # older ones do not tell the salt
                await place.chat(**LONG | {"cache_salt": "tenant-a"})
                salted = await keys_of(place, "tenant-a")
                await until(lambda: scene.there(endpoint) == keys | salted)
            await place.post("/reset_prefix_cache")
            await until(lambda: not scene.there(endpoint))
            assert not scene.found
            assert not any(figures.counts[what] for what in ("malformed", "unknown", "orphans", "strangers"))

    run(test)


def test_another_process_is_another_cache() -> None:
    async def test() -> None:
        port, replay = free_port(), free_port()
        async with twin(port, replay) as place, listening(port=port, replay=replay) as scene:
            endpoint = scene.add(place.url)
            await place.chat(**LONG)
            keys = await keys_of(place)
            await until(lambda: scene.there(endpoint) == keys)
            await place.post("/twin/crash")
            endpoint.incarnation += 1
            scene.listener.look()
            assert not scene.there(endpoint)
            assert scene.of(endpoint).why == NOTHING_YET

    run(test)


@pytest.mark.parametrize("topic", [(), (b"kv@q",)], ids=["without a topic", "with a topic"])
def test_a_gap_is_filled_by_asking(topic: tuple[bytes, ...]) -> None:
    async def retell(router: zmq.asyncio.Socket, engine: Plain) -> None:
        while True:
            asker, empty, first = await router.recv_multipart()
            await router.send_multipart([asker, b"", b"what is this"])
            for number, payload in sorted(engine.said.items()):
                if number >= int.from_bytes(first):
                    await router.send_multipart([asker, empty, *topic, number.to_bytes(8), payload])
            await router.send_multipart([asker, empty, *topic, b"\xff" * 8, b""])

    async def test() -> None:
        port, context = free_port(), zmq.asyncio.Context()
        router = context.socket(zmq.ROUTER)
        replay = router.bind_to_random_port("tcp://127.0.0.1")
        with closing(context), publisher(bind=port) as engine:
            retelling = asyncio.create_task(retell(router, engine))
            async with listening(port=port, replay=replay) as scene:
                endpoint = scene.add()
                figures = scene.of(endpoint)
                await engine.heard(lambda: figures)
                # By the replay of the start, perhaps: what is said before it listens, too, is lost.
                await engine.until(lambda: figures.counts["messages"] == engine.number)
                rank = scene.listener._lines[endpoint.name].feed._ranks[0]
                await until(lambda: rank.replay is None)  # or that of the start might tell of it already
                rank.rests_until = 0.0  # on a busy machine the start may have asked twice
                gaps = figures.counts["gaps"]
                engine.say(STORED, lost=True)
                await engine.until(lambda: len(scene.there(endpoint)) == 2)
                await until(lambda: figures.counts["messages"] == engine.number)
                assert figures.counts["gaps"] == gaps + 1
                assert not any(change.lost for change in scene.told)
            retelling.cancel()
            await asyncio.gather(retelling, return_exceptions=True)

    run(test)


def test_two_at_one_place_are_told_apart_or_guessed() -> None:
    async def test() -> None:
        port = free_port()
        with publisher(bind=port) as engine:
            async with listening(port=port) as scene:
                one, two = scene.add("http://127.0.0.1:8001"), scene.add("http://127.0.0.1:8002")
                await engine.heard(lambda: scene.of(one), b"kv@127.0.0.1:8001@q")
                engine.say(STORED, topic=b"kv@127.0.0.1:8001@q")
                await until(lambda: scene.there(one))
                assert not scene.there(two)
                assert scene.of(two).counts["foreign"] > 0
                what, do = scene.found[two.name]
                assert f"tcp://127.0.0.1:{port} is also where {one.name} publishes" in what
                assert "cache.events.offset" in do
                assert scene.of(two).why in what
                assert one.name not in scene.found

    run(test)


def test_engines_on_one_host_have_ports_of_their_own() -> None:
    async def test() -> None:
        ports = free_port(), free_port()
        with publisher(bind=ports[0]) as first, publisher(bind=ports[1]) as second:
            async with listening(offset=1) as scene:
                engines = [scene.add(f"http://127.0.0.1:{port - 1}") for port in ports]
                for engine, endpoint in zip((first, second), engines, strict=True):
                    await engine.heard(lambda endpoint=endpoint: scene.of(endpoint))  # type: ignore[misc]
                second.say(STORED)
                await until(lambda: scene.there(engines[1]))
                assert not scene.there(engines[0])
                assert not scene.found

    run(test)


def test_engines_may_come_to_us(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        port = free_port(run=2)
        async with listening(bind=Address("127.0.0.1", port), ranks=2) as scene:
            one, two = scene.add("http://127.0.0.1:8001"), scene.add("http://127.0.0.1:8002")
            with publisher(connect=port) as first, publisher(connect=port + 1) as second:
                await first.heard(lambda: scene.of(one), b"kv@localhost:8001@q")
                await second.heard(lambda: scene.of(two), b"kv@localhost:8002@q")
                second.say(STORED, topic=b"kv@127.0.0.1:8002@q")
                await until(lambda: scene.there(two))
                assert not scene.there(one)
                first.say(STORED, topic=b"kv@127.0.0.1:8003@q")
                first.say(STORED, topic=b"stock prices")
                await until(lambda: scene.listener.foreign == 2)
                assert not scene.there(one)
                assert not scene.found
                three = scene.add("http://127.0.0.1:8003")
                first.say(STORED, topic=b"kv@127.0.0.1:8003@q")
                await until(lambda: scene.there(three))

    run(test)
    [line] = [record for record in caplog.records if "nobody we know" in record.getMessage()]
    assert line.levelno == logging.WARNING


def test_a_taken_address_is_found_and_tried_again() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(bind=Address("127.0.0.1", port)) as scene:
            with publisher(bind=port):
                endpoint = scene.add()
                what, _ = scene.found[endpoint.name]
                assert f"tcp://127.0.0.1:{port} cannot be listened at (Address already in use" in what
            assert not scene.found
            with publisher(connect=port) as engine:
                await engine.heard(lambda: scene.of(endpoint))

    run(test)


def test_a_port_that_is_none_is_found() -> None:
    async def test() -> None:
        async with listening(offset=65535) as scene:
            endpoint = scene.add()
            assert "tcp://127.0.0.1:73536 cannot be listened to" in scene.found[endpoint.name][0]

    run(test)


def test_blocks_of_another_size_are_guessed_until_they_are_the_same() -> None:
    async def test() -> None:
        ports = [free_port() for _ in range(3)]
        async with listening(offset=1) as scene:
            endpoints = [scene.add(f"http://127.0.0.1:{port - 1}") for port in ports]
            publishers = [publisher(bind=port) for port in ports]
            first, second, third = (each.__enter__() for each in publishers)
            try:
                odd = ["BlockStored", [1], None, [5, 6, 7, 8], 4]
                for engine, endpoint in zip((first, second, third), endpoints, strict=True):
                    await engine.heard(lambda endpoint=endpoint: scene.of(endpoint))  # type: ignore[misc]
                    engine.say(odd if engine is first else STORED)
                    await until(lambda endpoint=endpoint: scene.there(endpoint))  # type: ignore[misc]
                assert scene.listener.block_tokens("q") == 2
                what, do = scene.found[endpoints[0].name]
                assert "its blocks have 4 tokens, others of q have 2" in what
                assert "--block-size" in do
                assert not scene.there(endpoints[0])
                assert scene.told[-1].lost
                first.say(["AllBlocksCleared"], number=0)
                first.say(STORED)
                await until(lambda: not scene.found)
                assert scene.there(endpoints[0]) == scene.there(endpoints[1])
                assert scene.listener.block_tokens("else") == 0
            finally:
                for each in publishers:
                    each.__exit__(None, None, None)

    run(test)


def test_an_engine_that_tells_nothing_of_its_work_is_found() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(port=port) as scene:
            endpoint = scene.add()
            endpoint.seated = SILENT_SEATED - 1
            assert not scene.found
            assert scene.of(endpoint).why == NOTHING_YET
            endpoint.seated = SILENT_SEATED
            what, do = scene.found[endpoint.name]
            assert f"nothing was heard at tcp://127.0.0.1:{port}" in what
            assert "--kv-events-config" in do
            with publisher(bind=port) as engine:
                await engine.heard(lambda: scene.of(endpoint))
                assert not scene.found
                assert scene.of(endpoint).why == ""

    run(test)


def test_where_tenants_are_kept_apart_an_engine_must_tell_salts() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(port=port) as scene:
            apart = Cache(isolate=TENANT, events=Events(port=port))
            scene.listener.apply(Config(models=(Model("q", ("http://h",), cache=apart),)))
            with publisher(bind=port) as engine:
                endpoint = scene.add()
                endpoint.facts = Facts(engine="sglang", model="q")
                scene.listener.look()
                await engine.heard(lambda: scene.of(endpoint))
                engine.say(STORED)
                await until(lambda: scene.of(endpoint).blocks == 2)
                assert not scene.there(endpoint)
                assert scene.of(endpoint).why == UNSALTED
                assert not scene.found, "there is a finding of another kind"
                endpoint.facts = Facts(engine="vllm", model="q")
                scene.listener.look()
                assert len(scene.there(endpoint)) == 2

    run(test)


def test_frames_that_are_none_are_counted() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(port=port) as scene:
            with publisher(bind=port) as engine:
                endpoint = scene.add()
                await engine.heard(lambda: scene.of(endpoint))
                figures = scene.of(endpoint)
                engine.socket.send_multipart([b"", b"1234567"])
                engine.socket.send_multipart([b"", b"1234567", b""])
                engine.socket.send_multipart([b"", b"12345678", b"", b""])
                engine.say("what?")
                await until(lambda: figures.counts["malformed"] == 4)
                engine.say(STORED)
                await until(lambda: scene.there(endpoint))

    run(test)


@pytest.mark.parametrize("bind", [False, True])
def test_too_large_a_message_is_dropped(bind: bool) -> None:
    async def test() -> None:
        port = free_port()
        ways: tuple[dict[str, Any], dict[str, Any]] = {"port": port}, {"bind": Address("127.0.0.1", port)}
        async with listening(**ways[bind]) as scene:
            with publisher(**({"connect": port} if bind else {"bind": port})) as engine:
                endpoint = scene.add()
                await engine.heard(lambda: scene.of(endpoint))
                engine.socket.send_multipart([b"", engine.number.to_bytes(8), bytes(MESSAGE_BYTES_MAX + 1)])
                engine.number += 1
                await engine.until(lambda: scene.of(endpoint).counts["gaps"])

    run(test)


def test_a_burst_is_taken_in_whole() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(port=port) as scene:
            with publisher(bind=port) as engine:
                endpoint = scene.add()
                await engine.heard(lambda: scene.of(endpoint))
                for name in range(500):
                    engine.say(["BlockStored", [name], None, [name, name], 2])
                await until(lambda: scene.of(endpoint).blocks == 500)
                assert len(scene.there(endpoint)) == 500
                assert len(scene.told) < 300, "told together"
                assert scene.of(endpoint).counts["gaps"] == 0

    run(test)


def test_who_leaves_or_is_no_longer_listened_to_is_guessed() -> None:
    async def test() -> None:
        port = free_port()
        async with listening(port=port) as scene:
            with publisher(bind=port) as engine:
                endpoint, other = scene.add(), scene.add("http://127.0.0.1:9", "else")
                await engine.heard(lambda: scene.of(endpoint))
                engine.say(STORED)
                await until(lambda: scene.there(endpoint))
                assert [known.endpoint for known in scene.listener.figures()] == [endpoint.name], other
                figures = scene.of(endpoint)
                scene.listener.apply(Config(endpoints=("http://h",)))
                scene.listener.look()
                assert not scene.there(endpoint)
                assert figures.why == NO_LONGER
                assert not scene.listener.figures()
                scene.listener.apply(config(port=port))
                endpoint.state = EndpointState.PROBING
                scene.listener.look()
                assert not scene.listener.figures(), "nobody is known to be there"
                endpoint.state = EndpointState.DRAINING
                scene.listener.look()
                assert len(scene.listener.figures()) == 1
                told = len(scene.told)
                del scene.table.by_name[endpoint.name]
                scene.listener.look()
                assert not scene.listener.figures()
                assert len(scene.told) == told

    run(test)


def test_it_looks_again_and_leaves_nothing_open() -> None:
    async def test() -> None:
        port = free_port()
        looked = asyncio.Event()

        async def sleep(_s: float) -> None:
            looked.set()
            await asyncio.Event().wait()

        table = EndpointTable()
        table.by_name["q/a:1"] = Endpoint("q/a:1", "q", "http://127.0.0.1:1", EndpointState.READY)
        clock = asyncio.get_running_loop().time
        settings = config(port=port, replay=free_port())
        listener = Listener(settings, table, lambda _: None, Findings(), clock, clock, sleep=sleep)
        task = asyncio.create_task(listener.run())
        await looked.wait()
        assert len(listener.figures()) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not listener.figures()
        assert len(asyncio.all_tasks()) == 1

    run(test)
