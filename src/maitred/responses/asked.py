"""One request of a stateful API, once it is known whose it is."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Identity
from maitred.net.exchange import HttpExchange
from maitred.proxy.journey import Service
from maitred.responses.site import Site
from maitred.wire import errors
from maitred.wire.responses.items import Unseal

if TYPE_CHECKING:
    from maitred.store.state import StateStore

JSON_LINES = b"content-type: application/json\r\n"
IDEMPOTENCY = b"idempotency-key"
KEY_BYTES_MAX = 255


class Asked(Struct, eq=False):
    """What its handler has in hand: `task` is its own, `ids` those of its path.

    `called`: a model call has its request id, so that is what the observers are told of.
    """

    site: Site
    task: asyncio.Task[None]
    exchange: HttpExchange
    request_id: str
    service: Service
    identity: Identity
    store: StateStore
    ids: list[str]
    called: bool = False

    @property
    def tenant(self) -> str:
        """Whose everything is that it reads or writes."""
        return self.identity.tenant

    @property
    def query(self) -> str:
        """What follows its path."""
        return self.exchange.head.query.decode("latin-1")

    @property
    def idempotency_key(self) -> str:
        """By what the client knows a repeat of it, "" for nothing. Raises Refusal."""
        key = self.exchange.head.fields.get(IDEMPOTENCY, b"")
        if len(key) > KEY_BYTES_MAX:
            message = f"an idempotency key has at most {KEY_BYTES_MAX} bytes"
            raise Refusal(Outcome.BAD_REQUEST, message, param="Idempotency-Key")
        return key.decode("latin-1")

    @property
    def digest(self) -> bytes:
        """What its body is known again by."""
        return hashlib.sha256(self.exchange.body).digest()

    async def unsealing(self) -> Unseal:
        """What opens the texts that this tenant was given to keep."""
        return partial((await self.store.seal()).open, self.tenant)

    def expires_ms(self, now_ms: int) -> int:
        """When what is written for it now is forgotten."""
        return now_ms + int(self.site.kept(self.tenant).ttl_s * 1000)

    def service_in(self, band: str) -> Service:
        """What its model calls are served by: by its own name, in this band if it may wait there."""
        if not band:
            return self.service

        def identify(fields: dict[bytes, bytes]) -> Identity:
            who = self.service.identify(fields)
            return structs.replace(who, may_set=(*who.may_set, "band"))

        return structs.replace(self.service, identify=identify)

    def respond(self, body: bytes, status: int = 200) -> None:
        """Answer it whole."""
        lines = JSON_LINES + errors.id_lines(None, self.request_id)
        self.exchange.respond(status, lines, body)
