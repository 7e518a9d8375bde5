"""What who asks is entitled to by the settings: the band he waits in, and whose limits he is bound by."""

from __future__ import annotations

from maitred.core.limits import UNLIMITED, Limits
from maitred.core.words import BandSettings, Identity, Request, Settings


def band_of(settings: Settings, request: Request, identity: Identity) -> BandSettings:
    """The band that was asked for, if it may be had; else the first there is of those that may."""
    bands, asked = settings.bands, request.band
    if len(bands) == 1:
        return bands[0]
    allowed = identity.bands or settings.tenants.get(identity.tenant, settings.tenant).bands
    wanted = (asked, *allowed) if asked and (not allowed or asked in allowed) else allowed
    for name in wanted:
        for band in bands:
            if band.name == name:
                return band
    return bands[-1] if allowed else bands[0]


def is_limited(settings: Settings) -> bool:
    """Whether any tenant or model is; keys have limits of their own."""
    limits = [settings.tenant.limits, *(tenant.limits for tenant in settings.tenants.values())]
    limits += [settings.default.limits, *(pool.limits for pool in settings.pools.values())]
    return any(each != UNLIMITED for each in limits)


def limited(settings: Settings, pool: str, limits: Limits, identity: Identity) -> list[tuple[str, Limits]]:
    """Those who are limited of whom a request is, in a pool of these limits.

    A tenant that the settings do not name is a guest.
    """
    found, kind, tenant = [], "tenant", settings.tenants.get(identity.tenant)
    if tenant is None:
        kind, tenant = "guest", settings.tenant
    if tenant.limits is not UNLIMITED:
        found.append((f"{kind} {identity.tenant}", tenant.limits))
    if identity.limits is not UNLIMITED:
        found.append((f"key {identity.key}", identity.limits))
    if limits is not UNLIMITED:
        found.append((f"model {pool}", limits))
    return found
