"""What a journey answers to: an HTTP request today, a background job or a row of a batch as well.

What leaving means belongs to the exchange: it cancels the journey when nobody wants the answer any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.net.exchange import Flow, RequestHead


class Exchange(Protocol):
    """One request with the means to answer it once: whole, as a stream, or with a refusal."""

    head: RequestHead
    body: bytes
    flow: Flow | None

    @property
    def started(self) -> bool:
        """Whether anything of an answer has left."""

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call this when nobody wants the answer any more."""

    def refuse(self, refusal: Refusal, request_id: str, api: Api | None = None) -> None:
        """Answer with a refusal, unless an answer has begun."""

    def fail(self, refusal: Refusal, request_id: str, api: Api | None = None) -> None:
        """Answer with a refusal, or break off the answer that has begun."""

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer whole; `headers` are lines."""

    def start(
        self, status: int, headers: bytes, length: int | None, body: bytes, complete: bool = False
    ) -> None:
        """Begin a stream with its first piece, which may be all; `length` in bytes when known."""

    def write(self, body: bytes) -> None:
        """More of the stream."""

    def end(self, body: bytes = b"") -> None:
        """The stream is complete with this last piece."""

    def abort(self) -> None:
        """Break off, so that nobody takes what was sent for a whole answer."""
