"""`maitred simulate`: what would happen if, in seconds, without an engine."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from maitred.app.simulations import Task
    from maitred.sim.run import Run

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group(invoke_without_command=True)
@click.option(
    "-c", "--config", "configs", type=FILE, multiple=True, help="Configuration; several: side by side."
)
@click.option("--workload", type=FILE, help="What comes: a workload file.")
@click.option(
    "--routing", "routings", multiple=True, metavar="POLICY", help="Route by this; several: side by side."
)
@click.option(
    "--profile", metavar="NAME", default="", help="The engine at every endpoint, instead of simulate.profile."
)
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, 64), help="Runs of each column."
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="The first run's seed.")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON; of a ladder, what it shows.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with plots into this file.")
@click.option("--strict", is_flag=True, help="Refuse a trace with bad rows.")
@click.pass_context
def simulate(context: click.Context, /, **options: Any) -> None:
    """Run a configuration against models of engines, in virtual time.

    The core that serves traffic decides; engines, clients and failures are models (docs/simulator.md). The
    same seed gives the same bytes. Several -c or --routing are put side by side.

    \b
      maitred simulate -c maitred.yaml --workload chat.yaml --profile h100-qwen3-32b
      maitred simulate -c a.yaml -c b.yaml --workload chat.yaml --seeds 4 --html report.html
      maitred simulate profiles
    """
    if context.invoked_subcommand is None:
        if not options["configs"] or options["workload"] is None:
            raise click.UsageError("give a configuration (-c) and a workload (--workload); --help shows how")
        _simulate(**options)


@simulate.command()
def profiles() -> None:
    """List the engines there are models of."""
    from maitred.sim.profiles import load, names

    for name in names():
        profile = load(name)
        tokens = profile.kv_blocks * profile.block_tokens * profile.ranks
        click.echo(
            f"{name:32} {profile.model} on {profile.gpu}, {tokens:,} tokens of KV cache, reads "
            f"{profile.step.prefill_tokens_per_s:,.0f} tokens/s"
        )


@simulate.command()
@click.argument("run", type=FILE)
@click.option(
    "--profile", "name", required=True, metavar="NAME", help="The engine that was measured, to start from."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the fitted profile into this file (*.yaml)."
)
def calibrate(run: Path, name: str, out: Path | None) -> None:
    """Fit a profile to a measured RUN of an engine, and say how well it foretells the run.

    One JSON object a line: request_id, input_toks, output_toks, arrival_time, queued_ts, first_token_ts and
    last_token_ts, in seconds. The first half is fitted, the second half judged. Where a profile's name is
    asked for, the file it is written into may be given.

    \b
      maitred simulate calibrate run.jsonl --profile h100-llama-3.1-8b --out ours.yaml
      maitred simulate -c maitred.yaml --workload chat.yaml --profile ours.yaml
    """
    from maitred.sim import calibrate as calibration
    from maitred.sim.measured import read_run
    from maitred.sim.profiles import load, write

    try:
        profile, measured = load(name), read_run(run)
        for complaint in measured.complaints:
            click.echo(complaint, err=True)
        requests, half = measured.requests, len(measured.requests) // 2
        with click.progressbar(length=100, label="fitting", file=sys.stderr) as bar:
            fitted = calibration.fit(
                requests, profile, slice(half), lambda done: bar.update(int(100 * done) - bar.pos)
            ).profile
        errors = calibration.judge(requests, fitted, slice(half, None))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    step = fitted.step
    click.echo(
        f"a step takes {1000 * step.base_s:.2f} ms + {1e6 * step.per_token_s:.4f} us a token of context; "
        f"prompts {step.prefill_tokens_per_s:,.0f} tokens/s"
    )
    click.echo(f"fitted to {half} requests; on the other {len(requests) - half} the model is off by")
    for label, off in (
        ("time per token, mean", errors.tpot_mean),
        ("time per token, each request, mean of |error|", errors.tpot_mape),
        ("time to first token, p50", errors.ttft_p50),
        ("time to first token, p90", errors.ttft_p90),
        ("end to end, mean", errors.e2e_mean),
    ):
        click.echo(f"  {label:48} {100 * off:+6.1f} %")
    if out is not None:
        write(calibration.named(fitted, out.stem, run.name), out)
        click.echo(f"the profile is {out}", err=True)


def _simulate(
    configs: Sequence[Path],
    workload: Path,
    routings: Sequence[str],
    profile: str,
    seeds: int,
    seed: int,
    as_json: bool,
    html: Path | None,
    strict: bool,
) -> None:
    from maitred.app.simulations import Task

    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise click.UsageError(f"cannot write {html}: give a file in a folder that exists")
    if len(set(configs)) < len(configs) or len(set(routings)) < len(routings):
        raise click.UsageError("the same column twice; leave one out")
    columns = [(config, routing) for config in configs for routing in routings or ("",)]
    tasks = [
        Task(_name(config, routing, len(configs)), config, workload, number, routing, profile, strict=strict)
        for config, routing in columns
        for number in range(seed, seed + seeds)
    ]
    with _errors():
        _print(tasks, as_json=as_json, html=html)


def _name(config: Path, routing: str, configs: int) -> str:
    """A column's name: what tells it from the others."""
    return " ".join(part for part in (str(config) if configs > 1 or not routing else "", routing) if part)


def _print(tasks: Sequence[Task], *, as_json: bool, html: Path | None) -> None:
    """Make the runs and say what they show."""
    from maitred.app import simulations
    from maitred.sim import report, summary, table

    names = list(dict.fromkeys(task.name for task in tasks))
    spec, warnings = simulations.look(tasks)
    for warning in warnings:
        click.echo(warning, err=True)
    rates = spec.rates()
    is_ladder = as_json and len(names) == 1 and spec.is_ladder
    yardsticks = simulations.yardsticks(tasks) if is_ladder else []
    runs = _made([*tasks, *yardsticks])
    columns = [[run for run in runs if run.name == name] for name in names]
    summaries = [summary.summarize(column) for column in columns]
    if is_ladder:
        click.echo(simulations.ladder_json(summaries[0], runs, spec))
    elif as_json:
        click.echo(summary.to_json(summaries))
    else:
        table.show(summaries, sys.stdout)
    if html is not None:
        try:
            html.write_text(report.html(summaries, columns, rates if len(rates) > 1 else None))
        except OSError as error:
            raise click.ClickException(f"cannot write {html}: {error.strerror}") from error
        click.echo(f"the report is {html}", err=True)


def _made(tasks: Sequence[Task]) -> list[Run]:
    """Make the runs, with a progress bar for each where somebody looks."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from maitred.app.simulations import run_all

    runs: dict[int, Run] = {}
    looks = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*looks, console=Console(stderr=True), transient=True) as progress:
        bars = [
            progress.add_task(f"{task.name} {task.kind or ''} seed {task.seed}", total=None) for task in tasks
        ]
        for news in run_all(tasks):
            progress.update(bars[news.task], completed=news.over)
            if news.run is not None:
                runs[news.task] = news.run
                progress.update(bars[news.task], total=news.over)
    return [runs[number] for number in range(len(tasks))]


@contextmanager
def _errors() -> Iterator[None]:
    """What is wrong with what was given: exit 2; what went wrong in a run: exit 1."""
    from maitred.app.simulations import WorkerDied
    from maitred.config.raw import ConfigError
    from maitred.sim.invariants import Violation
    from maitred.sim.simulate import SimulationError

    ends = {  # by default they would end this process alone, and leave those of the runs
        number: signal.signal(number, lambda number, _frame: sys.exit(128 + number))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except SimulationError as error:
        raise click.UsageError(str(error)) from error
    except WorkerDied as died:
        raise click.ClickException(str(died)) from died
    except Violation as violation:
        raise click.ClickException("\n".join([str(violation), *violation.__notes__])) from violation
    finally:
        for number, handler in ends.items():
            signal.signal(number, handler)
