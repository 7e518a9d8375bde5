"""The admin port's answers: what is there, what is wrong, and the few things an operator can do.

Nothing here touches the gateway's state: what concerns it is asked at the `Desk`, on the gateway's own loop;
`render` reads numbers that may be read from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from maitred.admin.gate import Gate, problem
from maitred.config.raw import ConfigError
from maitred.core.words import Endpoint
from maitred.observe.decisions import Page, Wanted
from maitred.observe.exposition import CONTENT_TYPE
from maitred.observe.findings import Finding
from maitred.observe.kv_events import KvFigures

T = TypeVar("T")

ANSWER_S = 2.0
RELOAD_S = 10.0
"""How long the gateway's loop may take to answer a question, and to load its configuration again."""

COUNT_S = 0.25
"""How long metrics wait for it to count what is over."""

PAUSE_S = 0.001
"""Rest between two pieces of metrics: a sleep of zero would take the interpreter back before a stream
that waits for it has woken up."""


class Desk(Protocol):
    """What the gateway does for an operator. All of it runs on the gateway's loop."""

    async def endpoints(self) -> Iterable[Endpoint]:
        """All endpoints."""

    async def kv_events(self) -> Mapping[str, KvFigures]:
        """What is known of endpoints' KV events, by name."""

    async def findings(self) -> Sequence[Finding]:
        """What is wrong now."""

    async def count(self) -> None:
        """Have everything counted that is over."""

    async def decisions(self, wanted: Wanted) -> Page:
        """The last decisions that were kept."""

    async def hold(self, name: str, held: bool) -> bool:
        """Take an endpoint out or let it in again; False when there is none of this name."""

    async def reload(self) -> list[str]:
        """Load the configuration again; what of it needs a restart. ConfigError means nothing changed."""


Question = Callable[[], Coroutine[Any, Any, T]]


class Ask(Protocol):
    """Has a question answered on the gateway's loop. Raises TimeoutError when that takes too long."""

    async def __call__(self, question: Question[T], limit_s: float) -> T:
        """The answer; ConfigError passes through."""


class KvRow(Struct, frozen=True):
    """An endpoint's KV events as the admin API shows them: whether they are `used`, and `why` not.

    The last came `age_s` ago and was `lag_s` old then; None before the first. `counts` are those of
    `maitred_kv_events_total`.
    """

    used: bool
    why: str
    age_s: float | None
    lag_s: float | None
    blocks: int
    block_tokens: int
    counts: dict[str, int]

    @classmethod
    def of(cls, known: KvFigures, now: float) -> KvRow:
        """What is known now."""
        return cls(
            used=not known.why,
            why=known.why,
            age_s=None if known.heard_at is None else round(now - known.heard_at, 1),
            lag_s=None if known.heard_at is None else round(known.lag_s, 3),
            blocks=known.blocks,
            block_tokens=known.block_tokens,
            counts=known.counts.copy(),
        )


class SpeedRow(Struct, frozen=True):
    """How fast an endpoint is, as learned from its streams.

    It is reckoned to read `prompt_tokens_per_s`. By its own streams alone, a first token takes `ttft_base_s`
    and `ttft_token_s` for each token that has to be read; one after it `tpot_base_s` and `tpot_stream_s` for
    each stream that runs. The errors are those of the metrics, as is `slowness`.
    """

    prompt_tokens_per_s: float
    slowness: float
    ttft_base_s: float
    ttft_token_s: float
    ttft_error: float
    tpot_base_s: float
    tpot_stream_s: float
    tpot_error: float

    @classmethod
    def of(cls, endpoint: Endpoint) -> SpeedRow:
        """What is known now."""
        reads, writes = endpoint.reads, endpoint.writes
        return cls(
            prompt_tokens_per_s=round(endpoint.speed, 1),
            slowness=round(endpoint.slowness, 2),
            ttft_base_s=reads.base,
            ttft_token_s=reads.slope,
            ttft_error=round(reads.error, 3),
            tpot_base_s=writes.base,
            tpot_stream_s=writes.slope,
            tpot_error=round(writes.error, 3),
        )


class EndpointRow(Struct, frozen=True):
    """One endpoint as the admin API shows it; None is what nobody knows.

    `running` and `seated` are our own count, `engine_running`, `engine_waiting` and `kv_use` (0 to 1) what
    its metrics said `observed_age_s` ago. `speed` is what was learned of it, None before its first stream.
    `kv_events` is None where nobody listens for them.
    """

    name: str
    pool: str
    url: str
    state: str
    held: bool
    why: str
    incarnation: int
    engine: str
    version: str
    model: str
    adapters: tuple[str, ...]
    context_tokens: int | None
    kv_tokens: int | None
    prefix_caching: bool | None
    slots: int | None
    running: int
    seated: int
    engine_running: int | None
    engine_waiting: int | None
    kv_use: float | None
    observed_age_s: float | None
    speed: SpeedRow | None
    kv_events: KvRow | None

    @classmethod
    def of(cls, endpoint: Endpoint, now: float, known: KvFigures | None = None) -> EndpointRow:
        """The endpoint as it is now; call it where endpoints change, on the gateway's loop."""
        facts, load = endpoint.facts, endpoint.load
        return cls(
            name=endpoint.name,
            pool=endpoint.pool,
            url=endpoint.url,
            state=endpoint.state.label,
            held=endpoint.held,
            why=endpoint.why,
            incarnation=endpoint.incarnation,
            engine=facts.engine,
            version=facts.version,
            model=facts.model,
            adapters=facts.adapters,
            context_tokens=facts.context_tokens,
            kv_tokens=facts.kv_tokens,
            prefix_caching=facts.prefix_caching,
            slots=facts.slots,
            running=endpoint.running,
            seated=endpoint.seated,
            engine_running=load.running if load else None,
            engine_waiting=load.waiting if load else None,
            kv_use=load.kv_use if load else None,
            observed_age_s=round(now - endpoint.observed_at, 1) if load else None,
            speed=SpeedRow.of(endpoint) if endpoint.reads.told else None,
            kv_events=KvRow.of(known, now) if known else None,
        )


def build(
    desk: Desk,
    ask: Ask,
    render: Callable[[], Iterator[bytes]],
    clock: Callable[[], float],
    token: str | None = None,
    hosts: Collection[str] = (),
) -> Starlette:
    """The application. `clock` is the gateway's; `token` and `hosts` are those of the gate."""
    answers = _Answers(desk, ask, render, clock)
    return Starlette(
        routes=[
            Route("/livez", answers.livez),
            Route("/metrics", answers.metrics),
            Route("/admin/v1/endpoints", answers.endpoints),
            Route("/admin/v1/endpoints/{name:path}/drain", answers.drain, methods=["POST"]),
            Route("/admin/v1/endpoints/{name:path}/undrain", answers.undrain, methods=["POST"]),
            Route("/admin/v1/findings", answers.findings),
            Route("/admin/v1/decisions", answers.decisions),
            Route("/admin/v1/reload", answers.reload, methods=["POST"]),
        ],
        middleware=[Middleware(Gate, token=token, hosts=hosts)],
        exception_handlers={
            HTTPException: _refused,
            TimeoutError: _unresponsive,
            ConfigError: _misconfigured,
        },
    )


class _Answers:
    """One method for each route."""

    def __init__(
        self, desk: Desk, ask: Ask, render: Callable[[], Iterator[bytes]], clock: Callable[[], float]
    ) -> None:
        self._desk = desk
        self._ask = ask
        self._render = render
        self._clock = clock

    async def livez(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(self, _request: Request) -> Response:
        with suppress(TimeoutError):  # a loop that hangs has counted nearly all
            await self._ask(self._desk.count, COUNT_S)
        return StreamingResponse(_unhurried(self._render()), headers={"content-type": CONTENT_TYPE})

    async def endpoints(self, _request: Request) -> Response:
        return _json(await self._ask(self._rows, ANSWER_S))

    async def findings(self, _request: Request) -> Response:
        return _json(await self._ask(self._desk.findings, ANSWER_S))

    async def decisions(self, request: Request) -> Response:
        try:
            wanted = msgspec.convert(dict(request.query_params), Wanted, strict=False)
        except msgspec.ValidationError as error:
            return problem(400, "bad_query", f"the query cannot be used: {error}")
        return _json(await self._ask(lambda: self._desk.decisions(wanted), ANSWER_S))

    async def drain(self, request: Request) -> Response:
        return await self._hold(request.path_params["name"], held=True)

    async def undrain(self, request: Request) -> Response:
        return await self._hold(request.path_params["name"], held=False)

    async def reload(self, _request: Request) -> Response:
        return _json({"restart_needed": await self._ask(self._desk.reload, RELOAD_S)})

    async def _hold(self, name: str, *, held: bool) -> Response:
        if await self._ask(lambda: self._desk.hold(name, held), ANSWER_S):
            return _json({"name": name, "held": held})
        return problem(404, "endpoint_not_found", f"no endpoint is called {name!r}")

    async def _rows(self) -> list[EndpointRow]:
        now, known = self._clock(), await self._desk.kv_events()
        endpoints = await self._desk.endpoints()
        return [EndpointRow.of(endpoint, now, known.get(endpoint.name)) for endpoint in endpoints]


async def _refused(_request: Request, refusal: Exception) -> Response:
    """Starlette's own refusals (unknown path, another method) in the admin API's shape."""
    assert isinstance(refusal, HTTPException)  # noqa: S101 - registered for this class only
    answer = problem(refusal.status_code, refusal.detail.lower().replace(" ", "_"), refusal.detail)
    answer.headers.update(refusal.headers or {})
    return answer


async def _unresponsive(_request: Request, _error: Exception) -> Response:
    return problem(503, "gateway_unresponsive", "the gateway's loop does not answer")


async def _misconfigured(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ConfigError)  # noqa: S101 - registered for this class only
    message = "the configuration cannot be used; the one before stays in force"
    return problem(400, "configuration", message, errors=error.errors)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _unhurried(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(PAUSE_S)
