"""The loads that `routing.py` compares policies under, and what is kept of a run: plain figures.

A load can be played at several levels, by several policies and with several seeds. One seed sends the same
requests at the same times to each policy.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from maitred.config.cache import Cache, Events
from maitred.config.load import load
from maitred.config.simulate import Engine, Fault
from maitred.config.tree import Config, Slo
from maitred.core.outcome import Outcome
from maitred.sim import profiles
from maitred.sim.ladder import ORACLE
from maitred.sim.run import Run
from maitred.sim.simulate import routed, simulate
from maitred.sim.summary import StageRow, ladder, summarize
from maitred.sim.traces import TraceFile, read_trace
from maitred.sim.traffic import Generated, Replayed
from maitred.sim.workload import File, Spec, load_workload

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "published-fleet"
PRECISE = "default, precise"
"""The default policy where engines tell what is in their caches."""
FAST, SLOW = "h100-qwen3-32b", "a100-qwen3-32b"
BLOCK_TOKENS = 64
CONTEXT_TOKENS = 131_072
"""What the engines take here: the longest of Mooncake's conversations have 126,527 tokens."""
LOST_AT_S = 150.0
WAIT_S = 3600.0
"""Nobody is refused because he would wait long: what a policy costs is to be seen in the times."""
GOAL = Slo(2.0, 0.1)
"""What counts as a good answer. The gateway is not told, or it would refuse what comes too late."""


class Result(Struct, frozen=True):
    """One run: its figures by name, its stages where it is a ladder, and what became of no answer."""

    figures: dict[str, float]
    stages: tuple[StageRow, ...]
    lost: int


class Ladder(Struct, frozen=True):
    """The published ladder of rates, its prompts in one of two orders."""

    name: str
    title: str
    order: str
    seeds: int = 8
    levels: tuple[float, ...] = (1.0,)

    def run(self, policy: str, level: float, seed: int) -> Result:
        """One run, of a policy or the oracle."""
        del level
        spec, config = _ladder(self.order), house(policy)
        yardstick = ORACLE if policy == ORACLE else ""
        return _result(simulate(policy, config, spec, seed, yardstick), spec)


class Replay(Struct, frozen=True):
    """A recorded load at several speeds; the first so many `rows` of it.

    `engines` is the folder with their profiles. `slow`: so many of the eight are slower ones. `lost`: one of
    them dies on the way.
    """

    name: str
    title: str
    file: Path
    engines: Path
    levels: tuple[float, ...]
    rows: int = 1_000_000
    slow: int = 0
    lost: bool = False
    seeds: int = 5

    def run(self, policy: str, level: float, seed: int) -> Result:
        """One run at this speed."""
        spec = _replay(self.file, self.rows, level)
        config = _long(house(policy, self.slow, lost=self.lost), self.engines)
        return _result(simulate(policy, config, spec, seed), spec)

    def rate(self, level: float) -> float:
        """Requests a second at this speed, in the mean."""
        rows = _replay(self.file, self.rows, level).traces[self.file.stem].rows
        return level * len(rows) / rows[-1].at_s


def loads(traces: Path, folder: Path) -> Iterator[Ladder | Replay]:
    """All there are. The traces lie in one folder, packed or not; what has to be made goes into another."""
    for name in (FAST, SLOW):
        _write_long(name, folder)
    yield Ladder("cycle", "The published ladder, prompts in turn", "cycle")
    yield Ladder("uniform", "The published ladder, prompts at random", "uniform")
    talk = _unpacked(traces, "mooncake_fast25_conversation_trace.jsonl", folder)
    made = _unpacked(traces, "mooncake_fast25_synthetic_trace.jsonl", folder)
    code = _unpacked(traces, "azure_llm_2023_code.csv", folder)
    yield Replay("conversation", "Mooncake, conversations", talk, folder, (1.85, 2.1, 2.2, 2.3))
    yield Replay("synthetic", "Mooncake, synthetic", made, folder, (1.0, 1.3, 1.6), seeds=1)
    yield Replay("code", "Azure, code", code, folder, (2.0, 4.0, 6.0), seeds=1)
    yield Replay("mixed", "A mixed fleet", talk, folder, (1.1, 1.25, 1.4), rows=4000, slow=4)
    yield Replay("lost", "A fleet that loses a node", talk, folder, (1.4, 1.6, 1.85), rows=4000, lost=True)


def house(policy: str, slow: int = 0, *, lost: bool = False) -> Config:
    """The published fleet behind a gateway with this policy, flow control as it comes, and much patience."""
    config = load(EXAMPLE / "fleet.yaml", {})
    (model,) = config.models
    queue = structs.replace(model.queue, wait_s=WAIT_S, requests_max=1_000_000, bytes_max=1 << 40)
    model = structs.replace(model, saturation="auto", cap=None, queue=queue, slo=Slo())
    if policy == PRECISE:
        model = structs.replace(model, tokens="engine", cache=Cache(events=Events()))
    urls = model.endpoints
    assert isinstance(urls, tuple)
    others = tuple(Engine(url, SLOW) for url in urls[len(urls) - slow :])
    faults = (Fault(LOST_AT_S, urls[0], "crash"),) if lost else ()
    there = structs.replace(config.simulate, engines=others, faults=faults)
    config = structs.replace(config, models=(model,), simulate=there)
    return routed(config, "default") if policy in {PRECISE, ORACLE} else routed(config, policy)


def _long(config: Config, folder: Path) -> Config:
    """The same with the engines in this folder."""
    there = config.simulate
    others = tuple(structs.replace(each, profile=f"{folder / each.profile}.yaml") for each in there.engines)
    there = structs.replace(there, profile=f"{folder / FAST}.yaml", engines=others)
    return structs.replace(config, simulate=there)


def _write_long(name: str, folder: Path) -> None:
    """A known engine that takes longer prompts, with the block size that all here have."""
    known = profiles.load(name)
    blocks = known.kv_blocks * known.block_tokens // BLOCK_TOKENS
    changed = {"context_tokens_max": CONTEXT_TOKENS, "kv_blocks": blocks, "block_tokens": BLOCK_TOKENS}
    profiles.write(structs.replace(known, **changed), folder / f"{name}.yaml")


@cache
def _ladder(order: str) -> Spec:
    spec = load_workload(EXAMPLE / "ladder.yaml")
    (kind,) = spec.file.traffic
    assert isinstance(kind, Generated)
    kind = structs.replace(kind, prompts=structs.replace(kind.prompts, order=order))
    return structs.replace(spec, file=structs.replace(spec.file, traffic=(kind,)))


@cache
def _replay(file: Path, rows: int, speed: float) -> Spec:
    """The trace, but for what no engine takes."""
    trace = read_trace(file, rows_max=rows)
    short = [row for row in trace.rows if row.prompt_tokens + row.output_tokens <= CONTEXT_TOKENS]
    kind = Replayed(name=file.stem, model="qwen3-32b", trace=TraceFile(file, speed=speed))
    return Spec(File(1, (kind,)), {file.stem: structs.replace(trace, rows=short)})


def _unpacked(folder: Path, name: str, into: Path) -> Path:
    """The file, unpacked where only a packed one is there."""
    if (folder / name).exists():
        return folder / name
    path = into / name
    path.write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
    return path


def _result(run: Run, spec: Spec) -> Result:
    """What is kept of it."""
    summary = summarize([structs.replace(run, slos={"qwen3-32b": GOAL})])
    figures = {name: figure.mean for name, figure in summary.whole.figures.items()}
    lost = sum(record.outcome is not Outcome.COMPLETED for record in run.records)
    return Result(figures, tuple(ladder(summary, spec.rates())), lost)
