"""What a turn has to do with one server, when that server is not as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from maitred.net.client import Patience
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from maitred.responses.mcp.server import Failed, Server, head_lines, place
from maitred.responses.mcp.session import TOOLS_MAX, Session
from tests.net.http import turns
from tests.proxy.place import in_virtual_time
from tests.proxy.upstream import EVENT_STREAM, chunk, head, whole
from tests.responses.mcp_server import CANARY, Told, behaves, odd, rpc, rpc_error


@asynccontextmanager
async def session(answer: Told, latency_s: float = 0.0) -> AsyncIterator[Session]:
    """A session with this server, which is sent a token."""
    network = MemoryNetwork(latency_s)
    sweep = Sweep(asyncio.get_running_loop().time)
    sweep.start()
    url, listener = await odd(network, answer)
    pool = Pool(network, sweep, Patience(1e6, 1e6), 5.0)
    origin, path = place(url)
    yield Session(pool, Server("s", origin, path, *head_lines(CANARY, {}), 60.0, 4096))
    await turns()
    assert pool.open == pool.idle
    pool.close()
    sweep.stop()
    listener.close()
    await turns()
    assert network.open_transports == 0


def always(said: bytes) -> Told:
    return lambda _head, _body: said


def streamed(*data: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    told = b"".join(chunk(b"data: %b\n\n" % one) for one in data)
    return head(200, EVENT_STREAM, "transfer-encoding: chunked") + told + last


GOOD = {"content": [{"type": "text", "text": "well"}]}


@pytest.mark.parametrize(
    ("said", "outcome", "error"),
    [
        (whole(b"", "location: http://127.0.0.1:1/", status=307), "redirected", ("http_error", 307)),
        (whole(b"{}", status=401), "http_error", ("http_error", 401)),
        (whole(b"nonsense"), "protocol_error", ("mcp_protocol_error", 0)),
        (whole(b"x" * 5000), "too_large", ("http_error", 502)),
        (head(200, "content-length: 10") + b"half", None, None),
        (rpc_error(-32602, "no such thing"), "protocol_error", ("mcp_protocol_error", -32602)),
        (rpc_error(-32000, "not now", status=400), "protocol_error", ("mcp_protocol_error", -32000)),
        (streamed(b'{"jsonrpc":"2.0","method":"ping","id":7}'), "protocol_error", ("mcp_protocol_error", 0)),
        (b"HTTP/9.9 what\r\n\r\n", "unreachable", ("http_error", 502)),
    ],
)
@in_virtual_time()
async def test_a_server_that_answers_oddly_is_a_call_that_failed(
    said: bytes, outcome: str | None, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with session(behaves(always(said))) as it:
        if outcome is None:  # it says no more
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await it.call("t", {})
            return
        with pytest.raises(Failed) as failed:
            await it.call("t", {})
        assert failed.value.outcome == outcome
        assert (failed.value.error["type"], failed.value.error["code"]) == error
    assert caplog.messages == []  # nor is anything wrong with ourselves


@pytest.mark.parametrize("times", [1, 3])
@in_virtual_time()
async def test_a_stream_of_events_answers_when_the_answer_has_come(times: int) -> None:
    """Also where it goes on afterwards, and where other messages come before."""
    answer = b'{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"well"}]}}'
    told = streamed(b'{"jsonrpc":"2.0","method":"notifications/progress"}', *[answer] * times, last=b"")

    def call(_head: str, body: dict[str, Any]) -> bytes:
        return told.replace(b'"id":2', b'"id":%d' % body["id"])

    async with session(behaves(call)) as it:
        assert (await it.call("t", {})).text == "well"


@in_virtual_time()
async def test_a_server_shakes_hands_once_and_gets_its_session_back() -> None:
    heads: list[str] = []

    def answer(head_: str, body: dict[str, Any]) -> bytes | None:
        heads.append(head_)
        if body.get("method") == "initialize":
            return rpc({"protocolVersion": "2025-03-26"}, body).replace(
                b"\r\n\r\n", b"\r\nmcp-session-id: abc\r\n\r\n", 1
            )
        return behaves(lambda _h, said: rpc(GOOD, said))(head_, body)

    async with session(answer) as it:
        await asyncio.gather(*(it.call("t", {}) for _ in range(3)))
        await it.end()
    first, initialized, *calls, last = heads
    assert "mcp-session-id" not in first
    assert all(
        "mcp-session-id: abc\r\nmcp-protocol-version: 2025-03-26\r\n" in one for one in (initialized, *calls)
    )
    assert len(calls) == 3
    assert last.startswith("DELETE /mcp ")
    assert all(f"authorization: Bearer {CANARY}\r\n" in one for one in heads)


@pytest.mark.parametrize(
    "refusal", [rpc_error(-32022, "too old", status=400), rpc_error(-32601, "no", status=404)]
)
@in_virtual_time()
async def test_a_server_that_knows_no_handshake_is_spoken_to_without(refusal: bytes) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def answer(head_: str, body: dict[str, Any]) -> bytes | None:
        if body["method"] == "initialize":
            return refusal
        seen.append((head_, body))
        return rpc(GOOD, body)

    async with session(answer) as it:
        assert (await it.call("t", {})).text == "well"
        [(said, body)] = seen
        assert "mcp-method: tools/call\r\nmcp-name: t\r\n" in said
        assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        await it.end()  # there is nothing to end


@in_virtual_time()
async def test_a_list_comes_in_pages_and_has_an_end() -> None:
    def paged(pages: int, per_page: int) -> Told:
        def answer(head_: str, body: dict[str, Any]) -> bytes | None:
            if body.get("method") != "tools/list":
                return behaves(always(b""))(head_, body)
            at = int(body.get("params", {}).get("cursor", 0))
            tools = [{"name": f"t{at}.{n}", "inputSchema": {}} for n in range(per_page)]
            return rpc({"tools": tools, **({"nextCursor": str(at + 1)} if at + 1 < pages else {})}, body)

        return answer

    async with session(paged(3, 2)) as it:
        assert [tool.name for tool in await it.tools()] == ["t0.0", "t0.1", "t1.0", "t1.1", "t2.0", "t2.1"]
    for endless in (paged(10**9, 0), paged(10**9, 60)):
        async with session(endless) as it:
            with pytest.raises(Failed, match="protocol_error") as failed:
                await it.tools()
            assert str(TOOLS_MAX) in failed.value.message


@in_virtual_time()
async def test_who_is_not_there_is_told_so() -> None:
    async with session(behaves(always(b""))) as it:
        network: Any = it._pool._network
        network.refuse("127.0.0.1", int(it.server.origin.rpartition(":")[2]))
        with pytest.raises(Failed) as failed:
            await it.tools()
        assert failed.value.outcome == "unreachable"
        assert CANARY not in str(failed.value.error)


@in_virtual_time()
async def test_secrets_are_cut_out_of_answers() -> None:
    def echo(head_: str, body: dict[str, Any]) -> bytes:
        return rpc({"content": [{"type": "text", "text": head_}]}, body)

    async with session(behaves(echo)) as it:
        text = (await it.call("t", {})).text
        assert "authorization: Bearer [hidden]" in text
        assert CANARY not in text
        assert CANARY not in repr(it.server)
