"""Keeping the caches of tenants apart: the salt that goes to the engine in the name of each.

Without it, who asks can measure by the time to first token whether somebody else has asked the same before.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

KNOWN_MAX = 4096
DIGEST_BYTES = 18
"""No one hits upon the salt of another: 144 bits, 24 characters."""


class Salter:
    """Makes salts. Without `secret` nobody can make those of another tenant, nor tell whose one is."""

    __slots__ = ("_known", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}

    def salt(self, tenant: str, said: str = "") -> str:
        """That of a tenant; a client's own, `said`, divides its cache further."""
        if said:
            return self._made(tenant, said)
        salt = self._known.get(tenant)
        if salt is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            salt = self._known[tenant] = self._made(tenant, "")
        return salt

    def _made(self, tenant: str, said: str) -> str:
        text = f"{len(tenant)}:{tenant}{said}".encode()
        return urlsafe_b64encode(hmac.digest(self._secret, text, "sha256")[:DIGEST_BYTES]).decode()
