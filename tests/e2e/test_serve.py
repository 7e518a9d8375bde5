"""Starting a gateway: from addresses alone, before its engines, and beside wrong ones."""

from __future__ import annotations

import json

import pytest

from tests.e2e.children import MODEL, Engine, chat, get, post
from tests.e2e.conftest import Serve
from tests.ports import free_ports

CHAT = "/v1/chat/completions"


def test_addresses_are_enough(serve: Serve, engines: list[Engine]) -> None:
    gateway = serve(*(engine.url for engine in engines))
    gateway.until(gateway.all_ready)
    assert get(gateway.port, "/readyz")[0] == 200
    listed = json.loads(get(gateway.port, "/v1/models")[2])["data"]
    assert [model["id"] for model in listed] == [MODEL]
    assert post(gateway.port, CHAT, chat())[0] == 200
    rows = gateway.endpoints()
    assert set(rows) == {engine.name for engine in engines}
    for row in rows.values():
        assert (row["engine"], row["model"], row["context_tokens"]) == ("llamacpp", MODEL, 2048)


def test_a_file_in_the_folder_is_enough(serve: Serve, engines: list[Engine]) -> None:
    model = {"name": "mine", "served_as": MODEL, "endpoints": [engines[0].url]}
    gateway = serve(config={"models": [model]})
    gateway.until(lambda: gateway.all_ready(1))
    assert post(gateway.port, CHAT, chat() | {"model": "mine"})[0] == 200


@pytest.mark.parametrize("named", [True, False], ids=["with models", "with addresses only"])
def test_a_gateway_may_be_there_before_its_engines(serve: Serve, engines: list[Engine], named: bool) -> None:
    engine = engines[0]
    engine.kill()
    model = {"name": MODEL, "endpoints": [engine.url]}
    gateway = serve(config={"models": [model]} if named else {"endpoints": [engine.url]})
    gateway.expect(f"WARNING .*{engine.url}: does not answer")
    assert get(gateway.port, "/livez")[0] == 200
    assert get(gateway.port, "/readyz")[0] == 503
    status, headers, body = post(gateway.port, CHAT, chat())
    assert (status, json.loads(body)["error"]["code"]) == (503, "no_endpoint")
    assert (headers["retry-after"], headers["x-should-retry"]) == ("1", "true")

    engine.start()
    gateway.until(gateway.ready)
    assert post(gateway.port, CHAT, chat())[0] == 200


def test_an_engine_that_serves_something_else_is_named_with_the_remedy(
    serve: Serve, engines: list[Engine]
) -> None:
    engine = engines[0]
    gateway = serve(config={"models": [{"name": "mine", "endpoints": [engine.url]}]})
    name = f"mine/{engine.url.removeprefix('http://')}"
    gateway.expect(f"{name}: serves '{MODEL}', not 'mine'; add served_as: {MODEL}")
    [row] = gateway.endpoints().values()
    assert (row["state"], gateway.ready()) == ("probing", False)
    assert "served_as" in row["why"]


def test_one_engine_that_is_not_there_does_not_hinder_the_other(serve: Serve, engines: list[Engine]) -> None:
    gateway = serve(engines[0].url, f"http://127.0.0.1:{free_ports(1)[0]}")
    gateway.until(gateway.ready)
    for _ in range(3):
        assert post(gateway.port, CHAT, chat(tokens=1))[0] == 200
