"""A workload at work: what its classes send, and what follows when a request is over.

Each class draws from random streams of its own, named after it, so that a change to one class leaves what the
others send as it was. Arrivals are made when they are asked for. Nothing here knows whose time it is: a
simulator and a load generator drive it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import count, islice
from operator import attrgetter
from random import Random
from typing import Protocol, TypeVar

from msgspec import Struct

from maitred.sim.arrival import Arrival
from maitred.sim.prompts import Conversations
from maitred.sim.stages import Arrivals, Stage, UserStage
from maitred.sim.traces import Trace
from maitred.sim.traffic import Generated, Replayed, Traffic

T = TypeVar("T")

BACKOFF_S = 1.0
"""How long a user waits at least who was refused at once."""

IDS_BITS = 40
"""Pieces of text are numbered by class; ids of the second begin at 2 to the power of this."""

_TIME = attrgetter("at")


class Part(Struct, frozen=True):
    """One of several equal parts of a workload: each `of`-th script, row or user, from `index` on.

    What is in a script, and when it begins at a rate, is the same however many parts there are. A part knows
    nothing of the others, so stages that wait for everybody are only for a workload in one.
    """

    index: int = 0
    of: int = 1

    def take(self, more: Iterable[T], before: int = 0) -> Iterator[T]:
        """What belongs to this part, where so many came before."""
        return islice(more, (self.index - before) % self.of, None, self.of)


WHOLE = Part()


class Source(Protocol):
    """What one or more classes send; it hears of the end of each of their requests."""

    def begin(self, at: float) -> Iterator[Arrival]:
        """As `Workload`."""

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        """As `Workload`."""


class Mix:
    """All classes of a workload together; it is a `Workload`."""

    def __init__(
        self,
        traffic: Sequence[Traffic],
        common: Arrivals | None,
        traces: Mapping[str, Trace],
        rng: Random,
        part: Part = WHOLE,
    ) -> None:
        """`common`: the arrivals of classes without their own; `traces` by the class that replays them."""
        seed = rng.getrandbits(64)
        shared = Course(common, part) if common else None
        self._by_class: list[Source] = []
        for index, kind in enumerate(traffic):
            numbers = count(index + 1, len(traffic))  # so that a number tells the class
            if isinstance(kind, Replayed):
                times = Random(f"{seed} {kind.name} times")
                self._by_class.append(Replay(kind, traces[kind.name], times, numbers, part))
                continue
            course = Course(kind.arrivals, part) if kind.arrivals else shared
            if course is None:
                raise ValueError(f"{kind.name} has no arrivals")
            course.join(Sender(kind, seed, numbers, count((index << IDS_BITS) + 1), part))
            self._by_class.append(course)

    def begin(self, at: float) -> Iterator[Arrival]:
        """The first arrivals, in order of time."""
        return merge(*(source.begin(at) for source in dict.fromkeys(self._by_class)), key=_TIME)

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        """What comes because this one is over."""
        return self._by_class[(arrival.number - 1) % len(self._by_class)].over(arrival, at)


class Replay:
    """A trace, played: nothing waits for anything."""

    def __init__(
        self, kind: Replayed, trace: Trace, times: Random, numbers: Iterator[int], part: Part = WHOLE
    ) -> None:
        self._kind = kind
        self._part = part
        self._trace = trace
        self._times = times
        self._numbers = numbers

    def begin(self, at: float) -> Iterator[Arrival]:
        """Every row, in order of time. What the class says of itself goes before what the trace says."""
        kind = self._kind
        times_s = self._trace.times_s(self._times)
        for row, time_s in self._part.take(zip(self._trace.rows, times_s, strict=True)):
            yield Arrival(
                number=next(self._numbers),
                at=at + time_s / kind.trace.speed,
                model=kind.model or row.model,
                prompt=row.prompt,
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                answer=row.answer,
                tenant=kind.tenant or row.tenant or "anonymous",
                band=kind.band,
                adapter=kind.adapter,
                stream=kind.stream and row.stream,
                patience_s=kind.patience_s,
            )

    def over(self, _arrival: Arrival, _at: float) -> Iterable[Arrival]:
        """Nothing comes of it."""
        return ()


class Sender:
    """Makes the requests of one class that is made up."""

    def __init__(
        self, kind: Generated, seed: int, numbers: Iterator[int], ids: Iterator[int], part: Part = WHOLE
    ) -> None:
        self.share = 1.0 if kind.arrivals else kind.share
        self.begun = 0  # scripts, or users, of all parts
        self.times = Random(f"{seed} {kind.name} times")
        self.think_s = kind.prompts.think_s if isinstance(kind.prompts, Conversations) else 0.0
        self._kind = kind
        self._numbers = numbers
        self._scripts = part.take(
            kind.prompts.scripts(kind.answers, Random(f"{seed} {kind.name} texts"), ids)
        )

    def script(self) -> list[Arrival]:
        """The requests of the next script, the last one first; whoever sends them sets `at` and `stage`."""
        kind, conversation, arrivals = self._kind, 0, []
        for place, turn in enumerate(next(self._scripts), 1):
            number = next(self._numbers)
            if place == 1 and isinstance(kind.prompts, Conversations):
                conversation = number
            arrivals.append(
                Arrival(
                    number=number,
                    at=0.0,
                    model=kind.model,
                    prompt=turn.prompt,
                    prompt_tokens=turn.prompt_tokens,
                    output_tokens=turn.output_tokens,
                    answer=turn.answer,
                    tenant=kind.tenant or "anonymous",
                    band=kind.band,
                    adapter=kind.adapter,
                    stream=kind.stream,
                    conversation=conversation,
                    turn=place if conversation else 0,
                    patience_s=kind.patience_s,
                )
            )
        return arrivals[::-1]


class _Run:
    """One stage while it runs; `left` counts the scripts, or users, that are not over."""

    __slots__ = ("begins_at", "ends_at", "left", "number", "stage")

    def __init__(self, number: int, stage: Stage, begins_at: float, left: int) -> None:
        self.number = number
        self.stage = stage
        self.begins_at = begins_at
        self.ends_at = begins_at + stage.duration_s
        self.left = left


class Course:
    """Stages one after another, sent by the classes that have joined."""

    def __init__(self, arrivals: Arrivals, part: Part = WHOLE) -> None:
        self._arrivals = arrivals
        self._part = part
        self._senders: list[Sender] = []
        self._next = 0
        self._open: dict[int, tuple[_Run, Sender, list[Arrival]]] = {}

    def join(self, sender: Sender) -> None:
        """Another class takes its share; only before the begin."""
        self._senders.append(sender)

    def begin(self, at: float) -> Iterator[Arrival]:
        """Arrivals from the next stage on, up to where everything must be over before it goes on."""
        stages, between = self._arrivals.stages, self._arrivals.between
        if not self._next:
            at += self._arrivals.begin_s
        while self._next < len(stages):
            stage = stages[self._next]
            left = sum(stage.count(sender.share) for sender in self._senders)
            run = _Run(self._next, stage, at, left)
            self._next += 1
            yield from merge(*(self._first(sender, run) for sender in self._senders), key=_TIME)
            if between.drain and left:
                return
            at = run.ends_at + between.pause_s

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        """The next turn; or the user's next script; or, after the last of a stage, the next stage."""
        run, sender, script = self._open.pop(arrival.number)
        if script:
            return (self._send(script, sender, run, at + sender.think_s),)
        stage = run.stage
        if isinstance(stage, UserStage):
            # Who is refused at once and asks again at once would stop time: clients back off.
            think_s = stage.think_s if at > arrival.at else max(stage.think_s, BACKOFF_S)
            if at + think_s < run.ends_at:
                return (self._send(sender.script(), sender, run, at + think_s),)
        run.left -= 1
        if run.left or not self._arrivals.between.drain:
            return ()
        return self.begin(max(at, run.ends_at) + self._arrivals.between.pause_s)

    def _first(self, sender: Sender, run: _Run) -> Iterator[Arrival]:
        offsets_s = run.stage.offsets(self._arrivals.pattern, sender.share, sender.times)
        mine_s = self._part.take(offsets_s, sender.begun)
        sender.begun += len(offsets_s)
        for offset_s in mine_s:
            yield self._send(sender.script(), sender, run, run.begins_at + offset_s)

    def _send(self, script: list[Arrival], sender: Sender, run: _Run, at: float) -> Arrival:
        arrival = script.pop()
        arrival.at, arrival.stage, arrival.warm_up = at, run.number, run.stage.warm_up
        self._open[arrival.number] = (run, sender, script)
        return arrival
