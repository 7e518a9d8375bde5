"""Somebody who may ask, and the two ways not to be him: what keys and tokens have in common."""

from __future__ import annotations

import math

from msgspec import Struct

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Identity

RETRY_AFTER_S = 5.0
ALWAYS = math.inf
"""Until when those may ask whose time does not end; looked for by `is`, so that no clock is read for them."""


class Known(Struct, frozen=True):
    """Somebody who may ask, until an instant of the wall clock in seconds."""

    identity: Identity
    until: float = ALWAYS


def unauthenticated(message: str) -> Refusal:
    """The refusal of somebody who is not let in."""
    return Refusal(Outcome.UNAUTHENTICATED, message, headers=(("www-authenticate", "Bearer"),))


def unavailable(message: str, retry_after_s: float = RETRY_AFTER_S) -> Refusal:
    """The refusal of somebody of whom it cannot be told whether he is one."""
    return Refusal(Outcome.AUTH_UNAVAILABLE, message, retry_after_s=retry_after_s)
