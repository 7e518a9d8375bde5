"""Workloads: a file that says who asks what and when, read and checked as the configuration is.

`traffic` lists classes of requests; `arrivals` says when those come that have no times of their own. One
workload is one random number: what is sent follows from the file and the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import TEXT, VERSION
from maitred.config.raw import ConfigError, Raw, read_file
from maitred.config.reader import Reader
from maitred.config.setting import Forms, Listed, Setting
from maitred.config.units import quote
from maitred.sim.kinds import SHARE
from maitred.sim.senders import IDS_BITS, WHOLE, Mix, Part
from maitred.sim.stages import Arrivals, RateStage
from maitred.sim.traces import Trace, TraceFile, read_trace
from maitred.sim.traffic import Generated, Replayed, Traffic


class File(Struct, frozen=True):
    """A workload file."""

    version: Annotated[int, Setting("version", VERSION, "Version of this format.")]
    traffic: Annotated[
        tuple[Traffic, ...],
        Setting(
            "traffic",
            Listed(
                Forms((Replayed, Generated), "a class with name, model, and prompts and output or a trace"),
                length_min=1,
            ),
            "The classes of requests.",
        ),
    ]
    arrivals: Annotated[
        Arrivals | None,
        Setting("arrivals", Arrivals, "When requests come, of all classes without their own.", "none"),
    ] = None
    counted: Annotated[
        float,
        Setting("counted", SHARE, "Part of an engine's output tokens that the clients' own count finds."),
    ] = 1.0


class Spec(Struct, frozen=True):
    """A workload as its file says, with the traces it names, by class."""

    file: File
    traces: dict[str, Trace]

    def workload(self, rng: Random, part: Part = WHOLE) -> Mix:
        """The workload, ready to begin; one number is drawn from `rng`, and all else follows from that."""
        return Mix(self.file.traffic, self.file.arrivals, self.traces, rng, part)

    @property
    def counted(self) -> float:
        """The part, 0 to 1, of an engine's output tokens that clients count."""
        return self.file.counted

    def rates(self) -> dict[int, float]:
        """Requests per second of the common stages with one rate that reports show, by their number."""
        stages = self.file.arrivals.stages if self.file.arrivals else ()
        return {
            number: stage.rate
            for number, stage in enumerate(stages)
            if isinstance(stage, RateStage) and stage.rate_to == stage.rate and not stage.warm_up
        }

    @property
    def is_ladder(self) -> bool:
        """Whether it is one rate after another, each over before the next."""
        common = self.file.arrivals
        return common is not None and common.between.drain and len(self.rates()) > 1

    def longest_tokens(self) -> dict[str, int]:
        """By model, the most that a prompt and its answer can be together."""
        longest: dict[str, int] = {}
        for kind in self.file.traffic:
            for model, tokens in self._sizes(kind):
                longest[model] = max(tokens, longest.get(model, 0))
        return longest

    def _sizes(self, kind: Traffic) -> Iterator[tuple[str, int]]:
        if isinstance(kind, Generated):
            yield kind.model, kind.prompts.longest_tokens(kind.answers)
        else:
            for row in self.traces[kind.name].rows:
                yield kind.model or row.model, row.prompt_tokens + row.output_tokens


def load_workload(path: Path, *, strict: bool = False) -> Spec:
    """Read a workload file and its traces; ConfigError lists everything that is wrong.

    `strict` refuses traces with rows that cannot be used.
    """
    root, errors = read_file(path)
    file = Reader(errors).section(File, root)
    if errors or file is None:
        raise ConfigError(errors)
    written = root.each("traffic")
    traces: dict[str, Trace] = {}
    for index, (kind, raw) in enumerate(zip(file.traffic, written, strict=True)):
        if isinstance(kind, Replayed):
            try:
                traces[kind.name] = _trace(kind.trace, path.parent, index, strict=strict)
            except ConfigError as error:
                errors += [f"{raw.where}.trace: {line}" for line in error.errors]
    errors += _contradictions(root, file)
    errors += _unnamed_models(file, written, traces)
    if errors:
        raise ConfigError(errors)
    return Spec(file, traces)


def _trace(wanted: TraceFile, folder: Path, index: int, *, strict: bool) -> Trace:
    """The trace of the class at this index. Its pieces are numbered as those of classes that are made up."""
    first_id = index << IDS_BITS
    return read_trace(folder / wanted.file, wanted.format, wanted.rows_max, strict=strict, first_id=first_id)


def _contradictions(root: Raw, file: File) -> Iterator[str]:
    """What is wrong between classes that are each right."""
    names: set[str] = set()
    common: list[Generated] = []
    for kind, raw in zip(file.traffic, root.each("traffic"), strict=True):
        if kind.name in names:
            yield f"{raw.where}.name: {quote(kind.name)} is already used; names must differ"
        names.add(kind.name)
        if not isinstance(kind, Generated):
            continue
        if kind.arrivals:
            if raw.at("share"):
                yield f"{raw.where}: share and arrivals are both set; leave one out"
            continue
        common.append(kind)
        if file.arrivals and not any(stage.count(kind.share) for stage in file.arrivals.stages):
            yield f"{raw.where}: its share of the arrivals is less than one request; write a larger one"
    if common and not file.arrivals:
        yield f"{root.where}: arrivals is missing; write when requests come, here or in each class"
    if file.arrivals and not common:
        yield f"{root.where}: arrivals is set, and each class has its own; leave it out"
    shares = sum(kind.share for kind in common)
    if common and abs(shares - 1) > 1e-6:
        yield f"{root.where}: the shares of the classes make {100 * shares:g}%; they must make 100%"


def _unnamed_models(file: File, written: list[Raw], traces: dict[str, Trace]) -> Iterator[str]:
    for kind, raw in zip(file.traffic, written, strict=True):
        rows = traces[kind.name].rows if kind.name in traces else []
        named = isinstance(kind, Replayed) and all(row.model for row in rows)
        if not kind.model and not named:
            yield f"{raw.where}: model is missing; write model: {TEXT.example}"
