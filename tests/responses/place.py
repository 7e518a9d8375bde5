"""A gateway that remembers, before a scripted engine, with the network in memory and a real database."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from msgspec import structs
from sqlalchemy import create_engine, make_url, text

from maitred.config.auth import Store
from maitred.core.words import Identity
from maitred.net.memory import MemoryNetwork
from tests.net.http import Answer, post
from tests.proxy.place import Place, serving
from tests.proxy.upstream import DONE, FINISH, MODEL, ROLE, USAGE, Plan, stream, whole, word

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
P = ParamSpec("P")


def says(text: str) -> Plan:
    """A whole answer with this text."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
    return (whole(json.dumps({**answer, "choices": [choice], "usage": usage}).encode()),)


def streams(*words: str) -> Plan:
    """A stream of these words."""
    return stream(ROLE, *map(word, words), FINISH, USAGE, DONE)


def turn(said: Any = "hi", *headers: str, **members: Any) -> bytes:
    """The request of a turn."""
    return post(RESPONSES, json.dumps({"model": MODEL, "input": said, **members}).encode(), *headers)


def call(method: str, path: str, body: Any = None, *headers: str) -> bytes:
    """Any other request."""
    raw = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: a", *headers]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(raw)}"]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def text_of(response: dict[str, Any]) -> str:
    """The words of a response."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part.get("text", "") for message in messages for part in message["content"])


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """The events of a stream, whose end was told."""
    *blocks, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    events = []
    for block in blocks:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


class Told:
    """What engines were asked."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies, in order."""
        return [json.loads(asked.body) for asked in self._place.menu.asked]

    @property
    def said(self) -> list[tuple[str, Any]]:
        """Role and content of the messages of the last."""
        return [(message["role"], message["content"]) for message in self.bodies[-1]["messages"]]


class Remembering:
    """What a test has in hand: the place, what engines were told, and the tables."""

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self.told = Told(place)
        self._url = url

    async def ask(self, request: bytes) -> Answer:
        """One request on a new connection, and its answer."""
        return await self.place.ask(request)

    async def turn(self, said: Any = "hi", *headers: str, **members: Any) -> dict[str, Any]:
        """One turn that is answered whole."""
        answer = await self.ask(turn(said, *headers, **members))
        assert answer.status == 200, answer.body
        response: dict[str, Any] = answer.json
        return response

    def tell_tenants_apart(self, who: Identity = Identity()) -> None:  # noqa: B008 - frozen
        """From now on whoever says x-tenant is that one; all else of him is as here."""

        def identify(fields: dict[bytes, bytes]) -> Identity:
            return structs.replace(who, tenant=fields.get(b"x-tenant", b"a").decode())

        app = self.place.app
        app.front.service = app.site.service = structs.replace(app.site.service, identify=identify)

    async def get(self, path: str) -> Answer:
        """Read."""
        return await self.ask(call("GET", path))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table."""
        engine = create_engine(make_url(self._url).set(drivername=DRIVERS[self._url.partition(":")[0]]))
        try:
            with engine.connect() as connection:
                return [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
        finally:
            engine.dispose()


@asynccontextmanager
async def remembering(url: str, *plans: Plan, **sections: Any) -> AsyncIterator[Remembering]:
    """A gateway that answers stateful requests, and keeps what they say in this database."""
    store = Store(url=url)
    async with serving(*plans, **{"network": MemoryNetwork(), "store": store, **sections}) as place:
        yield Remembering(place, url)


def in_real_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on an ordinary loop, for the database has threads; one that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(main())

    return run
