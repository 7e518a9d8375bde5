"""Settings of one model's prefix caches: between whom they are shared, and how we know what is in them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct, structs

from maitred.config.kinds import ADDRESS, PORT, Address, between, choice
from maitred.config.secret import SECRET, Secret
from maitred.config.setting import Setting

TENANT = "tenant"
EVENTS_PORT = 5557
RANKS_MAX = 64


class Events(Struct, frozen=True):
    """Where engines publish what is in their KV caches. `port` is filled in where nothing else is said."""

    port: Annotated[
        int | None,
        Setting("port", PORT, "The port of an engine's KV events, at its own host.", f"{EVENTS_PORT}"),
    ] = None
    replay: Annotated[
        int | None,
        Setting("replay", PORT, "The port at which it tells again what was missed.", "nothing is told again"),
    ] = None
    offset: Annotated[
        int | None,
        Setting("offset", PORT, "Instead of `port`: how far above the engine's own port it is.", "not set"),
    ] = None
    replay_offset: Annotated[
        int | None,
        Setting("replay_offset", PORT, "The same instead of `replay`.", "not set"),
    ] = None
    bind: Annotated[
        Address | None,
        Setting(
            "bind",
            ADDRESS,
            "Instead of `port`: where the engines connect to tell their events, each with a topic of its own "
            "(`kv@HOST:PORT@MODEL`). Whoever reaches it can say what he likes of them.",
            "not set",
        ),
    ] = None
    ranks: Annotated[
        int,
        Setting(
            "ranks",
            between(1, RANKS_MAX),
            "Data-parallel ranks of an engine, each at the next port.",
        ),
    ] = 1

    def __post_init__(self) -> None:
        """Raises ValueError where more is said than one can be."""
        if sum(way is not None for way in (self.port, self.offset, self.bind)) > 1:
            raise ValueError("port, offset and bind are three ways to say the same; write one of them")
        if self.replay is not None and self.replay_offset is not None:
            raise ValueError("replay and replay_offset are two ways to say the same; write one of them")
        if self.offset is None and self.bind is None and self.port is None:
            structs.force_setattr(self, "port", EVENTS_PORT)
        if self.port is not None and self.replay is not None and 0 <= self.replay - self.port < self.ranks:
            last = self.port + self.ranks - 1
            raise ValueError(
                f"replay is one of the ports of events, {self.port} to {last}; write another one"
            )


class Cache(Struct, frozen=True):
    """The prefix caches of one model's engines."""

    isolate: Annotated[
        str,
        Setting(
            "isolate",
            choice("none", TENANT),
            "`tenant`: no tenant finds what another has asked. The engine gets a `cache_salt` for each; "
            "prompts that all have in common are computed and kept once for every tenant.",
        ),
    ] = "none"
    secret: Annotated[
        Secret | None,
        Setting(
            "secret",
            SECRET,
            "What these salts are made with, as `{env: NAME}` or `{file: PATH}`. Several gateways before the "
            "same engines need the same.",
            "drawn at each start, which then finds cold caches",
        ),
    ] = None
    events: Annotated[Events | None, Setting("events", Events, derived="not heard")] = None
