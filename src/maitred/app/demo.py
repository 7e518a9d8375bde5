"""The demonstration: real engines on this machine and the gateway in front, in one command."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from maitred.app.gateway import GatewayApp
from maitred.app.run import run
from maitred.config.tree import Config, Model
from maitred.control.processes import Supervisor
from maitred.core.events import EndpointMoved
from maitred.core.words import EndpointState
from maitred.engines import llamacpp

SLOTS = 4
PORTS = range(20_000, 32_000)
"""Where engines listen: below what systems give to whoever asks for any port (Linux from 32768, others from
49152), so that nobody gets an engine's port by chance before it listens there."""
READY = """
Ready: {engines} engines serve {model}.

  curl {base}/v1/chat/completions -H 'content-type: application/json' -d '{{"model": "{model}", \
"stream": true, "max_tokens": 64, "messages": [{{"role": "user", "content": "Name three colours."}}]}}'

Any OpenAI client works with base_url {base}/v1 and any api_key. Ctrl-C ends it all.
"""


def demo(configure: Callable[[tuple[str, ...]], Config], engines: int) -> str | None:
    """Start `engines` of them on free ports and serve; None, or a line on what could not be started.

    `configure` makes the configuration from the engines' URLs. Raises MissingPart.
    """
    llamacpp.check_installed()
    model_path = llamacpp.bundled_model()
    ports = free_ports(engines)
    urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
    model = Model(name=llamacpp.MODEL_ALIAS, endpoints=urls, cap=SLOTS)

    folder = TemporaryDirectory(prefix="maitred-demo-")

    def load() -> Config:
        config = structs.replace(configure(urls), endpoints=(), models=(model,))
        if config.store.url:
            return config
        store = structs.replace(config.store, url=f"sqlite:///{folder.name}/maitred.db")
        return structs.replace(config, store=store)

    config = load()

    @asynccontextmanager
    async def beside(app: GatewayApp, base: str) -> AsyncIterator[None]:
        supervisor = Supervisor()
        for number, port in enumerate(ports, 1):
            supervisor.start(str(number), engine_argv(port, model_path))
        app.hub.subscribe({EndpointMoved: Announcement(base, engines)})
        try:
            yield
        finally:
            await supervisor.stop()

    with folder:
        return run(config, load, beside)


def engine_argv(port: int, model: Path) -> list[str]:
    """The command line of one engine of the demonstration."""
    return llamacpp.argv(port, model, llamacpp.MODEL_ALIAS, SLOTS)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different, which the system gives to nobody by itself."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} ports from {PORTS.start} to {PORTS.stop} are free")


class Announcement:
    """Subscriber that says how to try it, once all engines are ready."""

    def __init__(self, base: str, engines: int) -> None:
        self._base = base
        self._engines = engines
        self._ready: set[str] = set()

    def __call__(self, event: EndpointMoved) -> None:
        if event.after is EndpointState.READY and len(self._ready) < self._engines:
            self._ready.add(event.endpoint.name)
            if len(self._ready) == self._engines:
                text = READY.format(engines=self._engines, model=llamacpp.MODEL_ALIAS, base=self._base)
                sys.stdout.write(text)
                sys.stdout.flush()
