"""The admin answers without a socket: the application is called as a server would call it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from maitred.admin.app import Ask, EndpointRow, Question, SpeedRow, build
from maitred.config.raw import ConfigError
from maitred.core.line import Line
from maitred.core.words import Endpoint
from maitred.observe.kv_events import COUNTS, figures
from tests.admin.place import NOW, FakeDesk, endpoint
from tests.observe.test_decisions import keep

T = TypeVar("T")

TOKEN = "0123456789abcdef"
NAME = "org/qwen/127.0.0.1:8001"
LIMITS: list[float] = []


async def at_once(question: Question[T], limit_s: float) -> T:
    LIMITS.append(limit_s)
    return await question()


async def never(question: Question[T], limit_s: float) -> T:
    raise TimeoutError


def render() -> Iterator[bytes]:
    yield b"one 1\n"
    yield b"two 2\n"


def call(
    path: str, method: str = "GET", desk: FakeDesk | None = None, ask: Ask = at_once
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of one request by somebody who has the token."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:9000"), (b"authorization", f"Bearer {TOKEN}".encode())],
    }
    app = build(desk or FakeDesk(), ask, render, lambda: NOW, TOKEN)
    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body, {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def decoded(
    path: str, method: str = "GET", desk: FakeDesk | None = None, ask: Ask = at_once
) -> tuple[int, Any]:
    status, body, headers = call(path, method, desk, ask)
    assert headers["content-type"] == "application/json"
    return status, msgspec.json.decode(body)


def test_health_and_metrics() -> None:
    assert call("/livez")[:2] == (200, b"ok\n")
    assert call("/metrics")[:2] == (200, b"one 1\ntwo 2\n")


def test_endpoints_are_shown_whole() -> None:
    assert decoded("/admin/v1/endpoints") == (
        200,
        [
            {
                "name": NAME,
                "pool": "org/qwen",
                "url": "http://127.0.0.1:8001",
                "state": "ejected",
                "held": False,
                "why": "connection refused",
                "incarnation": 2,
                "engine": "vllm",
                "version": "0.11.0",
                "model": "Qwen/Qwen3",
                "adapters": ["sql"],
                "context_tokens": 32768,
                "kv_tokens": 400000,
                "prefix_caching": True,
                "slots": 256,
                "running": 3,
                "seated": 40,
                "engine_running": 5,
                "engine_waiting": 2,
                "kv_use": 0.25,
                "observed_age_s": 1.2,
                "speed": None,
                "kv_events": None,
            }
        ],
    )


def test_what_is_learned_of_its_speed_is_shown() -> None:
    endpoint = Endpoint(name="a/b:1", pool="a", url="http://b:1", speed=9876.54, slowness=4.567)
    endpoint.reads = Line(0.1, 0.0001, told=7, error=0.12345)
    endpoint.writes = Line(0.02, 0.001, told=6, error=0.23456)
    row = EndpointRow.of(endpoint, NOW).speed
    assert row == SpeedRow(9876.5, 4.57, 0.1, 0.0001, 0.123, 0.02, 0.001, 0.235)


def test_what_is_heard_of_a_cache_is_shown() -> None:
    desk = FakeDesk()
    known = desk.heard[NAME] = figures(NAME)
    known.blocks, known.block_tokens, known.heard_at, known.lag_s = 5, 32, NOW - 2.0, 0.125
    [row] = decoded("/admin/v1/endpoints", desk=desk)[1]
    assert row["kv_events"] == {
        "used": True,
        "why": "",
        "age_s": 2.0,
        "lag_s": 0.125,
        "blocks": 5,
        "block_tokens": 32,
        "counts": dict.fromkeys(COUNTS, 0),
    }
    known.why, known.heard_at = "nothing was heard yet", None
    [row] = decoded("/admin/v1/endpoints", desk=desk)[1]
    assert [row["kv_events"][name] for name in ("used", "why", "age_s", "lag_s")] == [
        False,
        "nothing was heard yet",
        None,
        None,
    ]


def test_what_nobody_knows_is_null() -> None:
    row = EndpointRow.of(Endpoint(name="a/b:1", pool="a", url="http://b:1"), NOW)
    assert {row.version, row.engine} == {""}
    unknown = (row.context_tokens, row.kv_tokens, row.prefix_caching, row.slots)
    assert (*unknown, row.engine_running, row.engine_waiting, row.kv_use, row.observed_age_s) == (None,) * 8


def test_findings_are_shown_whole() -> None:
    assert decoded("/admin/v1/findings") == (
        200,
        [
            {
                "kind": "wrong_model",
                "where": "http://gpu2:8000",
                "what": "serves 'b', not 'a'",
                "do": "add served_as: b",
                "since_ms": 1_700_000_000_000,
            }
        ],
    )


def test_decisions_are_told_by_what_is_asked_for() -> None:
    desk = FakeDesk()
    keep(desk.log, 1, "r1", where="qwen/b:1")
    keep(desk.log, 2, "r2")
    keep(desk.log, 3, "r1")

    def told(query: str) -> tuple[list[int], int | None]:
        status, page = decoded(f"/admin/v1/decisions{query}", desk=desk)
        assert status == 200
        return [each["number"] for each in page["decisions"]], page["before"]

    assert told("") == ([3, 2, 1], None)
    assert told("?id=r1&limit=1") == ([3], 3)
    assert told("?id=r1&limit=1&before=3") == ([1], None)
    assert told("?endpoint=qwen%2Fb%3A1&model=alias") == ([1], None)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=many", "before=x", "tenant=a"])
def test_what_cannot_be_asked_of_decisions_is_a_400(query: str) -> None:
    status, said = decoded(f"/admin/v1/decisions?{query}")
    assert (status, said["error"]["code"]) == (400, "bad_query")
    assert "the query cannot be used: " in said["error"]["message"]


def test_an_endpoint_is_taken_out_and_let_in_again() -> None:
    desk = FakeDesk()
    drained = decoded(f"/admin/v1/endpoints/{NAME}/drain", "POST", desk)
    assert (drained, desk.listed[0].held) == ((200, {"name": NAME, "held": True}), True)
    undrained = decoded(f"/admin/v1/endpoints/{NAME}/undrain", "POST", desk)
    assert (undrained, desk.listed[0].held) == ((200, {"name": NAME, "held": False}), False)


def test_a_model_may_be_called_drain() -> None:
    desk = FakeDesk()
    desk.listed = [endpoint()]
    desk.listed[0].name = "x/drain/h:1"
    assert decoded("/admin/v1/endpoints/x/drain/h:1/drain", "POST", desk)[0] == 200
    assert desk.listed[0].held


def test_an_endpoint_that_is_not_there_is_named() -> None:
    status, answer = decoded("/admin/v1/endpoints/qwen/127.0.0.1:1/drain", "POST")
    assert (status, answer["error"]["code"]) == (404, "endpoint_not_found")
    assert "'qwen/127.0.0.1:1'" in answer["error"]["message"]


def test_a_reload_tells_what_needs_a_restart() -> None:
    desk = FakeDesk()
    desk.config = ["listen.data", "log.level"]
    LIMITS.clear()
    assert decoded("/admin/v1/reload", "POST", desk) == (
        200,
        {"restart_needed": ["listen.data", "log.level"]},
    )
    assert LIMITS == [10.0]


def test_a_reload_that_fails_tells_every_error() -> None:
    desk = FakeDesk()
    desk.config = ConfigError(["maitred.yaml:1 a: wrong", "maitred.yaml:2 b: wrong"])
    status, answer = decoded("/admin/v1/reload", "POST", desk)
    assert status == 400
    assert answer["error"]["code"] == "configuration"
    assert answer["error"]["errors"] == ["maitred.yaml:1 a: wrong", "maitred.yaml:2 b: wrong"]


@pytest.mark.parametrize(
    ("path", "method", "status", "code", "allow"),
    [
        ("/", "GET", 404, "not_found", None),
        ("/admin/v1/nothing", "GET", 404, "not_found", None),
        (f"/admin/v1/endpoints/{NAME}", "GET", 404, "not_found", None),
        ("/metrics", "POST", 405, "method_not_allowed", {"GET", "HEAD"}),
        ("/admin/v1/reload", "GET", 405, "method_not_allowed", {"POST"}),
        (f"/admin/v1/endpoints/{NAME}/drain", "GET", 405, "method_not_allowed", {"POST"}),
    ],
)
def test_what_is_not_there_is_refused_in_json(
    path: str, method: str, status: int, code: str, allow: set[str] | None
) -> None:
    got, body, headers = call(path, method)
    assert (got, msgspec.json.decode(body)["error"]["code"]) == (status, code)
    assert (set(headers["allow"].split(", ")) if "allow" in headers else None) == allow


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/admin/v1/endpoints", "GET"),
        ("/admin/v1/findings", "GET"),
        (f"/admin/v1/endpoints/{NAME}/drain", "POST"),
        (f"/admin/v1/endpoints/{NAME}/undrain", "POST"),
        ("/admin/v1/reload", "POST"),
    ],
)
def test_a_gateway_that_does_not_answer_is_a_503(path: str, method: str) -> None:
    status, answer = decoded(path, method, ask=never)
    assert (status, answer["error"]["code"]) == (503, "gateway_unresponsive")
