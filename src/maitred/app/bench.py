"""One measurement from begin to end: is the server there, load on it, watched; then what all of it says.

Everything waits here in turn; the loops of a load are inside `workers.run`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import uvloop
from msgspec import Struct, structs

from maitred import __version__
from maitred.bench import spans, trial, workers
from maitred.bench.during import Command, course
from maitred.bench.limits import worth
from maitred.bench.live import View
from maitred.bench.load import LoadOptions, Progress
from maitred.bench.probes import Rung, Searched, rung
from maitred.bench.report import Document, document
from maitred.bench.saturation import Lookout
from maitred.bench.search import Search
from maitred.bench.suspicion import Doubt, verdict
from maitred.bench.targets import Facts, Target, preflight
from maitred.config.tree import Slo
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.seams import Sockets
from maitred.net.sweep import Sweep
from maitred.sim.stages import REQUESTS_MAX
from maitred.sim.workload import Spec

PROBE_S_MAX = 600.0
"""A rate so low that its requests take longer is not tried: no server of use is that slow."""
TRACED_TOKENS_MAX = 2_000_000
"""Of an expected run whose every read is kept, for the distribution of gaps: 100 MB."""


class Plan(Struct, frozen=True):
    """What is to be measured.

    `models` are those the workload asks for; none: the server's only one. `engines` are URLs whose metrics
    tell where time goes; else the server's do. `during`: a shell command for the middle.
    """

    target: Target
    name: str
    spec: Spec
    models: tuple[str, ...]
    slo: Slo
    seed: int = 1
    workers: int = 1
    engines: tuple[str, ...] = ()
    during: str = ""


def prepare(plan: Plan) -> tuple[Plan, Facts]:
    """The plan with its model settled, and what the server says of itself. Raises TargetError."""
    target = plan.target
    for model in (target.model,) if target.model else plan.models or ("",):
        facts = uvloop.run(preflight(target, model))
    if not plan.models:
        plan = structs.replace(plan, target=structs.replace(target, model=facts.model))
    return plan, facts


def _options(plan: Plan, facts: Facts) -> LoadOptions:
    return LoadOptions(
        workload=plan.name,
        kinds=[kind.name for kind in plan.spec.file.traffic],
        seed=plan.seed,
        slo_ttft_s=plan.slo.ttft_s,
        slo_tpot_s=plan.slo.tpot_s,
        rates=plan.spec.rates(),
        salt=time.time_ns(),  # nothing of a run before is in the server's cache
        bytes_per_token=facts.bytes_per_token,
        trace=trial.tokens(plan.spec) <= TRACED_TOKENS_MAX,
    )


async def _look(engines: Sequence[str]) -> spans.Totals | None:
    sweep = Sweep(time.monotonic)
    sweep.start()
    pool = Pool(Sockets(), sweep, Patience())
    try:
        return await spans.look(pool, engines)
    finally:
        pool.close()
        sweep.stop()


def _never() -> bool:
    return False


def measure(
    plan: Plan,
    facts: Facts,
    out: TextIO,
    *,
    quiet: bool = False,
    cut_short: bool = False,
    stopped: Callable[[], bool] = _never,
) -> Document:
    """Run the workload once, or until `stopped`, which is asked four times a second. Raises TargetError.

    `cut_short`: end it as soon as the server is seen to get more than it can do.
    """
    last_s = trial.duration_s(plan.spec)
    lookout = Lookout(last_s)
    engines = plan.engines or (plan.target.url,)
    options = _options(plan, facts)
    before = uvloop.run(_look(engines))
    title = f"{plan.name} at {plan.target.url}"
    view = View(out, title, last_s, quiet=quiet)
    with Command(plan.during, last_s / 2) as command:

        def watch(progress: Progress) -> bool:
            view.draw(progress)
            command.tick()
            return stopped() or (cut_short and lookout.look(progress))

        with view:
            run = workers.run(workers.Task(plan.spec, plan.target, options), plan.workers, watch)
        if command.runs and not quiet:
            out.write("the load is over, and the command is not; Ctrl-C ends it\n")
        happening = command.end(stopped)
    run.version = __version__
    run.rates_of, run.apart = trial.rates_of(plan.spec), trial.apart(plan.spec)
    if lookout.overloaded:  # it was not Ctrl-C that ended it
        run.overloaded, run.ended_early = True, False
    told = spans.between(before, uvloop.run(_look(engines)))
    made = document(run, told, None if happening is None else course(run, happening))
    made.doubts.extend(Doubt(text) for text in _lacking(plan, made, traced=options.trace))
    return made


def _lacking(plan: Plan, made: Document, *, traced: bool) -> Iterator[str]:
    """What was asked for, or is always told, and is not in the report."""
    if plan.during and made.during is None:
        yield "the load was over before its middle, so the command was not run"
    if plan.engines and made.spans is None:
        yield "the engines given did not tell where time goes (vLLM's /metrics do), or were restarted"
    if plan.target.form.stream and not traced:
        yield f"there is no ITL: this workload's longest answers have over {TRACED_TOKENS_MAX:,} tokens"


def search(
    plan: Plan,
    facts: Facts,
    out: TextIO,
    probe_s: float,
    *,
    quiet: bool = False,
    stopped: Callable[[], bool] = _never,
) -> Document:
    """Search the highest rate that keeps the SLO, each rate measured for so long.

    That is longer where it makes few requests, and shorter where it makes too many for a run. The run told of
    is that of the rate found, else the last; of the others only their rungs are kept. Raises ConfigError
    where there is no rate to change, and TargetError.
    """
    seeking = Search(trial.first_rate(plan.spec))
    best: Document | None = None
    rungs: dict[float, Rung] = {}
    faults: list[Doubt] = []
    ended_early, probes = False, 0
    while (rate := seeking.next_rate()) is not None:
        last_s = max(probe_s, 2 * seeking.requests_min / rate)
        if rungs and last_s > PROBE_S_MAX:
            break
        last_s = min(last_s, REQUESTS_MAX / rate)
        # Another seed for each: a rate that is probed again must be new evidence.
        spec = trial.at_rate(plan.spec, rate, last_s)
        probe_plan = structs.replace(plan, spec=spec, seed=plan.seed + probes)
        probed = measure(probe_plan, facts, out, quiet=quiet, cut_short=True, stopped=stopped)
        run = probed.run
        probes += 1
        faults += [Doubt(f"at {rate:.3g}/s {doubt.text}", own=True) for doubt in probed.doubts if doubt.own]
        ended_early = run.ended_early
        if ended_early:
            break
        shots = run.measured()
        hits = list(map(run.good, shots))
        worths = worth(hits, [math.inf if shot.ttft_s is None else shot.ttft_s for shot in shots])
        probe = seeking.told(rate, len(hits), sum(hits), worths, overloaded=run.overloaded)
        rungs[rate] = rung(rate, run, probed.figures.whole)
        if rate == seeking.found().holds:
            best = probed
        if not quiet:
            cut = ", cut short, for the server got more than it can do" if run.overloaded else ""
            out.write(f"{rate:.3g}/s: {probe.good:,} of {probe.attempted:,} were good: {probe.said}{cut}\n")
    found = seeking.found()
    shown = best or probed
    # The client's faults at any rate decide a search; of the run shown, what else there is.
    doubts = faults + [doubt for doubt in shown.doubts if not doubt.own]
    searched = Searched(found, [rungs[probe.rate] for probe in found.probes], ended_early)
    return structs.replace(shown, verdict=verdict(doubts), doubts=doubts, goodput=searched)
