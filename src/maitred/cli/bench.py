"""`maitred bench`: load on a server, and the truth about what its clients meet.

Only what `--help` needs is imported at the top; the rest comes when the command is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from maitred.app.bench import Plan
    from maitred.bench.report import Report
    from maitred.config.tree import Slo
    from maitred.sim.workload import Spec

T = TypeVar("T")
FILE = click.Path(path_type=Path, dir_okay=False, writable=True)
APIS = ("chat", "completions", "responses", "embeddings")
TOKENS = click.IntRange(1, 1_000_000)
INTERRUPTED = 130
"""The exit code of what Ctrl-C ended."""


@click.command()
@click.argument("url", required=False)
@click.option("--workload", metavar="FILE|trial", help="What is sent: a workload file, or the trial.")
@click.option("--slo", metavar="ttft=2s,tpot=50ms", help="What an answer must keep to be good.")
@click.option("--model", metavar="NAME", help="Ask for this model; else the workload's, or the only one.")
@click.option("--api", default="chat", show_default=True, type=click.Choice(APIS), help="By which API.")
@click.option("--rate", metavar="5/s", help="Without a file: requests sent per second.")
@click.option(
    "--duration", metavar="60s", help="Without a file: for how long. With --find-goodput: each probe."
)
@click.option(
    "--prompt-tokens",
    default=512,
    show_default=True,
    metavar="N",
    type=TOKENS,
    help="Without a file: how long prompts are.",
)
@click.option(
    "--output-tokens", default=128, show_default=True, metavar="N", type=TOKENS, help="And answers."
)
@click.option("--find-goodput", is_flag=True, help="Search for the highest rate that keeps the SLO.")
@click.option(
    "--compare", nargs=2, metavar="A.json B.json", help="Is B better than A? Several runs a side: a,b c,d."
)
@click.option("--during", metavar="CMD", help="Run this shell command in the middle of the load.")
@click.option(
    "--engine", "engines", multiple=True, metavar="URL", help="An engine behind URL, to ask where time goes."
)
@click.option("--any-length", is_flag=True, help="Answers end where the model ends them: no ignore_eos.")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the API key.")
@click.option(
    "--workers", default=1, show_default=True, metavar="N", type=click.IntRange(1, 64), help="Processes."
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(0),
    help="What is random follows from it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every request included.")
@click.option("--csv", type=FILE, help="Write a row for each request into this file.")
@click.option("--html", type=FILE, help="Write a page with plots into this file.")
@click.option("--out", type=FILE, help="Write the JSON into this file, for --compare.")
@click.option("--quiet", is_flag=True, help="Print nothing while it runs.")
def bench(**options: Any) -> None:
    """Measure the server at URL under load.

    Any server that speaks OpenAI's API. Requests are sent when the workload says so, whether answers come or
    not, and times count from then. Percentiles come with 95 % confidence intervals, goodput is of all
    requests sent, and when this program itself was too slow, that is said first (docs/measuring.md).

    \b
      maitred bench http://gpu1:8000 --rate 5/s --duration 60s --slo ttft=2s,tpot=50ms
      maitred bench http://gpu1:8000 --workload chat.yaml --html report.html --out before.json
      maitred bench http://gpu1:8000 --workload trial
      maitred bench http://gpu1:8000 --workload chat.yaml --slo ttft=2s,tpot=50ms --find-goodput
      maitred bench http://gpu1:8000 --workload chat.yaml --during 'kubectl rollout restart deploy/qwen'
      maitred bench --compare before.json after.json

    A workload file is that of `maitred simulate` (docs/simulator.md). Ctrl-C ends the load and prints what
    there is.
    """
    with _errors():
        if options["compare"]:
            _compare(**options)
        elif not options["url"]:
            raise click.UsageError("give the URL of a server, or two files to --compare; --help shows how")
        else:
            _measure(**options)


def _measure(find_goodput: bool, quiet: bool, **options: Any) -> None:
    """Measure, then tell of it."""
    from maitred.app import bench as app
    from maitred.bench import report

    plan, probe_s = _plan(**options)
    if find_goodput and plan.slo == type(plan.slo)():
        raise click.UsageError("--find-goodput needs limits to keep; write --slo ttft=2s,tpot=50ms")
    if find_goodput and plan.during:
        raise click.UsageError("--find-goodput and --during do not go together; leave one out")
    for name in ("out", "csv", "html"):
        if options[name] and not options[name].parent.is_dir():
            raise click.UsageError(f"--{name}: there is no folder {options[name].parent}")
    quiet = quiet or options["as_json"]
    plan, facts = app.prepare(plan)
    if find_goodput:
        document = app.search(plan, facts, sys.stderr, probe_s, quiet=quiet)
    else:
        document = app.measure(plan, facts, sys.stderr, quiet=quiet)
    encoded = report.to_json(document)
    if options["out"]:  # files first: whoever reads the rest may stop reading
        options["out"].write_bytes(encoded)
    if options["csv"]:
        options["csv"].write_text(report.to_csv(document.run))
    if options["as_json"]:
        click.echo(encoded)
    _show(report.of_run(document), **options)
    if document.ended_early:
        sys.exit(INTERRUPTED)


def _plan(url: str, slo: str | None, duration: str | None, **options: Any) -> tuple[Plan, float]:
    """What is to be measured, and for how long each rate of a search."""
    from maitred.app.bench import Plan
    from maitred.bench.forms import FORMS
    from maitred.bench.targets import Target, parse
    from maitred.config.units import parse_duration

    duration_s = _flag("--duration", parse_duration, duration or "30s")
    name, spec, models = _workload(duration_s, **options)
    place, prefix = parse(url)
    target = Target(
        place,
        prefix,
        FORMS[options["api"]],
        options["model"] or "",
        _key(options["key_env"]),
        ignore_eos=not options["any_length"],
    )
    plan = Plan(
        target=target,
        name=name,
        spec=spec,
        models=models,
        slo=_flag("--slo", _slo, slo or ""),
        seed=options["seed"],
        workers=options["workers"],
        engines=options["engines"],
        during=options["during"] or "",
    )
    return plan, duration_s


def _workload(
    duration_s: float,
    workload: str | None,
    rate: str | None,
    prompt_tokens: int,
    output_tokens: int,
    **_: Any,
) -> tuple[str, Spec, tuple[str, ...]]:
    """What is sent: its name, and the models it asks for, none where any will do."""
    from maitred.bench import trial
    from maitred.sim.kinds import parse_rate
    from maitred.sim.workload import load_workload

    if (workload is None) == (rate is None):
        raise click.UsageError("give either --workload FILE (or trial), or --rate 5/s --duration 60s")
    if workload == "trial":
        return workload, trial.trial(), ()
    if workload is not None:
        path = Path(workload)
        spec = load_workload(path)
        return path.stem, spec, tuple(spec.longest_tokens())

    def quick(text: str) -> Spec:
        return trial.quick(parse_rate(text), duration_s, prompt_tokens, output_tokens)

    return f"{prompt_tokens} to {output_tokens} tokens", _flag("--rate", quick, str(rate)), ()


def _slo(text: str) -> Slo:
    """The limits in `ttft=2s,tpot=50ms`."""
    from maitred.config.tree import Slo
    from maitred.config.units import parse_duration

    limits: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        name, equals, limit = word.partition("=")
        if name not in {"ttft", "tpot"} or not equals:
            raise ValueError(f"{word!r} is no limit; write ttft=2s,tpot=50ms")
        limits[f"{name}_s"] = parse_duration(limit)
        if not limits[f"{name}_s"]:
            raise ValueError(f"{word!r} cannot be kept; write more than zero")
    return Slo(**limits)


def _flag(name: str, parse: Callable[[str], T], text: str) -> T:
    """A flag's value; what is wrong with it is told by its name."""
    try:
        return parse(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error


def _key(variable: str | None) -> str:
    if variable is None:
        return ""
    if not (key := os.environ.get(variable)):
        raise click.UsageError(f"--key-env: there is no {variable} in the environment")
    return key


def _compare(compare: tuple[str, str], **options: Any) -> None:
    """Tell whether one side is better than another."""
    from maitred.bench import report, verdict

    a, b = ([report.read(Path(name)) for name in side.split(",")] for side in compare)
    verdicts = verdict.compare(a, b)
    if options["as_json"]:
        click.echo(report.verdicts_json(verdicts))
    _show(report.of_sides(a, b, compare, verdicts, verdict.doubts(a, b)), **options)


def _show(report: Report, as_json: bool, html: Path | None, **_: Any) -> None:
    """Print it where JSON was not asked for, and write its page."""
    from maitred.bench import table
    from maitred.bench.report import html as page

    if not as_json:
        table.show(report, sys.stdout)
    if html is not None:
        html.write_text(page(report))


@contextmanager
def _errors() -> Iterator[None]:
    """What is wrong with what was given, or with the server: exit 2, a line for each."""
    from maitred.bench.report import ReportError
    from maitred.bench.targets import TargetError
    from maitred.config.raw import ConfigError

    try:
        yield
    except (ConfigError, ReportError, TargetError) as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
