"""Every decision on record: a gateway that writes down what it was told and what it answered.

One JSON line a verb: `[verb, now, arguments, result]`. The first line holds seed, settings and abilities.
Replayed into a fresh gateway, a journal from anywhere, live traffic included, must give the same answers;
if it does not, the core read something it was not given. It is also the form in which to report a bug:
it holds sizes, names and times, never content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from maitred.core.events import Emit
from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import (
    Abilities,
    Change,
    Drop,
    Effect,
    Failure,
    Go,
    Identity,
    Leg,
    Request,
    Settings,
    Stop,
    Ticket,
    Usage,
)

FORMAT = 2


class Head(Struct, frozen=True):
    """First line of a journal: all a fresh gateway needs to start the same."""

    format: int
    seed: int
    settings: Settings
    abilities: Abilities


class Mismatch(Exception):  # noqa: N818 - a finding, not a failure of the replay
    """The replayed core answered differently at `line` (1-based, the head is line 1)."""

    def __init__(self, line: int, verb: str, recorded: object, replayed: object) -> None:
        super().__init__(f"line {line}: {verb}: recorded {recorded!r}, replayed {replayed!r}")
        self.line = line


def _plain(effect: Effect) -> list[Any]:
    """An effect as plain data, naming tickets by request id and legs by number."""
    match effect:
        case Go(ticket, legs):
            return ["go", ticket.request.id, [[g.number, g.endpoint.name, g.incarnation] for g in legs]]
        case Drop(leg):
            return ["drop", leg.number]
        case Stop(ticket, outcome, retry_after_s):
            return ["stop", ticket.request.id, outcome.value, retry_after_s]


class RecordingGateway(Gateway):
    """A Gateway that hands one encoded line a verb to `write`."""

    def __init__(
        self, settings: Settings, abilities: Abilities, seed: int, emit: Emit, write: Callable[[bytes], None]
    ) -> None:
        super().__init__(settings, abilities, Random(seed), emit)
        self._encode = msgspec.json.Encoder().encode
        self._write = write
        write(self._encode(Head(FORMAT, seed, settings, abilities)) + b"\n")

    def _record(self, verb: str, now: float, arguments: list[Any], result: object = None) -> None:
        self._write(self._encode((verb, now, arguments, result)) + b"\n")

    def accept(self, request: Request, identity: Identity, now: float) -> Ticket:
        """See Gateway; a refusal is recorded as the result."""
        try:
            ticket = super().accept(request, identity, now)
        except Refusal as refusal:
            self._record("accept", now, [request, identity], [refusal.outcome.value, refusal.retry_after_s])
            raise
        self._record("accept", now, [request, identity])
        return ticket

    def release(self, now: float) -> list[Effect]:
        """See Gateway; a call while nothing waits changes nothing and is not recorded."""
        busy = bool(self.waiting or self.outbox)
        effects = super().release(now)
        if busy:
            self._record("release", now, [], [_plain(effect) for effect in effects])
        return effects

    def sent(self, leg: Leg, now: float, endpoint: str | None = None) -> None:
        """See Gateway."""
        super().sent(leg, now, endpoint)
        self._record("sent", now, [leg.number, endpoint])

    def answered(self, leg: Leg, now: float) -> None:
        """See Gateway."""
        super().answered(leg, now)
        self._record("answered", now, [leg.number])

    def progress(self, leg: Leg, output_tokens_total: int, now: float) -> None:
        """See Gateway."""
        super().progress(leg, output_tokens_total, now)
        self._record("progress", now, [leg.number, output_tokens_total])

    def leave(self, leg: Leg, usage: Usage | None, now: float) -> None:
        """See Gateway."""
        super().leave(leg, usage, now)
        self._record("leave", now, [leg.number, usage])

    def fail(self, leg: Leg, failure: Failure, now: float) -> bool:
        """See Gateway."""
        again = super().fail(leg, failure, now)
        self._record("fail", now, [leg.number, failure], again)
        return again

    def finish(self, ticket: Ticket, outcome: Outcome, usage: Usage | None, now: float) -> Outcome:
        """See Gateway."""
        said = super().finish(ticket, outcome, usage, now)
        self._record("finish", now, [ticket.request.id, outcome, usage], said.value)
        return said

    def update(self, change: Change, now: float) -> None:
        """See Gateway."""
        super().update(change, now)
        self._record("update", now, [change])


class Replay:
    """Drives a fresh gateway through a recorded journal and compares every answer."""

    def __init__(self, head: Head) -> None:
        self.gateway = Gateway(head.settings, head.abilities, Random(head.seed))
        self._tickets: dict[str, Ticket] = {}
        self._legs: dict[int, Leg] = {}

    def say(self, verb: str, now: float, arguments: list[Any]) -> object:
        """Repeat one verb; the result in the form in which a journal records it."""
        gateway, result = self.gateway, None
        match verb, arguments:
            case "accept", [request, identity]:
                result = self._accept(_read(request, Request), _read(identity, Identity), now)
            case "release", []:
                result = self._release(now)
            case "sent", [leg, endpoint]:
                gateway.sent(self._legs[leg], now, endpoint)
            case "answered", [leg]:
                gateway.answered(self._legs[leg], now)
            case "progress", [leg, total]:
                gateway.progress(self._legs[leg], total, now)
            case "leave", [leg, usage]:
                gateway.leave(self._legs[leg], _read(usage, Usage | None), now)
            case "fail", [leg, failure]:
                result = gateway.fail(self._legs[leg], _read(failure, Failure), now)
            case "finish", [ticket, outcome, usage]:
                usage, outcome = _read(usage, Usage | None), _read(outcome, Outcome)
                result = gateway.finish(self._tickets[ticket], outcome, usage, now).value
            case "update", [change]:
                gateway.update(_read(change, Change), now)
            case _:
                raise ValueError(f"no verb {verb!r} with {len(arguments)} arguments")
        return result

    def _accept(self, request: Request, identity: Identity, now: float) -> object:
        try:
            self._tickets[request.id] = self.gateway.accept(request, identity, now)
        except Refusal as refusal:
            return [refusal.outcome.value, refusal.retry_after_s]
        return None

    def _release(self, now: float) -> object:
        effects = self.gateway.release(now)
        for effect in effects:
            if isinstance(effect, Go):
                self._legs.update((leg.number, leg) for leg in effect.legs)
        return [_plain(effect) for effect in effects]


def replay(lines: Iterable[bytes]) -> int:
    """Replay a whole journal; the number of verbs that agreed.

    Raises Mismatch at the first that does not, ValueError where a line cannot be read.
    """
    entries = iter(lines)
    head = msgspec.json.decode(next(entries, b""), type=Head)
    if head.format != FORMAT:
        raise ValueError(f"journal format {head.format}, this version reads {FORMAT}")
    house, count = Replay(head), 0
    for number, line in enumerate(entries, 2):
        try:
            verb, now, arguments, recorded = msgspec.json.decode(line)
            replayed = house.say(verb, float(now), arguments)
        except (ValueError, KeyError) as error:
            raise ValueError(f"line {number}: cannot be replayed: {error}") from error
        if replayed != recorded:
            raise Mismatch(number, verb, recorded, replayed)
        count += 1
    return count


def _read(value: object, kind: Any) -> Any:
    """Plain data back to the word it was; enum members travel by value."""
    return msgspec.convert(value, kind)
