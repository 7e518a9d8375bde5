"""Workloads that need no file: the trial, and the quick form of a rate and two lengths; and how to change one.

The trial is a file beside this module, written as users write theirs.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from maitred.config.raw import ConfigError
from maitred.sim.lengths import Fixed
from maitred.sim.prompts import Alone
from maitred.sim.stages import Arrivals, RateStage, UserStage
from maitred.sim.traffic import Generated
from maitred.sim.workload import File, Spec, load_workload

TRIAL = Path(__file__).with_name("trial.yaml")
WARM_UP = 0.2
"""Of a probe's duration: what a rate is let run before it is measured, for an empty server is a fast one."""


def trial() -> Spec:
    """Short chat, long documents and continuing conversations at a rising rate."""
    return load_workload(TRIAL)


def quick(rate: float, duration_s: float, prompt_tokens: int, output_tokens: int) -> Spec:
    """One class of prompts that share nothing, at one rate (requests/s); ValueError where that sends nothing."""
    prompts = Alone(Fixed(prompt_tokens))
    kind = Generated(name="quick", model="default", prompts=prompts, output=Fixed(output_tokens))
    stages = (RateStage(rate, duration_s),)
    return Spec(File(1, (kind,), Arrivals(stages)), {})


def for_model(spec: Spec, model: str) -> Spec:
    """The same workload, all of it asking for this model."""
    traffic = tuple(structs.replace(kind, model=model) for kind in spec.file.traffic)
    return Spec(structs.replace(spec.file, traffic=traffic), spec.traces)


def at_rate(spec: Spec, rate: float, duration_s: float) -> Spec:
    """The same mix of classes at one steady rate (requests, or conversations, begun per second)."""
    arrivals = steady(spec)
    stages = (
        RateStage(rate, max(duration_s * WARM_UP, 1 / rate), warm_up=True),
        RateStage(rate, duration_s),
    )
    changed = structs.replace(arrivals, stages=stages, begin_s=0.0)
    return Spec(structs.replace(spec.file, arrivals=changed), spec.traces)


def steady(spec: Spec) -> Arrivals:
    """The arrivals that a search for a rate can change; ConfigError where the workload has none such."""
    arrivals = spec.file.arrivals
    own = [kind.name for kind in spec.file.traffic if not isinstance(kind, Generated) or kind.arrivals]
    if own or arrivals is None:
        message = f"--find-goodput changes the common rate, and {', '.join(own)} has arrivals of its own"
        raise ConfigError([message])
    if any(isinstance(stage, UserStage) for stage in arrivals.stages):
        raise ConfigError(["--find-goodput needs stages of a rate; this workload has stages of users"])
    return arrivals


def duration_s(spec: Spec) -> float:
    """How long the workload sends, if nothing waits for answers: the longest of its arrivals and traces."""
    all_arrivals = [spec.file.arrivals]
    lasts_s = [0.0]
    for kind in spec.file.traffic:
        if isinstance(kind, Generated):
            all_arrivals.append(kind.arrivals)
        elif rows := spec.traces[kind.name].rows:
            lasts_s.append(rows[-1].at_s / kind.trace.speed)
    for arrivals in filter(None, all_arrivals):
        lasts_s.append(arrivals.begin_s + sum(stage.duration_s for stage in arrivals.stages))
    return max(lasts_s)


def warm_up(spec: Spec) -> tuple[int, ...]:
    """The numbers of the stages that figures leave out."""
    stages = spec.file.arrivals.stages if spec.file.arrivals else ()
    return tuple(number for number, stage in enumerate(stages) if stage.warm_up)
