"""What people say to models and hear from them is nobody else's: it is in no log, metric, error or status.

Strings that nobody else would write are driven through every outcome there is; afterwards all that the
gateway wrote or tells of itself is searched for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from maitred.config.auth import Auth, Store
from maitred.config.flow import Budget, ModelLimits, Tenant
from maitred.config.secret import EnvSecret
from maitred.config.tree import Config, Drain, Http, Journal, Model, Queue, Upstream
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import EndpointState, Request
from maitred.door.house import House
from tests.cases.place import ANYWHERE, Place, admin_port, on_sockets, opened
from tests.cases.upstream import SILENCE, Engine, Plan, stream
from tests.net.http import Broken, get, post
from tests.proxy.place import CHAT
from tests.proxy.upstream import DONE, FINISH, JSON, ROLE, End, event, head, whole, word
from tests.responses.test_content import CASES as REMEMBERED

PROMPT, SYSTEM, ARGUMENT, COMPLETION, KEY = (
    f"canary-{name}-7c9e" for name in ("prompt", "system", "argument", "said", "key")
)
CANARIES = (PROMPT, SYSTEM, ARGUMENT, COMPLETION, KEY)
HEADERS = (f"Authorization: Bearer {KEY}", f"X-Api-Key: {KEY}", f"Cookie: session={KEY}")
STOP = b"x-maitred-outcome"


def body(**members: Any) -> bytes:
    """A chat request full of canaries."""
    tool = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"x": ARGUMENT})},
    }
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": "call_1", "content": ARGUMENT},
    ]
    return json.dumps({"model": "m", "messages": messages, "user": PROMPT, **members}).encode()


def ask(**members: Any) -> bytes:
    """That request as it is sent."""
    return post(f"{CHAT}?key={KEY}", body(**members), *HEADERS)


SAID = event(
    '{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f",'
    f'"arguments":"{ARGUMENT}"}}}}]}},"finish_reason":null}}'
)
WORDS = (ROLE, word(COMPLETION), SAID)
ERROR = f'{{"error":{{"message":"cannot do {PROMPT} with {COMPLETION}","code":500}}}}'.encode()
ANSWER = JSON.replace(b'"choices":[]', b'"choices":[{"message":{"content":"%b"}}]' % COMPLETION.encode())
NEVER = asyncio.Event

Do = Callable[[Place], Awaitable[None]]


def asks(request: bytes, *plans: Plan) -> Do:
    """Ask this of engines that answer so."""

    async def do(place: Place) -> None:
        place.script.set(*(plans or (SILENCE,)))
        client = await place.client()
        client.send(request)
        try:
            answer = await client.answer(request.partition(b" ")[0].decode())
        except Broken:
            return
        if answer.values(STOP):
            check("an error of ours", answer.body + repr(answer.headers).encode())
        elif ERROR in answer.body:
            assert plans  # the engine's own words to the client, and to nobody else
        elif b'data: {"error"' in answer.body:
            check("an error event", answer.body[answer.body.rindex(b"data: {") :])

    return do


async def leaves(place: Place) -> None:
    """Ask for a stream and leave within."""
    place.script.set([*stream(*WORDS, end=()), NEVER()])
    client = await place.client()
    client.send(ask(stream=True))
    await client.heard(COMPLETION.encode())
    client.leave()
    await place.until(lambda: not place.app.journeys)


async def crowds(place: Place) -> None:
    """More than may run and wait: one is refused at the door, one for having waited too long."""
    place.script.set(SILENCE)
    clients = [await place.client() for _ in range(3)]
    for client in clients[:2]:
        client.send(ask())
    await place.until(lambda: place.waiting == 1)
    clients[2].send(ask())
    for client in (clients[2], clients[1]):
        check("a refusal", (await client.answer()).body)
    clients[0].leave()
    await place.until(lambda: not place.app.journeys)


async def breaks(place: Place) -> None:
    """A bug of ours."""

    def accept(_self: House, request: Request, _identity: object) -> None:
        raise RuntimeError(f"no such thing in {request.id}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(House, "accept", accept)
        await asks(ask())(place)
    place.bugs += 1


CASES: dict[Outcome, list[Do]] = {
    Outcome.COMPLETED: [
        asks(ask(), [whole(ANSWER)]),
        asks(ask(stream=True), stream(*WORDS, FINISH, DONE)),
        asks(get(f"/v1/models?key={KEY}", *HEADERS)),
    ],
    Outcome.CLIENT_GONE: [leaves],
    Outcome.BAD_REQUEST: [
        asks(post(CHAT, body()[:-1] + PROMPT.encode(), *HEADERS)),
        asks(post(CHAT, PROMPT.encode(), *HEADERS)),
        asks(ask(n=PROMPT)),
        asks(ask(stream=PROMPT)),
        asks(ask(model=[PROMPT])),
        asks(ask(priority=PROMPT)),
        asks(ask(stream_options={"include_usage": PROMPT})),
        asks(post(CHAT, body().replace(b"}", b'} "%b"' % PROMPT.encode(), 1), *HEADERS)),
        asks(post(CHAT, b'{"model":"m","%b":"\xff"}' % PROMPT.encode(), *HEADERS)),
        asks(
            ask(
                messages=[
                    {"content": [{"type": "image_url", "image_url": {"url": f"http://10.0.0.1/{PROMPT}"}}]}
                ]
            )
        ),
        asks(get(f"{CHAT}", f"Content-Length: {PROMPT}", *HEADERS, method="POST")),
        asks(get("/v1/models", f"X {KEY}: y")),
    ],
    Outcome.PATH_NOT_FOUND: [asks(get(f"/v1/nothing?key={KEY}", *HEADERS))],
    Outcome.METHOD_NOT_ALLOWED: [asks(get(f"{CHAT}?key={KEY}", *HEADERS))],
    Outcome.BODY_TOO_LARGE: [asks(ask(pad=PROMPT * 10_000))],
    Outcome.MEDIA_TYPE: [
        asks(get(CHAT, f"Content-Type: text/{PROMPT}", "Content-Length: 0", *HEADERS, method="POST"))
    ],
    Outcome.HEADERS_TOO_LARGE: [asks(get("/v1/models", *HEADERS, f"X: {KEY * 6000}"))],
    Outcome.REQUEST_TIMEOUT: [asks(ask()[:-5])],
    Outcome.MODEL_NOT_FOUND: [
        asks(ask(model=PROMPT)),
        asks(ask(model=PROMPT * 200)),
    ],
    Outcome.CONTEXT_TOO_LONG: [asks(ask(max_tokens=2**31 - 1))],
    Outcome.QUEUE_FULL: [crowds],
    Outcome.QUEUE_DEADLINE: [crowds],
    Outcome.ENGINE_REFUSED: [asks(ask(), [whole(ERROR, status=400)])],
    Outcome.ENGINE_OVERLOADED: [asks(ask(), [whole(ERROR, f"retry-after: {PROMPT}", status=429)])],
    Outcome.FAILED_UPSTREAM: [
        asks(ask(), [whole(ERROR, status=500)]),
        asks(ask(), [whole(ERROR)]),
        asks(ask(), [head(302, f"location: http://x/{PROMPT}", "content-length: 0")]),
        asks(ask(), [f"HTTP/1.1 {COMPLETION}\r\n\r\n".encode()]),
        asks(ask(), [head(200, f"content-length: {COMPLETION}")]),
        asks(ask(stream=True), [whole(ANSWER)]),
        asks(ask(stream=True), stream(ROLE, b"data: " + ERROR + b"\n\n")),
        asks(ask(stream=True), stream(*WORDS, b"data: " + ERROR + b"\n\n", DONE)),
        asks(ask(stream=True), [*stream(*WORDS, end=()), COMPLETION.encode() + b"\r\n"]),
    ],
    Outcome.FAILED_TRUNCATED: [
        asks(ask(stream=True), stream(*WORDS)),
        asks(ask(stream=True), [*stream(*WORDS, end=()), End.RESET]),
        asks(ask(), [whole(ANSWER)[:-10], End.CLOSE]),
    ],
    Outcome.FAILED_DEADLINE: [asks(ask())],
    Outcome.FAILED_INTERNAL: [breaks],
}
AFTERWARDS = (Outcome.NO_ENDPOINT, Outcome.DRAINING)
"""Outcomes that leave nothing to go on with; they have a test of their own, as has the quarantine."""
AT_THE_DOOR = (Outcome.UNAUTHENTICATED, Outcome.AUTH_UNAVAILABLE)
"""Outcomes of who is not let in; they need keys to be kept."""


def check(where: str, text: bytes) -> None:
    """No canary is in it, however it is written."""
    for canary in CANARIES:
        assert canary.encode() not in text, f"{canary} is in {where}"
        assert canary.encode().hex().encode() not in text


async def told(place: Place, caplog: pytest.LogCaptureFixture, file: Path) -> str:
    """All that the gateway wrote, and all that it tells who asks the admin port."""
    assert place.app.journal is not None
    place.app.journal.flush()
    async with admin_port(place) as look:
        answers = [await look(path) for path in ("/metrics", "/admin/v1/endpoints", "/admin/v1/findings")]
    parts = [answer.body.decode() for answer in answers]
    return "\n".join([json.dumps(place.lines), caplog.text, file.read_text(), *parts])


def config(file: Path) -> Callable[[list[str]], Config]:
    """One place, one that may wait, everything written, and little patience."""
    model = {"name": "m", "cap": 1, "queue": Queue(wait_s=0.5, requests_max=1)}
    return lambda urls: Config(
        listen=ANYWHERE,
        models=(Model(endpoints=tuple(urls), **model),),  # type: ignore[arg-type]
        http=Http(body_bytes_max=100_000, body_timeout_s=0.3),
        upstream=Upstream(first_byte_s=1.5, attempts=1),
        journal=Journal(file),
        drain=Drain(limit_s=0.1),
    )


LIMITED: dict[Outcome, dict[str, Any]] = {
    Outcome.CONTEXT_TOO_LONG: {"limits": ModelLimits(context=10)},
    Outcome.RATE_LIMITED: {"limits": ModelLimits(requests_per_min=1)},
    Outcome.CONCURRENCY_LIMITED: {"limits": ModelLimits(concurrent=1)},
    Outcome.QUOTA_SPENT: {"budget": Budget(tokens_per_day=1)},
}
"""What each is limited by: a model's limits, or the budget of whoever asks."""
STOPPED = (Outcome.DEADLINE_UNMEETABLE, Outcome.EVICTED)
"""What takes a crowd over minutes; here the core just says it."""


def test_every_outcome_is_here() -> None:
    here = {*CASES, *AFTERWARDS, *AT_THE_DOOR, *LIMITED, *STOPPED, Outcome.QUARANTINED}
    assert set(Outcome) == here | set(REMEMBERED)


@pytest.mark.parametrize("outcome", [*LIMITED, *STOPPED], ids=lambda outcome: outcome.label)
@on_sockets
async def test_nor_of_who_has_had_enough(
    outcome: Outcome, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    file, bounds = tmp_path / "journal", LIMITED.get(outcome, {})

    def limited(urls: list[str]) -> Config:
        whole_config = config(file)(urls)
        model = structs.replace(whole_config.models[0], limits=bounds.get("limits", ModelLimits()))
        tenant = Tenant(budget=bounds.get("budget", Budget()))
        return structs.replace(whole_config, models=(model,), default_tenant=tenant)

    def stopped(_self: House, _request: Request, _identity: object) -> None:
        raise Refusal(outcome, "there is no room for it", retry_after_s=1.0)

    async with opened([Engine()], config=limited) as place:
        if outcome in STOPPED:
            monkeypatch.setattr(House, "accept", stopped)
        place.engines[0].script.set(SILENCE)
        first, second = await place.client(), await place.client()
        first.send(ask(max_tokens=100))
        if outcome in (Outcome.RATE_LIMITED, Outcome.CONCURRENCY_LIMITED):
            await place.until(lambda: asked(place) == 1)
            second.send(ask(max_tokens=100))
            first, second = second, first
        refused = await first.answer()
        assert refused.outcome == outcome.label
        check("a refusal", refused.body)
        second.leave()
        await place.until(lambda: not place.app.journeys)
        assert outcome.label in place.outcomes
        check("what it tells of itself", (await told(place, caplog, file)).encode())


@pytest.mark.parametrize("outcome", CASES, ids=lambda outcome: outcome.label)
@on_sockets
async def test_it_is_told_without_a_word_of_content(
    outcome: Outcome, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "journal"
    async with opened([Engine()], config=config(file)) as place:
        for do in CASES[outcome]:
            await do(place)
        await place.until(lambda: not place.app.journeys)
        ended = set(place.outcomes)
        assert outcome.label in ended
        assert ended <= {
            outcome.label,
            *({"queue_full", "queue_deadline", "client_gone"} if do is crowds else set()),
        }
        check("what it tells of itself", (await told(place, caplog, file)).encode())


@pytest.mark.parametrize("outcome", AFTERWARDS, ids=lambda outcome: outcome.label)
@on_sockets
async def test_nor_when_it_cannot_go_on(
    outcome: Outcome, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "journal"
    async with opened([Engine(), Engine(), Engine()], config=config(file)) as place:
        if outcome is Outcome.DRAINING:
            for engine in place.engines:
                engine.script.set([*stream(*WORDS, end=()), NEVER()])
            client = await place.client()
            client.send(ask(stream=True))
            await client.heard(COMPLETION.encode())
            await place.app.drain()
            answer = await client.answer()
            check("an error event", answer.body[answer.body.rindex(b"data: {") :])
        else:
            for engine in place.engines:
                engine.close()
            for _ in range(4):
                check("a refusal", (await place.ask(ask())).body)
        await place.until(lambda: not place.app.journeys)
        assert outcome.label in place.outcomes
        check("what it tells of itself", (await told(place, caplog, file)).encode())


@pytest.mark.parametrize("outcome", AT_THE_DOOR, ids=lambda outcome: outcome.label)
@on_sockets
async def test_nor_of_who_is_not_let_in(
    outcome: Outcome, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS_PEPPER", f"{KEY}-pepper")
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "journal"
    folder = tmp_path if outcome is Outcome.UNAUTHENTICATED else tmp_path / "nowhere"
    auth = Auth(keys="store", pepper=EnvSecret("KEYS_PEPPER"))
    store = Store(f"sqlite:///{folder}/m.db")

    def guarded(urls: list[str]) -> Config:
        return structs.replace(config(file)(urls), auth=auth, store=store)

    async with opened([Engine()], config=guarded) as place:
        await asks(ask())(place)
        await asks(get(f"/v1/models?key={KEY}", *HEADERS))(place)
        assert place.outcomes == [outcome.label] * 2
        check("what it tells of itself", (await told(place, caplog, file)).encode())


def asked(place: Place) -> int:
    """How many requests have reached engines."""
    return sum(len(engine.script.asked) for engine in place.engines)


@pytest.mark.parametrize("kept", [False, True], ids=["fresh connections", "kept connections"])
@on_sockets
async def test_nor_when_engines_die_of_it(
    kept: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """One that answered a moment ago on the same connection and dies of the next request died of it, too."""
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "journal"
    async with opened([Engine(), Engine(), Engine()], config=config(file)) as place:
        for _ in place.engines:
            assert (await place.ask(ask(seed=1))).status == 200
        for engine in place.engines:
            engine.script.set(SILENCE)
        if not kept:
            await place.drop_idle()
        for _ in range(2):
            client = await place.client()
            before = asked(place)
            client.send(ask())
            await place.until(lambda: asked(place) > before)  # noqa: B023 - at once
            dies = place.engines[place.running.index(1)]
            dies.close()
            assert (await client.answer()).status == 502
            name = f"m/127.0.0.1:{dies.port}"
            table = place.app.house.gateway.table.by_name
            await place.until(lambda: table[name].state is EndpointState.EJECTED)  # noqa: B023 - at once
        refused = await place.ask(ask())
        assert (refused.status, refused.outcome) == (500, "quarantined")
        assert refused.value(b"x-should-retry") == b"false"
        check("a refusal", refused.body)
        await place.until(lambda: "query_of_death" in {one.kind for one in place.findings})
        check("what it tells of itself", (await told(place, caplog, file)).encode())
