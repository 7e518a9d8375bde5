"""Which servers a request may use: the operator's by label, its own where the host is listed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from maitred.config.flow import Tenant
from maitred.config.mcp import Mcp, McpServer
from maitred.config.secret import EnvSecret
from maitred.config.tree import Config
from maitred.core.outcome import Refusal
from maitred.net.guarded import Guarded
from maitred.net.memory import MemoryNetwork
from maitred.net.sweep import Sweep
from maitred.responses.mcp.servers import Servers
from maitred.responses.mcp.tools import Tools
from maitred.wire.responses.create import decode
from maitred.wire.responses.events import Events
from tests.net.http import turns
from tests.proxy.place import in_virtual_time
from tests.responses.mcp_server import CANARY, Told, behaves, odd, rpc

PUBLIC, URL = "93.184.216.34", "https://tools.example.com/mcp?team=a"
GOOD = {"content": [{"type": "text", "text": "well"}]}


class Site:
    """Servers before scripted ones, one of them at a public address."""

    def __init__(self, config: Config, found: list[str]) -> None:
        async def resolve(_host: str, _port: int) -> list[str]:
            return found

        self.network = MemoryNetwork()
        self.counted: list[tuple[str, str]] = []
        clock = asyncio.get_running_loop().time
        self.sweep = Sweep(clock)
        self.servers = Servers(
            config,
            self.network,
            self.sweep,
            clock,
            {"TOKEN": CANARY},
            lambda server, outcome, _seconds: self.counted.append((server, outcome)),
            Guarded(self.network, resolve),
        )

    def tools(self, *tools: dict[str, Any], tenant: str = "t", **members: Any) -> Tools:
        """Those of a request."""
        body = {"model": "m", "input": "hi", "tools": tools, **members}
        numbers = count()
        create = decode(json.dumps(body).encode())
        found = self.servers.tools(create, tenant, lambda kind: f"{kind}_{next(numbers)}")
        assert found is not None
        return found


@asynccontextmanager
async def site(
    mcp: Mcp, answer: Told | None = None, found: list[str] | None = None, **sections: Any
) -> AsyncIterator[Site]:
    it = Site(Config(mcp=mcp, **sections), found or [PUBLIC])
    it.sweep.start()
    _, listener = await odd(it.network, answer or behaves(lambda _h, body: rpc(GOOD, body)), PUBLIC, 443)
    yield it
    await it.servers.close()
    it.sweep.stop()
    listener.close()
    await turns()
    assert it.network.open_transports == 0


def tool(label: str = "s", **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": label, "require_approval": "never", **more}


def call(name: str, arguments: str = "{}") -> Any:
    class Call:
        pass

    called: Any = Call()
    called.name, called.arguments = name, arguments
    return called


OURS = Mcp(servers={"s": McpServer("http://127.0.0.1:1/mcp")}, hosts=("example.com",))


@pytest.mark.parametrize(
    ("said", "param"),
    [
        (tool("other"), "server_label"),
        (tool(authorization=CANARY), "authorization"),
        (tool(headers={"x-key": CANARY}), "headers"),
        (tool(server_url=URL), "server_label"),
        (tool("mine", server_url="https://example.org/mcp"), "server_url"),
        (tool("mine", server_url="https://badexample.com/mcp"), "server_url"),
        (tool("mine", server_url="http://tools.example.com/mcp"), "server_url"),
        (tool("mine", server_url="https://example.com@evil.org/"), "server_url"),
        (tool("mine", server_url="https://evil.org/?https://example.com"), "server_url"),
        (tool("mine", server_url="https://evil.org\\.example.com/"), "server_url"),
        (tool("mine", server_url="https://93.184.216.34/"), "server_url"),
        (tool("mine", server_url="ftp://example.com/"), "server_url"),
        (tool("mine", server_url="https://example.com/\r\nx: y"), "server_url"),
        (tool("mine", server_url=URL, authorization="a b"), "authorization"),
        (tool("mine", server_url=URL, authorization="a\r\nx: y"), "authorization"),
        (tool("mine", server_url=URL, headers={"host": "x"}), "headers"),
        (tool("mine", server_url=URL, headers={"Authorization": "x"}), "headers"),
        (tool("mine", server_url=URL, headers={"x": "a\r\ny: b"}), "headers"),
        (tool("mine", server_url=URL, headers={"x y": "a"}), "headers"),
    ],
)
@in_virtual_time()
async def test_what_may_not_be_is_refused_by_name(said: dict[str, Any], param: str) -> None:
    async with site(OURS) as it:
        with pytest.raises(Refusal) as refused:
            it.tools(said)
        assert refused.value.param == f"tools[0].{param}"
        assert CANARY not in refused.value.message


@in_virtual_time()
async def test_secrets_of_a_client_do_not_go_into_the_background() -> None:
    async with site(OURS) as it:
        url = URL.partition("?")[0]
        it.tools(tool("mine", server_url=url), background=True)
        for secret in ({"authorization": CANARY}, {"headers": {"x-key": CANARY}}, {"server_url": URL}):
            with pytest.raises(Refusal, match="background"):
                it.tools(tool("mine", **{"server_url": url, **secret}), background=True)


@in_virtual_time()
async def test_a_tenant_may_use_what_it_may() -> None:
    tenants = {"few": Tenant(mcp=("s",)), "none": Tenant(mcp=())}
    servers = {label: McpServer("http://127.0.0.1:1/") for label in ("s", "other")}
    async with site(Mcp(servers=servers), tenants=tenants) as it:
        it.tools(tool("other"), tenant="anybody")
        it.tools(tool("s"), tenant="few")
        with pytest.raises(Refusal) as refused:
            it.tools(tool("other"), tenant="few")
        with pytest.raises(Refusal) as unknown:
            it.tools(tool("third"), tenant="few")
        assert refused.value.message == unknown.value.message
        with pytest.raises(Refusal, match="there are none"):
            it.tools(tool("s"), tenant="none")


@in_virtual_time()
async def test_a_clients_own_server_is_called_where_its_host_is_listed() -> None:
    heads: list[str] = []

    def answer(head: str, body: dict[str, Any]) -> bytes | None:
        heads.append(head)
        return behaves(lambda _h, said: rpc(GOOD, said))(head, body)

    async with site(OURS, answer) as it:
        tools = it.tools(tool("mine", server_url=URL, authorization=CANARY, headers={"x-key": "abc"}))
        [listed] = await tools.begin([], Events(), lambda _events: None)
        assert CANARY not in str(listed.data)
        [item] = (await tools.run([call("mine__t")])).items
        assert json.loads(item.data)["output"] == "well"
        assert it.counted == [("(client's)", "completed")]
        assert all(
            head.startswith("POST /mcp?team=a HTTP/1.1\r\nhost: tools.example.com\r\n") for head in heads
        )
        assert all(f"x-key: abc\r\nauthorization: Bearer {CANARY}\r\n" in head for head in heads)
        tools.close()


@pytest.mark.parametrize("found", [["127.0.0.1"], [PUBLIC, "169.254.169.254"], ["::1"]])
@in_virtual_time()
async def test_a_name_that_leads_inside_is_not_followed(found: list[str]) -> None:
    async with site(OURS, found=found) as it:
        _, listener = await odd(it.network, behaves(lambda _h, body: rpc(GOOD, body)), "127.0.0.1", 443)
        tools = it.tools(tool("mine", server_url=URL))
        [listed] = await tools.begin([], None, lambda _events: None)
        assert "not public" in json.loads(listed.data)["error"]
        assert tools.functions == []
        listener.close()


@in_virtual_time()
async def test_a_list_of_the_operators_is_asked_for_now_and_then() -> None:
    asked: list[str] = []

    def answer(head: str, body: dict[str, Any]) -> bytes | None:
        asked.append(body.get("method", ""))
        return behaves(lambda _h, said: rpc(GOOD, said))(head, body)

    mcp = Mcp(servers={"s": McpServer(f"http://{PUBLIC}:443/", list_ttl_s=60.0)}, hosts=("example.com",))

    async def lists(said: dict[str, Any]) -> int:
        asked.clear()
        await it.tools(said).begin([], None, lambda _events: None)
        return asked.count("tools/list")

    async with site(mcp, answer) as it:
        assert [await lists(tool()) for _ in range(3)] == [1, 0, 0]
        await asyncio.sleep(61)
        assert [await lists(tool()) for _ in range(2)] == [1, 0]
        it.servers.apply(Config(mcp=mcp))
        assert await lists(tool()) == 1
        assert [await lists(tool("mine", server_url=URL)) for _ in range(2)] == [1, 1]


@in_virtual_time()
async def test_a_server_that_hangs_is_waited_for_only_so_long() -> None:
    answer = behaves(lambda _h, _b: None)
    mcp = Mcp(servers={"s": McpServer(f"http://{PUBLIC}:443/", timeout_s=20.0)}, limit_s=30.0)
    async with site(mcp, answer) as it:
        tools = it.tools(tool())
        await tools.begin([], None, lambda _events: None)
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(2):
            began = loop.time()
            [item] = (await tools.run([call("s__t")])).items
            took.append(round(loop.time() - began))
            assert json.loads(item.data)["error"]["code"] == 504
        assert took == [20, 10]
        assert tools.functions == []
        assert it.counted == [("s", "timeout")] * 2


@in_virtual_time()
async def test_no_more_run_at_once_than_may() -> None:
    now = most = 0

    def answer(head: str, body: dict[str, Any]) -> bytes | None:
        nonlocal now, most
        if body.get("method") == "tools/call":
            now += 1
            most = max(most, now)
            asyncio.get_running_loop().call_later(1, left)
            return None
        return behaves(lambda _h, _b: None)(head, body)

    def left() -> None:
        nonlocal now
        now -= 1

    mcp = Mcp(servers={"s": McpServer(f"http://{PUBLIC}:443/", timeout_s=1.0)}, parallel_max=3)
    async with site(mcp, answer) as it:
        tools = it.tools(tool())
        await tools.begin([], None, lambda _events: None)
        ran = await tools.run([call("s__t") for _ in range(8)])
        assert (most, len(ran.items)) == (3, 8)


@pytest.mark.parametrize("arguments", ["nonsense", "[]", '"x"', "[" * 100_000])
@in_virtual_time()
async def test_arguments_that_are_none_are_not_sent(arguments: str) -> None:
    mcp = Mcp(servers={"s": McpServer(f"http://{PUBLIC}:443/")})
    async with site(mcp) as it:
        tools = it.tools(tool())
        await tools.begin([], None, lambda _events: None)
        [item] = (await tools.run([call("s__t", arguments)])).items
        assert json.loads(item.data)["error"]["code"] == -32602
        assert it.counted == [("s", "invalid")]


@in_virtual_time()
async def test_a_name_that_the_model_could_mean_two_things_by_is_refused() -> None:
    servers = {label: McpServer(f"http://{PUBLIC}:443/") for label in ("a", "a_")}
    answer = behaves(lambda _h, body: rpc(GOOD, body), ["t", "_t"])
    async with site(Mcp(servers=servers), answer) as it:
        with pytest.raises(Refusal):
            await it.tools(tool("a"), tool("a_")).begin([], None, lambda _events: None)
        for kind in ("function", "custom"):
            own = {"type": kind, "name": "a__t"}
            with pytest.raises(Refusal):
                await it.tools(tool("a"), own).begin([], None, lambda _events: None)


def test_a_secret_that_cannot_be_had_stops_the_start() -> None:
    mcp = Mcp(servers={"s": McpServer("http://127.0.0.1:1/", authorization=EnvSecret("NONE"))})

    async def main() -> None:
        with pytest.raises(ValueError, match="not set"):
            Site(Config(mcp=mcp), [])

    asyncio.run(main())


def test_settings_of_a_server_are_shown_without_its_secret() -> None:
    server = McpServer("http://127.0.0.1:1/", authorization=EnvSecret("TOKEN"))
    assert CANARY not in str(structs.asdict(server))
