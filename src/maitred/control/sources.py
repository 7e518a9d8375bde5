"""Where the addresses of a model's engines come from: a list, a watched file, or a name in DNS.

A source tells its whole set at once, and only when it is another one than before. What cannot be read or
resolved leaves the last good set in force: engines that run are worth more than news that cannot be had.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from maitred.config.endpoints_file import read_endpoints
from maitred.config.raw import ConfigError
from maitred.config.tree import EndpointsDns, EndpointsFile
from maitred.observe.findings import Findings

log = logging.getLogger("maitred")

PERIOD_S = 1.0
RESOLVE_S = 5.0
"""Longest wait for the resolver; also how soon a name that did not resolve is tried again."""

Listed = tuple[str, ...]
Spec = Listed | EndpointsFile | EndpointsDns
Resolve = Callable[[str], Awaitable[list[str]]]
"""From a host's name to its IP addresses, bare. Raises OSError."""


async def resolve(host: str) -> list[str]:
    """The addresses this machine's resolver has for a name, of both families. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Watched:
    """A file of endpoints. A change is used once the file has been the same at two looks: it is all there."""

    __slots__ = ("_file", "_read", "_seen")

    def __init__(self, spec: EndpointsFile) -> None:
        self._file = spec.file
        self._read: tuple[int, ...] | None = None
        self._seen: tuple[int, ...] | None = ()  # before the first look, which waits for no other

    def look(self) -> Listed | None:
        """The set, if the file is another one than was read last. Raises ConfigError."""
        try:
            stat = self._file.stat()
        except OSError as error:
            self._read = self._seen = None
            raise ConfigError([f"{self._file}: {error.strerror}"]) from error
        seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        steady, self._seen = self._seen in (seen, ()), seen
        if seen == self._read or not steady:
            return None
        self._read = seen
        return read_endpoints(self._file)


class Resolved:
    """A name in DNS. `due_at` is when it is to be resolved again, on the loop's clock; never while it is."""

    __slots__ = ("_host", "_port", "_ttl_s", "due_at")

    def __init__(self, spec: EndpointsDns) -> None:
        parts = urlsplit(spec.dns)
        self._host = parts.hostname or ""
        self._port = f":{parts.port}" if parts.port else ""
        self._ttl_s = spec.ttl_s
        self.due_at = 0.0

    def renew(self) -> None:
        """Be due now, unless an answer is on its way already."""
        if self.due_at != math.inf:
            self.due_at = 0.0

    async def look(self, resolve: Resolve) -> Listed:
        """The set, one URL an address. Raises ValueError with a one-line reason."""
        self.due_at = math.inf
        again_s = min(self._ttl_s, RESOLVE_S)
        try:
            async with asyncio.timeout(RESOLVE_S):
                addresses = await resolve(self._host)
            again_s = self._ttl_s
        except TimeoutError:
            raise ValueError(f"{self._host} did not resolve within {RESOLVE_S:g} s") from None
        except OSError as error:
            raise ValueError(f"{self._host} does not resolve: {error.strerror or error}") from error
        except UnicodeError as error:
            raise ValueError(f"{self._host} can be no name in DNS") from error
        finally:
            self.due_at = asyncio.get_running_loop().time() + again_s
        hosts = {f"[{address}]" if ":" in address else address for address in addresses}
        return tuple(sorted(f"http://{host}{self._port}" for host in hosts))


class Sources:
    """The sources of all models. `changed` is told a model's name and all its endpoints' URLs."""

    def __init__(
        self,
        changed: Callable[[str, Listed], None],
        findings: Findings,
        resolve: Resolve = resolve,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._changed = changed
        self._findings = findings
        self._resolve = resolve
        self._sleep = sleep
        self._specs: dict[str, Spec] = {}
        self._files: dict[str, Watched] = {}
        self._names: dict[str, Resolved] = {}
        self._told: dict[str, Listed] = {}

    def follow(self, model: str, spec: Spec) -> None:
        """Have the model's endpoints come from here from now on; nothing happens if they do already.

        A list, and a file that can be read, is told before this returns; addresses of a name once `run` has
        them.
        """
        if self._specs.get(model) == spec:
            return
        self.forget(model)
        self._specs[model] = spec
        if isinstance(spec, EndpointsFile):
            self._files[model] = Watched(spec)
            self._look(model)
        elif isinstance(spec, EndpointsDns):
            self._names[model] = Resolved(spec)
        else:
            self._tell(model, spec)

    def forget(self, model: str) -> None:
        """Follow this model's source no longer; nobody is told."""
        for kept in (self._specs, self._files, self._names, self._told):
            kept.pop(model, None)
        self._findings.settle("endpoints_file", model)
        self._findings.settle("endpoints_dns", model)

    def renew(self, model: str) -> None:
        """An endpoint of this model failed: its name, if it has one, is resolved again within a second."""
        if (name := self._names.get(model)) is not None:
            name.renew()

    async def run(self) -> None:
        """Look at the files each second and resolve the names that are due, until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                for model in list(self._files):
                    self._look(model)
                for model, name in self._names.items():
                    if name.due_at <= loop.time():
                        group.create_task(self._look_up(model, name))
                await self._sleep(PERIOD_S)

    def _look(self, model: str) -> None:
        with _no_harm_to_others(model):
            try:
                urls = self._files[model].look()
            except ConfigError as error:
                do = "put it right, or write [] for no endpoints"
                self._findings.tell("endpoints_file", model, error.errors[0], do)
                return
            if urls is not None:
                self._findings.settle("endpoints_file", model)
                self._tell(model, urls)

    async def _look_up(self, model: str, name: Resolved) -> None:
        with _no_harm_to_others(model):
            try:
                urls = await name.look(self._resolve)
            except ValueError as error:
                if self._names.get(model) is name:
                    do = "see that the name is right and that this machine's resolver answers"
                    self._findings.tell("endpoints_dns", model, str(error), do)
                return
            if self._names.get(model) is name:
                self._findings.settle("endpoints_dns", model)
                self._tell(model, urls)

    def _tell(self, model: str, urls: Listed) -> None:
        if self._told.get(model) != urls:
            self._told[model] = urls
            self._changed(model, urls)


@contextmanager
def _no_harm_to_others(model: str) -> Iterator[None]:
    """Whatever goes wrong with one model's source, the others are followed on."""
    try:
        yield
    except Exception:
        log.exception("the endpoints of %s could not be followed", model)
