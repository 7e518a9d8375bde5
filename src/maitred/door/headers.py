"""What a client says of its request in headers: how patient it is, and, if it may, whose request it is.

The official clients tell their read timeout and how often they have tried with every request, so these are
read of everybody. What gives an advantage or speaks for others is read only of an identity that may set it;
of anybody else it is dropped. What makes no sense counts as not said.
"""

from __future__ import annotations

import re
from collections.abc import Container
from math import inf

from msgspec import Struct, structs

from maitred.core.words import Identity

Fields = dict[bytes, bytes]

TRACE = b"traceparent"
FORWARDED = (TRACE, b"tracestate")
"""What of a client's head goes on to the engine; all else steers, identifies or frames, and stays here."""
RETRY = b"x-stainless-retry-count"
PATIENCE = b"x-stainless-read-timeout"
TENANT = (b"x-maitred-tenant", b"x-llm-d-inference-fairness-id", b"x-gateway-inference-fairness-id")
BAND = (b"x-maitred-band", b"x-llm-d-inference-objective", b"x-gateway-inference-objective")
SESSION = b"x-session-id"
RECEIPT = b"x-maitred-receipt"
TTFT = (b"x-llm-d-slo-ttft-ms", b"x-slo-ttft-ms")
"""Each by our name, llm-d's and older ones, of which the first that is there counts."""

RETRY_DIGITS_MAX = 4
SECONDS_MAX = 7 * 24 * 3600.0
"""Nobody waits longer than a week."""

_is_name = re.compile(rb"[A-Za-z0-9._:@/-]{1,64}").fullmatch


class Said(Struct, frozen=True):
    """What is read of everybody's head.

    `retry`: how often the client says it has tried before. `patience_s`: how long it waits before it gives
    up. `forwarded`: lines that go on to the engine. `session`: what it calls the conversation, b"" for
    nothing.
    """

    retry: int
    patience_s: float | None
    forwarded: bytes
    session: bytes = b""


NOTHING = Said(0, None, b"")


def said(fields: Fields) -> Said:
    """Read it."""
    if not (RETRY in fields or PATIENCE in fields or TRACE in fields or SESSION in fields):
        return NOTHING
    return Said(retries(fields), patience_s(fields), forwarded(fields), fields.get(SESSION, b""))


def forwarded(fields: Fields) -> bytes:
    """The header lines for the engine; what the client says is for the next one only is not."""
    if TRACE not in fields:
        return b""
    named = fields.get(b"connection", b"").lower()
    return b"".join(
        [b"%b: %b\r\n" % (name, fields[name]) for name in FORWARDED if name in fields and name not in named]
    )


def retries(fields: Fields) -> int:
    """How often the client says it has tried before."""
    said = fields.get(RETRY, b"0")
    if said == b"0" or len(said) > RETRY_DIGITS_MAX or not said.isdigit():
        return 0
    return int(said)


def patience_s(fields: Fields) -> float | None:
    """How long the client waits before it gives up."""
    said = fields.get(PATIENCE)
    return None if said is None else _positive(said, SECONDS_MAX)


def ttft_s(fields: Fields, identity: Identity) -> float | None:
    """The time to first token it wants to be held to."""
    said = _said(fields, TTFT) if "slo" in identity.may_set else b""
    ttft_ms = _positive(said, SECONDS_MAX * 1000)
    return None if ttft_ms is None else ttft_ms / 1000


def band(fields: Fields, identity: Identity) -> str:
    """The band it asks for, if it may; "" for none. Whether there is such a band, the core knows."""
    if "band" not in identity.may_set:
        return ""
    said = _said(fields, BAND)
    name = said.decode() if _is_name(said) else ""
    return name if not identity.bands or name in identity.bands else ""


def on_behalf(fields: Fields, identity: Identity, tenants: Container[str]) -> Identity:
    """Who asks, with the tenant for whom: one of those that the settings name.

    Each tenant has a share and an account of its own, so who could make them up would get any number of both.
    """
    if "tenant" not in identity.may_set:
        return identity
    said = _said(fields, TENANT)
    if not _is_name(said) or (name := said.decode()) not in tenants:
        return identity
    return structs.replace(identity, tenant=name)


def wants_receipt(fields: Fields, identity: Identity) -> bool:
    """Whether it asks why its request goes where it goes, and may."""
    return fields.get(RECEIPT) == b"1" and "receipt" in identity.may_set


def _said(fields: Fields, names: tuple[bytes, ...]) -> bytes:
    for name in names:
        if name in fields:
            return fields[name]
    return b""


def _positive(said: bytes, most: float) -> float | None:
    try:
        value = float(said)
    except ValueError:
        return None
    return min(value, most) if 0 < value < inf else None
