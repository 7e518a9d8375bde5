"""The settings, each written down once: its name in the file, its kind, its default and what it means.

The loader, `config show`, the JSON Schema, the environment's names and the test of the documentation are
all derived from these classes. Values are in base units: `_s` is float seconds, `_bytes` is int bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, structs

from maitred.config.kinds import (
    ADDRESS,
    ENDPOINT,
    FILE,
    GRACE,
    NUMBER,
    SIZE,
    SWITCH,
    TEXT,
    TIMEOUT,
    VERSION,
    Address,
    Kind,
    choice,
)
from maitred.core.words import PoolSettings, Settings

QUEUE_PER_PLACE = 8
"""Requests that may wait for each one that may run, where `queue.requests` is not set."""

_POOL = PoolSettings()
_MIB = 1024 * 1024


class Listed(Struct, frozen=True):
    """A list of at least `length_min` values. `distinct`: none may be there twice."""

    item: Kind | type[Struct]
    length_min: int = 0
    distinct: bool = False


class Setting(Struct, frozen=True):
    """What a field is in the file.

    `doc` says what it means; a section may leave that to its class. `derived` says what the default follows
    from, or means, where it is no constant.
    """

    key: str
    kind: Kind | Listed | type[Struct]
    doc: str = ""
    derived: str = ""


class Listen(Struct, frozen=True):
    """Where clients connect."""

    data: Annotated[
        Address, Setting("data", ADDRESS, "Address of the API. Beyond loopback `auth` must be set.")
    ] = Address("127.0.0.1", 8000)


class Admin(Struct, frozen=True):
    """Where the operator looks."""

    listen: Annotated[
        Address, Setting("listen", ADDRESS, "Address of metrics and status. Loopback only.")
    ] = Address("127.0.0.1", 9000)


class Queue(Struct, frozen=True):
    """How much of a model's load may wait, and how long."""

    wait_s: Annotated[
        float, Setting("wait", TIMEOUT, "Longest time a request waits for a place before it is refused.")
    ] = _POOL.queue_wait_s
    requests_max: Annotated[
        int, Setting("requests", NUMBER, "Most requests waiting at once.", f"{QUEUE_PER_PLACE} x `cap`")
    ] = 0
    bytes_max: Annotated[
        int, Setting("bytes", SIZE, "Most memory the bodies of waiting requests may take.")
    ] = _POOL.queue_bytes_max


class Slo(Struct, frozen=True):
    """What counts as a good answer; goodput is counted against it."""

    ttft_s: Annotated[
        float | None,
        Setting("ttft", TIMEOUT, "Time to first token an answer must keep to be good.", "no goal"),
    ] = None
    tpot_s: Annotated[
        float | None,
        Setting("tpot", TIMEOUT, "Time per later token an answer must keep to be good.", "no goal"),
    ] = None


class Model(Struct, frozen=True):
    """One model and the engines that serve it. `served_as` and `queue.requests_max` are always filled in."""

    name: Annotated[str, Setting("name", TEXT, "The name clients say; unique over names and aliases.")]
    endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "endpoints",
            Listed(ENDPOINT, length_min=1, distinct=True),
            "URLs of its engines: scheme, host and port, nothing else.",
        ),
    ]
    aliases: Annotated[tuple[str, ...], Setting("aliases", Listed(TEXT), "Other names clients may say.")] = ()
    served_as: Annotated[str, Setting("served_as", TEXT, "The name the engines know it by.", "`name`")] = ""
    cap: Annotated[int, Setting("cap", NUMBER, "Most requests running at one endpoint at once.")] = _POOL.cap
    queue: Annotated[Queue, Setting("queue", Queue)] = Queue()
    slo: Annotated[Slo, Setting("slo", Slo)] = Slo()

    def __post_init__(self) -> None:
        """Fill in the defaults that follow from other settings."""
        if not self.served_as:
            structs.force_setattr(self, "served_as", self.name)
        if not self.queue.requests_max:
            queue = structs.replace(self.queue, requests_max=QUEUE_PER_PLACE * self.cap)
            structs.force_setattr(self, "queue", queue)


class Http(Struct, frozen=True):
    """Limits on what clients send and how they take it."""

    body_bytes_max: Annotated[int, Setting("body_max", SIZE, "Largest request body.")] = 64 * _MIB
    head_bytes_max: Annotated[
        int, Setting("head_max", SIZE, "Largest request head: request line and all headers.")
    ] = 64 * 1024
    headers_max: Annotated[int, Setting("headers_max", NUMBER, "Most headers in one request.")] = 128
    head_timeout_s: Annotated[
        float, Setting("head_timeout", TIMEOUT, "The whole request head must arrive within this.")
    ] = 10.0
    body_timeout_s: Annotated[
        float, Setting("body_timeout", TIMEOUT, "Longest silence while a request body is read.")
    ] = 30.0
    keep_alive_s: Annotated[
        float,
        Setting(
            "keep_alive",
            TIMEOUT,
            "How long an idle client connection stays open; above load balancers' usual 600 s.",
        ),
    ] = 620.0
    write_timeout_s: Annotated[
        float,
        Setting("write_timeout", TIMEOUT, "Longest time a client may take no byte while bytes wait for it."),
    ] = 60.0


class Upstream(Struct, frozen=True):
    """How the engines are spoken to."""

    connect_s: Annotated[
        float, Setting("connect", TIMEOUT, "Longest wait for a connection to an engine.")
    ] = 2.0
    first_byte_s: Annotated[
        float, Setting("first_byte", TIMEOUT, "Longest wait for the first byte of an engine's answer.")
    ] = 600.0
    idle_s: Annotated[float, Setting("idle", TIMEOUT, "Longest silence in a running answer.")] = 300.0
    keep_alive_s: Annotated[
        float,
        Setting(
            "keep_alive",
            TIMEOUT,
            "How long an idle engine connection is reused; below uvicorn's 5 s, at which it closes.",
        ),
    ] = 4.0
    attempts: Annotated[
        int,
        Setting(
            "attempts", NUMBER, "Most seatings of one request while nothing of its answer has been delivered."
        ),
    ] = Settings().attempts_max
    hold_s: Annotated[
        float,
        Setting(
            "hold",
            GRACE,
            "How long a stream's start is held back before its first content, "
            "so that an early failure can still be retried.",
        ),
    ] = 1.0
    hold_bytes: Annotated[
        int,
        Setting("hold_bytes", SIZE, "How much of a stream's start is held back before its first content."),
    ] = 64 * 1024


class Drain(Struct, frozen=True):
    """What happens after SIGTERM."""

    notice_s: Annotated[
        float,
        Setting(
            "notice",
            GRACE,
            "How long requests are still served as usual after SIGTERM while `/readyz` already says no.",
        ),
    ] = 0.0
    limit_s: Annotated[
        float, Setting("limit", GRACE, "How long answers still running after that may take.")
    ] = 120.0


class Log(Struct, frozen=True):
    """What is written to standard error."""

    format: Annotated[
        str, Setting("format", choice("human", "json"), "Lines for people, or one JSON object a line.")
    ] = "human"
    level: Annotated[
        str,
        Setting(
            "level", choice("debug", "info", "warning", "error"), "The least serious line still written."
        ),
    ] = "info"
    access: Annotated[bool, Setting("access", SWITCH, "Whether every request leaves a line.")] = True


class Journal(Struct, frozen=True):
    """The recording of every decision, for replay."""

    file: Annotated[Path, Setting("file", FILE, "Where the journal is written.")]
    bytes_max: Annotated[int, Setting("bytes_max", SIZE, "Largest size of the journal.")] = 256 * _MIB


class Config(Struct, frozen=True):
    """The whole tree. Either `models` or `endpoints` names the engines; the loader sees to it."""

    version: Annotated[int, Setting("version", VERSION, "Version of this format; required in a file.")] = 1
    listen: Annotated[Listen, Setting("listen", Listen)] = Listen()
    admin: Annotated[Admin, Setting("admin", Admin)] = Admin()
    auth: Annotated[
        str | None,
        Setting("auth", choice("none"), "`none` lets everybody in who can reach the port.", "not set"),
    ] = None
    endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "endpoints",
            Listed(ENDPOINT, distinct=True),
            "URLs of engines, whose models are learned; instead of `models`.",
        ),
    ] = ()
    models: Annotated[
        tuple[Model, ...], Setting("models", Listed(Model), "The models served; instead of `endpoints`.")
    ] = ()
    http: Annotated[Http, Setting("http", Http)] = Http()
    upstream: Annotated[Upstream, Setting("upstream", Upstream)] = Upstream()
    drain: Annotated[Drain, Setting("drain", Drain)] = Drain()
    log: Annotated[Log, Setting("log", Log)] = Log()
    journal: Annotated[Journal | None, Setting("journal", Journal, derived="off")] = None

    def core_settings(self) -> Settings:
        """The part the core decides by. A pool is named after its model; learned models get the default."""
        pools = {
            model.name: PoolSettings(
                cap=model.cap,
                queue_requests_max=model.queue.requests_max,
                queue_bytes_max=model.queue.bytes_max,
                queue_wait_s=model.queue.wait_s,
            )
            for model in self.models
        }
        return Settings(pools=pools, attempts_max=self.upstream.attempts)


class Field(Struct, frozen=True):
    """One field of a section: its name in Python, what it is in the file, and its default."""

    name: str
    setting: Setting
    required: bool
    default: Any


@cache
def fields_of(section: type[Struct]) -> tuple[Field, ...]:
    """The settings of one section, in the order of the file."""
    return tuple(
        Field(
            field.name, field.type.__metadata__[0], field.required, None if field.required else field.default
        )
        for field in structs.fields(section)
    )


def leaves(section: type[Struct] = Config, at: str = "") -> Iterator[tuple[str, Field]]:
    """Every setting that holds a value, by its path: `listen.data`, `models[].queue.wait`."""
    for field in fields_of(section):
        kind, path = field.setting.kind, at + field.setting.key
        if isinstance(kind, Listed) and not isinstance(kind.item, Kind):
            yield from leaves(kind.item, f"{path}[].")
        elif isinstance(kind, Kind | Listed):
            yield path, field
        else:
            yield from leaves(kind, f"{path}.")
