"""Workloads that need no file: the trial, and the quick form of a rate and two lengths; and what changes one.

The trial is a file beside this module, written as users write theirs.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from maitred.config.raw import ConfigError
from maitred.sim.lengths import Fixed
from maitred.sim.prompts import Alone, Conversations
from maitred.sim.stages import Arrivals, RateStage, Stage, UserStage
from maitred.sim.traffic import Generated
from maitred.sim.workload import File, Spec, load_workload

TRIAL = Path(__file__).with_name("trial.yaml")
WARM_UP = 0.2
"""Of a probe's duration: what a rate is let run before it is measured, for an empty server is a fast one."""


def trial() -> Spec:
    """Short chat, long documents and continuing conversations at a rising rate."""
    return load_workload(TRIAL)


def quick(rate: float, duration_s: float, prompt_tokens: int, output_tokens: int) -> Spec:
    """One class of prompts that share nothing, at one rate (requests/s); ValueError where there are none."""
    prompts = Alone(Fixed(prompt_tokens))
    kind = Generated(name="quick", model="default", prompts=prompts, output=Fixed(output_tokens))
    stages = (RateStage(rate, duration_s),)
    return Spec(File(1, (kind,), Arrivals(stages)), {})


def first_rate(spec: Spec) -> float:
    """The rate a search begins with; ConfigError where the workload has no common rate to change."""
    own = apart(spec)
    if own or spec.file.arrivals is None:
        raise ConfigError([f"a search changes the common rate, and {', '.join(own)} has arrivals of its own"])
    stage = spec.file.arrivals.stages[0]
    if isinstance(stage, UserStage):
        raise ConfigError(["a search changes a rate, and this workload has users; write {rate: 1/s, …}"])
    return stage.rate


def at_rate(spec: Spec, rate: float, duration_s: float) -> Spec:
    """The same mix of classes at one steady rate (requests, or conversations, begun per second)."""
    stages = (
        RateStage(rate, max(duration_s * WARM_UP, 1 / rate), warm_up=True),
        RateStage(rate, duration_s),
    )
    pattern = spec.file.arrivals.pattern if spec.file.arrivals else Arrivals(stages).pattern
    return Spec(structs.replace(spec.file, arrivals=Arrivals(stages, pattern)), spec.traces)


def duration_s(spec: Spec) -> float:
    """How long the workload sends, if nothing waits for answers: the longest of its arrivals and traces."""
    all_arrivals = [spec.file.arrivals]
    lasts_s = [0.0]
    for kind in spec.file.traffic:
        if isinstance(kind, Generated):
            all_arrivals.append(kind.arrivals)
        elif rows := spec.traces[kind.name].rows:
            lasts_s.append(rows[-1].at_s / kind.trace.speed)
    lasts_s += [_lasts_s(arrivals) for arrivals in all_arrivals if arrivals]
    return max(lasts_s)


def _lasts_s(arrivals: Arrivals) -> float:
    pauses_s = arrivals.between.pause_s * (len(arrivals.stages) - 1)
    return arrivals.begin_s + pauses_s + sum(stage.duration_s for stage in arrivals.stages)


def apart(spec: Spec) -> tuple[str, ...]:
    """The classes with arrivals of their own, or a trace: the common stages are not theirs."""
    return tuple(kind.name for kind in spec.file.traffic if not isinstance(kind, Generated) or kind.arrivals)


def rates_of(spec: Spec) -> str:
    """What the rates of the common stages are of: a conversation is begun once, and is many requests."""
    common = [kind for kind in spec.file.traffic if isinstance(kind, Generated) and not kind.arrivals]
    talks = {isinstance(kind.prompts, Conversations) for kind in common}
    names = {False: "requests", True: "conversations"}
    return " and ".join(names[talk] for talk in sorted(talks)) or names[False]


def tokens(spec: Spec) -> float:
    """About how many tokens the workload's answers have together, at most."""
    most = 0.0
    for kind in spec.file.traffic:
        if not isinstance(kind, Generated):
            most += sum(row.output_tokens for row in spec.traces[kind.name].rows)
        elif arrivals := kind.arrivals or spec.file.arrivals:
            share = 1.0 if kind.arrivals else kind.share
            scripts = sum(_scripts(stage) for stage in arrivals.stages)
            turns = kind.prompts.turns.tokens_max if isinstance(kind.prompts, Conversations) else 1
            most += share * scripts * turns * kind.answers.tokens_max
    return most


def _scripts(stage: Stage) -> float:
    """About how many requests, or conversations, a stage begins; users may begin one each second."""
    if isinstance(stage, UserStage):
        return stage.users * stage.duration_s / max(1.0, stage.think_s)
    return stage.count(1.0)
