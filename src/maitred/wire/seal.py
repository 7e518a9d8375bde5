"""Texts that clients keep for the gateway and give back, and that nobody else can read or make.

A text's own keyed digest is what its key stream is made from, and shows in the end that it is whole (a
synthetic IV): so no chance is needed, and the same text is sealed alike. It opens for no other tenant.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import shake_256

BEGINS = "maitred.1."
"""How a sealed text begins, so that others are told apart."""
DIGEST = "sha256"
DIGEST_BYTES = 32


class Seal:
    """Seals by a secret."""

    __slots__ = ("_digest_key", "_stream_key")

    def __init__(self, secret: bytes) -> None:
        self._digest_key = hmac.digest(secret, b"seal digest", DIGEST)
        self._stream_key = hmac.digest(secret, b"seal stream", DIGEST)

    def close(self, tenant: str, text: str) -> str:
        """Seal a text of this tenant's."""
        plain = text.encode()
        digest = self._digest(tenant, plain)
        return BEGINS + urlsafe_b64encode(digest + self._stirred(digest, plain)).decode()

    def open(self, tenant: str, sealed: str) -> str:
        """The text; ValueError where it was not sealed here for this tenant."""
        if not sealed.startswith(BEGINS):
            raise ValueError("not sealed here")
        raw = urlsafe_b64decode(sealed.removeprefix(BEGINS))
        digest = raw[:DIGEST_BYTES]
        plain = self._stirred(digest, raw[DIGEST_BYTES:])
        if not hmac.compare_digest(digest, self._digest(tenant, plain)):
            raise ValueError("not sealed here, or not for this tenant")
        return plain.decode()

    def _digest(self, tenant: str, plain: bytes) -> bytes:
        return hmac.digest(
            self._digest_key, b"%d:%b%b" % (len(tenant.encode()), tenant.encode(), plain), DIGEST
        )

    def _stirred(self, digest: bytes, text: bytes) -> bytes:
        """The text and the key stream, each of the other's length; done twice it is undone."""
        size = len(text)
        stream = shake_256(self._stream_key + digest).digest(size)
        return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")
