"""Who asks: the first thing that is known of a request, by its head alone.

A key or a token that was seen before costs one look into a dict. Nothing here waits: keys and the issuer's
key set are read beside the requests, and what cannot be known for lack of them is a 503, never a 401.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from maitred.control.keys import KeyTable, digest
from maitred.control.known import ALWAYS, Known, unauthenticated, unavailable
from maitred.core.words import Identity

ANYBODY = Identity()
KNOWN_MAX = 10_000
"""Keys and tokens remembered by their own bytes; beyond it all are looked up anew."""
TOKEN_BYTES_MAX = 16 * 1024
BEARER = b"Bearer "

Fields = dict[bytes, bytes]
Identify = Callable[[Fields], Identity]


class Tokens(Protocol):
    """Who can tell whose token it is."""

    def verify(self, token: bytes) -> Known:
        """Raises Refusal."""


def anybody(_fields: Fields) -> Identity:
    """Whoever comes is let in."""
    return ANYBODY


class Identifier:
    """Tells who sent a head. `tokens` is None where only keys count, `keys` where only tokens do.

    `forget` when keys have changed.
    """

    def __init__(
        self,
        keys: KeyTable | None,
        pepper: bytes,
        tokens: Tokens | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._pepper = pepper
        self._tokens = tokens
        self._wall = wall
        self._known: dict[bytes, Known] = {}

    def identify(self, fields: Fields) -> Identity:
        """Whose request this is. Raises Refusal."""
        said = fields.get(b"authorization")
        if said is None:
            said = fields.get(b"x-api-key", b"")
        known = self._known.get(said)
        if known is None or (known.until is not ALWAYS and known.until <= self._wall()):
            known = self._look_up(*_token(fields))
        return known.identity

    def forget(self) -> None:
        """Look everybody up anew."""
        self._known.clear()

    def _look_up(self, said: bytes, token: bytes) -> Known:
        if len(token) > TOKEN_BYTES_MAX:
            raise unauthenticated("the key is too long to be one")
        if self._tokens is not None and token.startswith(b"eyJ") and token.count(b".") == 2:
            known = self._tokens.verify(token)
        else:
            known = self._by_key(token)
        if known.until <= self._wall():
            raise unauthenticated("the key has expired; ask for another one")
        if said in (token, BEARER + token):  # of the many other ways to say it none is remembered
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[said] = known
        return known

    def _by_key(self, token: bytes) -> Known:
        if self._keys is None:
            raise unauthenticated("send a token of the identity provider: Authorization: Bearer TOKEN")
        known = self._keys.find(digest(self._pepper, token))
        if known is None and not self._keys.current:
            raise unavailable("keys cannot be looked up for the moment, and this one is not known yet")
        if known is None:
            raise unauthenticated("the key is not known here, or was revoked")
        return known


def _token(fields: Fields) -> tuple[bytes, bytes]:
    """The whole header that carries it, and the key or token itself. Raises Refusal.

    What is remembered is remembered by that header and by no other, or it would let in without the key.
    """
    said = fields.get(b"authorization", b"")
    scheme, _, token = said.partition(b" ")
    if scheme.lower() == b"bearer" and (token := token.strip()):
        return said, token
    if token := fields.get(b"x-api-key", b""):
        return token, token
    raise unauthenticated("no key; send Authorization: Bearer KEY, or x-api-key: KEY")
