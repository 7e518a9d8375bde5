"""The parts that the tests share: two real engines and a gateway in front of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import OpenAI

from tests.e2e.children import MODEL, SLOTS, Engine, Gateway, children_of
from tests.ports import free_ports

Serve = Callable[..., Gateway]


@pytest.fixture(scope="session")
def no_leftovers() -> Iterator[None]:
    """Whatever the tests start under this fixture is gone when they are over."""
    yield
    assert children_of(os.getpid()) == []


@pytest.fixture(scope="session")
def both_engines(no_leftovers: None) -> Iterator[list[Engine]]:
    """Two engines for all tests; take `engines`, which makes sure that both serve."""
    with ExitStack() as stack:
        yield [stack.enter_context(Engine(port)) for port in free_ports(2)]


@pytest.fixture
def engines(both_engines: list[Engine]) -> list[Engine]:
    """Two engines that serve; one that an earlier test killed is started again."""
    for engine in both_engines:
        if engine.child.process.poll() is not None:
            engine.start()
    for engine in both_engines:
        engine.child.until(engine.serves)
    return both_engines


@pytest.fixture
def serve(no_leftovers: None, tmp_path: Path) -> Iterator[Serve]:
    """Start a gateway with these words on the command line, and a file if `config` gives its content."""
    with ExitStack() as stack:

        def start(*words: str, config: dict[str, Any] | None = None) -> Gateway:
            if config is not None:
                (tmp_path / "maitred.yaml").write_text(yaml.safe_dump({"version": 1, **config}))
            return stack.enter_context(Gateway("serve", *words, cwd=tmp_path))

        yield start


@pytest.fixture(scope="session")
def session_gateway(
    both_engines: list[Engine], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One gateway for all tests that need nothing special; take `gateway`."""
    folder = tmp_path_factory.mktemp("gateway")
    urls = [engine.url for engine in both_engines]
    renamed = {"name": "small", "aliases": ["default"], "served_as": MODEL, "endpoints": urls, "cap": SLOTS}
    # Tests ask the same again and again, and look for answers of both.
    plain = {"name": MODEL, "endpoints": urls, "cap": SLOTS, "routing": "least-requests"}
    path = folder / "gateway.yaml"
    health = {"slow_start": "0s"}  # who was killed is back in full at once
    path.write_text(yaml.safe_dump({"version": 1, "health": health, "models": [renamed, plain]}))
    with Gateway("serve", "-c", str(path), cwd=folder) as gateway:
        yield gateway


@pytest.fixture
def gateway(session_gateway: Gateway, engines: list[Engine]) -> Gateway:
    """The shared gateway, with all its endpoints ready."""
    session_gateway.until(lambda: session_gateway.all_ready(4))
    return session_gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[OpenAI]:
    """The official client, as a user has it."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none-needed", timeout=60) as client:
        yield client
