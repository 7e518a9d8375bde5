"""What who asks is entitled to by the settings: the band he waits in, and whose limits he is bound by."""

from __future__ import annotations

from msgspec import Struct

from maitred.core.holders import Party
from maitred.core.limits import UNLIMITED, Limits
from maitred.core.words import BandSettings, Identity, PoolSettings, Settings


class Terms(Struct, frozen=True):
    """What one identity's requests for one pool have in common, where they ask for the same band.

    `rank` is the band's from the highest, `weight` the tenant's, `wait_s` bounds the wait. `goals`: answers
    may be held to a time to first token. `party`: those who are limited of whom they are, None for nobody.
    """

    band: str
    rank: int
    weight: float
    wait_s: float
    goals: bool
    party: Party | None


def terms(settings: Settings, pool: str, limits: PoolSettings, asked: str, identity: Identity) -> Terms:
    """The terms of who asks for this band, "" for none, in a pool of these limits."""
    band, tenant = band_of(settings, asked, identity), settings.tenants.get(identity.tenant, settings.tenant)
    rank, deadline_s = settings.bands.index(band), band.deadline_s
    return Terms(
        band=band.name,
        rank=rank,
        weight=tenant.weight,
        wait_s=limits.queue_wait_s if deadline_s is None else deadline_s,
        goals=not rank or deadline_s is None,
        party=Party(found) if (found := limited(settings, pool, limits.limits, identity)) else None,
    )


def band_of(settings: Settings, asked: str, identity: Identity) -> BandSettings:
    """The band that was asked for, if it may be had; else the first there is of those that may."""
    bands = settings.bands
    if len(bands) == 1:
        return bands[0]
    allowed = identity.bands or settings.tenants.get(identity.tenant, settings.tenant).bands
    wanted = (asked, *allowed) if asked and (not allowed or asked in allowed) else allowed
    for name in wanted:
        for band in bands:
            if band.name == name:
                return band
    return bands[-1] if allowed else bands[0]


def limited(settings: Settings, pool: str, limits: Limits, identity: Identity) -> list[tuple[str, Limits]]:
    """Those who are limited of whom a request is, in a pool of these limits.

    A tenant that the settings do not name is a guest.
    """
    found, kind, tenant = [], "tenant", settings.tenants.get(identity.tenant)
    if tenant is None:
        kind, tenant = "guest", settings.tenant
    if tenant.limits != UNLIMITED:
        found.append((f"{kind} {identity.tenant}", tenant.limits))
    if identity.limits != UNLIMITED:
        found.append((f"key {identity.key}", identity.limits))
    if limits != UNLIMITED:
        found.append((f"model {pool}", limits))
    return found
