"""Cross-origin answers: pages of the origins that were listed may read what they asked for, and no others.

An origin is never reflected unless it is listed, and credentials are never allowed: keys are sent by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ASKED_BYTES_MAX = 1024
"""A page that names more headers than fit in here is allowed none."""
MAX_AGE_S = 600
EXPOSED = (
    b"request-id, retry-after, retry-after-ms, x-maitred-outcome, x-maitred-receipt, "
    b"x-ratelimit-limit-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, "
    b"x-ratelimit-reset-requests, x-ratelimit-reset-tokens, x-request-id, x-should-retry"
)
_TOKEN = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_tokens = re.compile(rb"%b(?:[ \t]*,[ \t]*%b)*" % (_TOKEN, _TOKEN)).fullmatch


def lines(origins: frozenset[str], fields: dict[bytes, bytes]) -> bytes:
    """What every answer says where origins are listed; caches must know that it depends on who asked."""
    if not _listed(origins, fields):
        return b"vary: origin\r\n"
    return (
        b"access-control-allow-origin: %b\r\naccess-control-expose-headers: %b\r\nvary: origin\r\n"
        % (fields[b"origin"], EXPOSED)
    )  # fmt: skip


def is_preflight(origins: frozenset[str], method: str, fields: dict[bytes, bytes]) -> bool:
    """Whether a browser asks, for a page of a listed origin, what that page may send."""
    return method == "OPTIONS" and b"access-control-request-method" in fields and _listed(origins, fields)


def permission(methods: Sequence[str], fields: dict[bytes, bytes]) -> bytes:
    """The answer to a preflight, beside `lines`: these methods, and the headers asked for."""
    allowed = b"access-control-allow-methods: %b\r\naccess-control-max-age: %d\r\n" % (
        ", ".join(methods).encode(),
        MAX_AGE_S,
    )
    asked = fields.get(b"access-control-request-headers", b"")
    if len(asked) <= ASKED_BYTES_MAX and _tokens(asked):
        allowed += b"access-control-allow-headers: %b\r\n" % asked
    return allowed


def _listed(origins: frozenset[str], fields: dict[bytes, bytes]) -> bool:
    return fields.get(b"origin", b"").decode("latin-1") in origins
