"""The access log: one line for each request that ended or was refused, and nothing of its content.

Lines are made in batches (`ends.py`) and written by `flush`, which the shell calls each 100 ms.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from math import floor  # `int` takes several times as long
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from maitred.core.events import AtDoor, Ended
from maitred.core.words import Api
from maitred.observe.ends import Over
from maitred.observe.sink import Sink

NOTES_MAX = 16384
TEXT_MAX = 128
API_LABELS = [api.label for api in Api]

Style = Literal["human", "json"]
"""How logs are written: for people, or one JSON object a line."""

_harmless = re.compile(r"[!#-\[\]-~]*").fullmatch  # visible ASCII without quote and backslash
_encode_lines = msgspec.json.Encoder().encode_lines


class Head(Protocol):
    """A request's head as the client sent it: the path without its query, fields by lower-case names.

    The client's own id of the request is logged when it is short and harmless, and never used.
    """

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def fields(self) -> Mapping[bytes, bytes]: ...


class Facts(Protocol):
    """What only the shell knows of a request, read when its line is written.

    `client`: the address it came from. `status`: what was really sent; 0 when nothing was, or nothing yet to
    one who was stopped while he waited, and the outcome's own is logged.
    """

    @property
    def client(self) -> str: ...

    @property
    def head(self) -> Head: ...

    @property
    def status(self) -> int: ...


class NoHead(Struct, frozen=True):
    """Of a request of which nothing is known."""

    method: str = ""
    path: str = ""
    fields: dict[bytes, bytes] = {}


class NoFacts(Struct):
    """Nothing is known."""

    client: str = ""
    head: Head = NoHead()
    status: int = 0


NOTHING_KNOWN: Facts = NoFacts()
NO_HEAD: Head = NoHead()
WHOLE = 1.5 * 2**52
"""Added to a float and taken away again it makes that a whole number, for less than `round` and `//`."""
OWN_ID = b"x-request-id"


class Line(Struct, omit_defaults=True, gc=False):
    """One line. `ts` is wall time in ms; absent means not known or not so.

    `key` is the id of the client's key; the key itself is nowhere.
    """

    ts: int
    id: str
    outcome: str
    status: int
    client: str = ""
    method: str = ""
    path: str = ""
    client_request_id: str = ""
    tenant: str = ""
    key: str = ""
    band: str = ""
    model: str = ""
    api: str = ""
    stream: bool = False
    body_bytes: int = 0
    endpoint: str = ""
    attempts: int = 0
    queue_s: float | None = None
    ttft_s: float | None = None
    duration_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class AccessLog:
    """Writes to `sink`. `wall` gives seconds since the epoch, `clock` those by which the core tells instants.

    The core tells each request's end exactly once, so there is exactly one line. What the shell knows
    comes by `note`, before the request is accepted or refused.
    """

    def __init__(
        self,
        sink: Sink,
        style: Style,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._wall = wall
        self._clock = clock
        self._form = _encode_lines if style == "json" else _human_lines
        self._notes: dict[str, Facts] = {}

    @property
    def dropped(self) -> int:
        """How many lines the sink lost."""
        return self._sink.dropped

    def note(self, request_id: str, facts: Facts) -> None:
        """Keep facts for the line of this request."""
        self._notes[request_id] = facts

    def over(self, ends: Sequence[Over]) -> None:
        """Make the lines of what is over."""
        take, since = self._notes.pop, self._wall() - self._clock()
        rows = list[Line]()
        head, method, path, own_id = NO_HEAD, "", "", ""
        for event in ends:
            if not isinstance(event, Ended):
                rows.append(_short(event, since, take(event.request_id, NOTHING_KNOWN)))
                continue
            ticket, outcome, at = event.ticket, event.outcome, event.at
            usage, leg = event.usage, event.leg
            request, identity, arrival = ticket.request, ticket.identity, ticket.arrival
            facts = take(request.id, NOTHING_KNOWN)
            if facts.head is not head:  # many requests share one
                head = facts.head
                method, path, own_id = _said(head)
            if leg is None:
                endpoint, seated_at, ttft_s = "", at, None
            else:
                endpoint, seated_at, began_at = leg.endpoint.name, leg.seated_at, leg.answered_at
                ttft_s = ((began_at - arrival) * 1e6 + WHOLE - WHOLE) / 1e6 if began_at else None
            if usage is None:
                prompt = cached = output = None
            else:
                prompt, cached, output = usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
            line = Line(  # by position: 23 keywords would double the price of a line
                floor((since + at) * 1000.0),
                request.id,
                outcome.label,
                facts.status or (outcome.anthropic_status if request.api.anthropic else outcome.status),
                facts.client,
                method,
                path,
                own_id,
                identity.tenant,
                identity.key,
                ticket.band,
                request.model,
                API_LABELS[request.api],
                request.stream,
                request.body_bytes,
                endpoint,
                ticket.attempts,
                ((seated_at - arrival) * 1e6 + WHOLE - WHOLE) / 1e6,
                ttft_s,
                ((at - arrival) * 1e6 + WHOLE - WHOLE) / 1e6,
                prompt,
                cached,
                output,
            )
            rows.append(line)
        self._sink.put_all(self._form(rows), len(rows))
        self._forget()

    def flush(self) -> None:
        """Write what can be written without waiting; the rest stays for the next time."""
        self._forget()
        self._sink.flush()

    def _forget(self) -> None:
        """Of what is noted beyond the bound the oldest goes; looked at in batches, as all else."""
        notes = self._notes
        if len(notes) > NOTES_MAX:
            for oldest in list(islice(notes, len(notes) - NOTES_MAX)):
                del notes[oldest]


def _short(event: AtDoor, since: float, facts: Facts) -> Line:
    """The line of a request that never had a ticket; the core's clock began at `since`, in wall time."""
    method, path, own_id = _said(facts.head)
    return Line(
        ts=floor((since + event.at) * 1000),
        id=event.request_id,
        outcome=event.outcome.label,
        status=facts.status or event.outcome.status,
        client=facts.client,
        method=method,
        path=path,
        client_request_id=own_id,
        tenant=event.tenant,
        key=event.key,
        band=event.band,
        model=event.model,
        api="" if event.api is None else API_LABELS[event.api],
    )


def _said(head: Head) -> tuple[str, str, str]:
    """The method, the path and the client's own id, as far as they may be logged."""
    own_id = _own_id(head.fields[OWN_ID]) if OWN_ID in head.fields else ""
    return head.method, _checked(head.path), own_id


@lru_cache(maxsize=256)
def _checked(text: str) -> str:
    """Text of a client if it is short and harmless, else nothing of it."""
    return text if len(text) <= TEXT_MAX and _harmless(text) else ""


def _own_id(said: bytes) -> str:
    return said.decode() if len(said) <= TEXT_MAX and said.isascii() and _harmless(said.decode()) else ""


@lru_cache(maxsize=1)
def _clock(ts_s: int) -> str:
    """The second in UTC; a busy second needs it thousands of times."""
    return datetime.fromtimestamp(ts_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _human_lines(lines: Iterable[Line]) -> bytes:
    return b"".join([_human(line) + b"\n" for line in lines])


def _human(line: Line) -> bytes:
    ts_s, ms = divmod(line.ts, 1000)
    words = f"{line.client or '-'} {line.method or '-'} {line.path or '-'} {line.status} {line.outcome}"
    text = f"{_clock(ts_s)}.{ms:03d}Z {words} {line.model or '-'}"
    if line.endpoint:
        text += f" at {line.endpoint}"
    if line.queue_s is not None:
        text += f" queue={line.queue_s:.3f}s"
    if line.ttft_s is not None:
        text += f" ttft={line.ttft_s:.3f}s"
    if line.duration_s is not None:
        text += f" total={line.duration_s:.3f}s"
    if line.output_tokens is not None:
        text += f" tokens={line.prompt_tokens}({line.cached_tokens} cached)+{line.output_tokens}"
    return printable(f"{text} id={line.id}").encode()


def printable(text: str) -> str:
    """The text as one line that does nothing to a terminal: an engine's model may have any name."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])
