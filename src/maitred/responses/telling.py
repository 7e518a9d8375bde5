"""What a client hears of a streamed turn, in callbacks: no task is woken for a chunk.

Nothing is said before the response is in the store: a client that knows an id can ask for it. Until then what
came is held; a refusal in between leaves nothing to take back.
"""

from __future__ import annotations

from typing import Protocol

from maitred.net.exchange import Flow, HttpExchange


class Audience(Protocol):
    """Who is told the events of a turn.

    `said` is whether anything has left. `source` feeds it, and is asked to wait where the client is slow.
    """

    said: bool
    source: Flow | None

    def begin(self, headers: bytes) -> None:
        """What the head of the answer says, once it is known."""

    def open(self) -> None:
        """The id may be known from now on."""

    def say(self, events: bytes) -> None:
        """The next events, as they go over the wire."""

    def end(self, events: bytes) -> None:
        """The last events."""


class Telling:
    """An Audience: the client. It is the exchange's flow."""

    __slots__ = ("_exchange", "_headers", "_held", "_open", "said", "source")

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange
        self._held: list[bytes] = []
        self._headers = b""
        self._open = self.said = False
        self.source: Flow | None = None

    def begin(self, headers: bytes) -> None:
        """See Audience."""
        self._headers = headers

    def say(self, events: bytes) -> None:
        """See Audience."""
        if self.said:
            if not self._exchange.gone:
                self._exchange.write(events)
        elif not self._exchange.gone:
            self._held.append(events)
            self._start()

    def open(self) -> None:
        """See Audience."""
        self._open = True
        self._start()

    def end(self, events: bytes) -> None:
        """See Audience."""
        self.say(events)
        if self.said and not self._exchange.gone:
            self._exchange.end()

    def _start(self) -> None:
        if not self._open or not self._held or self._exchange.gone:
            return
        self.said = True
        self._exchange.flow = self
        self._exchange.start(200, self._headers, None, b"".join(self._held))
        self._held.clear()

    # -- Flow: what the client does ---------------------------------------------------------------

    def pause(self) -> None:
        """See Flow."""
        if self.source is not None:
            self.source.pause()

    def resume(self) -> None:
        """See Flow."""
        if self.source is not None:
            self.source.resume()

    def drop(self) -> None:
        """See Flow. What leaving means is the turn's to say; nobody is waited for any more."""
        self.resume()
