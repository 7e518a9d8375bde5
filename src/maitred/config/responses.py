"""The stateful Responses API: what is remembered, how long, and what happens when a client leaves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import NUMBER, SWITCH, TIMEOUT, choice
from maitred.config.setting import Setting

TIERS = ("auto", "default", "flex", "scale", "priority")
"""What a request may say as `service_tier`."""


class Kept(Struct, frozen=True):
    """How a tenant's turns are kept."""

    ttl_s: Annotated[
        float,
        Setting("ttl", TIMEOUT, "How long its responses and conversations are kept after their last turn."),
    ] = 30 * 24 * 3600.0
    on_leave: Annotated[
        str,
        Setting(
            "on_leave",
            choice("abort", "finish"),
            "What becomes of a turn whose client leaves: `abort` stops the engine at once and keeps what was "
            "delivered as incomplete, `finish` completes and keeps it.",
        ),
    ] = "abort"
    waiting_max: Annotated[
        int, Setting("waiting", NUMBER, "Most background responses of its that may wait.")
    ] = 1000


class Background(Struct, frozen=True):
    """Turns that nobody waits for."""

    waiting_max: Annotated[
        int, Setting("waiting", NUMBER, "Most of them that may wait in the store, of all tenants.")
    ] = 10_000
    running_max: Annotated[
        int,
        Setting(
            "running",
            NUMBER,
            "Most of them that one gateway has in its queues and engines at once; as many more may wait for "
            "their tenants' limits.",
        ),
    ] = 16
    expires_s: Annotated[
        float, Setting("expires", TIMEOUT, "How long one may wait before it is given up.")
    ] = 24 * 3600.0
    period_s: Annotated[
        float, Setting("period", TIMEOUT, "How often a gateway looks for those that others were given.")
    ] = 1.0
    resume_s: Annotated[
        float,
        Setting("resume", TIMEOUT, "How long what one has streamed can be read again (`starting_after`)."),
    ] = 3600.0


class Responses(Struct, frozen=True):
    """What is answered at `/v1/responses` and `/v1/conversations`."""

    enabled: Annotated[
        bool, Setting("enabled", SWITCH, "Whether there is such an API; else its paths are 404.")
    ] = True
    items_max: Annotated[
        int,
        Setting(
            "items",
            NUMBER,
            "Most items of a history that one turn goes on from; `http.body_max` bounds them, too.",
        ),
    ] = 10_000
    lease_s: Annotated[
        float,
        Setting(
            "lease", TIMEOUT, "How long a turn is thought to run of which its gateway says nothing any more."
        ),
    ] = 30.0
    background: Annotated[Background, Setting("background", Background)] = Background()
