"""`maitred bench`: load on a server, and the truth about what its clients meet.

Only what `--help` needs is imported at the top; the rest comes when the command is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from maitred.app.bench import Plan
    from maitred.bench.report import Report
    from maitred.config.tree import Slo
    from maitred.sim.workload import Spec

T = TypeVar("T")
FILE = click.Path(path_type=Path, dir_okay=False, writable=True)
APIS = ("chat", "completions", "responses", "embeddings")
FILES = ("out", "csv", "html")
TOKENS = click.IntRange(1, 1_000_000)
OF_COMPARISON = {"compare", "as_json", "html", "quiet"}
INTERRUPTED = 130
"""The exit code of what Ctrl-C ended before there was anything to tell."""


@click.command()
@click.pass_context
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
def bench(context: click.Context, /, **options: Any) -> None:
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

    A workload file is that of `maitred simulate` (docs/simulator.md). Ctrl-C ends the load, and the
    command, and prints what there is; so does SIGTERM. A second one ends at once.
    """
    with _errors():
        _refuse_idle(context)
        _check_files(options)
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
    from maitred.bench.interrupt import Interrupt

    plan, probe_s = _plan(**options)
    if find_goodput and plan.slo == type(plan.slo)():
        raise click.UsageError("--find-goodput needs limits to keep; write --slo ttft=2s,tpot=50ms")
    if find_goodput and plan.during:
        raise click.UsageError("--find-goodput and --during do not go together; leave one out")
    quiet = quiet or options["as_json"]
    plan, facts = app.prepare(plan)
    with Interrupt() as interrupt:
        if find_goodput:
            document = app.search(plan, facts, sys.stderr, probe_s, quiet=quiet, stopped=interrupt.heard)
        else:
            document = app.measure(plan, facts, sys.stderr, quiet=quiet, stopped=interrupt.heard)
        told, encoded = report.of_run(document), report.to_json(document)
        files = {
            "out": lambda: encoded,
            "csv": lambda: report.to_csv(document.run).encode(),
            "html": lambda: report.html(told).encode(),
        }
        _tell(told, encoded, files, options)
    sys.exit(interrupt.code)


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
        engines=tuple(_flag("--engine", _engine, engine) for engine in options["engines"]),
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
        if f"{name}_s" in limits:
            raise ValueError(f"{name} is there twice; leave one out")
        limits[f"{name}_s"] = parse_duration(limit)
        if not limits[f"{name}_s"]:
            raise ValueError(f"{word!r} cannot be kept; write more than zero")
    return Slo(**limits)


def _engine(text: str) -> str:
    """An engine's URL."""
    from maitred.bench.targets import parse

    url, path = parse(text)
    if path:
        raise ValueError(f"{text!r} has a path; write http://host:port, whose /metrics is asked")
    return url


def _flag(name: str, parse: Callable[[str], T], text: str) -> T:
    """A flag's value; what is wrong with it is told by its name."""
    from maitred.bench.targets import TargetError

    try:
        return parse(text)
    except (ValueError, TargetError) as error:
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
    told = report.of_sides(a, b, compare, verdicts, verdict.doubts(a, b))
    _tell(told, report.verdicts_json(verdicts), {"html": lambda: report.html(told).encode()}, options)


def _tell(
    report: Report, encoded: bytes, files: Mapping[str, Callable[[], bytes]], options: Mapping[str, Any]
) -> None:
    """Write the files asked for, then print, for whoever reads that may stop. A full disk loses no report."""
    from maitred.bench import table

    failed: list[str] = []
    for name, content in files.items():
        if path := options[name]:
            try:
                path.write_bytes(content())
            except OSError as error:
                failed.append(f"--{name}: {path}: {error.strerror}")
    if options["as_json"]:
        click.echo(encoded)
    else:
        table.show(report, sys.stdout)
    if failed:
        raise click.UsageError("\n".join(failed))


def _refuse_idle(context: click.Context) -> None:
    """Refuse what would have no effect: whoever wrote it believes it has one."""
    options = context.params
    given = {
        param.name or "": param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        for param in context.command.params
        if context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    }
    for name, flag in given.items():
        if options[name] == "":
            raise click.UsageError(f"{flag} is empty; give it a value, or leave it out")
    for why, idle in _idle(given, options):
        for name in given.keys() & idle:
            raise click.UsageError(f"{given[name]} has no effect: {why}; leave it out")


def _idle(given: Iterable[str], options: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Why which options have no effect beside the others."""
    if options["compare"]:
        yield "--compare measures nothing", set(given) - OF_COMPARISON
    if options["workload"]:
        yield "--workload says how long prompts and answers are", {"prompt_tokens", "output_tokens"}
        if not options["find_goodput"]:
            yield "--workload says for how long", {"duration"}
    if options["api"] == "embeddings":
        yield "embeddings have no answers to end", {"any_length", "output_tokens"}


def _check_files(options: Mapping[str, Any]) -> None:
    """See that files can be written before anything is measured."""
    paths = [(name, options[name]) for name in FILES if options[name]]
    for name, path in paths:
        if not path.parent.is_dir():
            raise click.UsageError(f"--{name}: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise click.UsageError(f"--{name}: the folder {path.parent} cannot be written to")
    if len({path.absolute() for _, path in paths}) < len(paths):
        names = " and ".join(f"--{name}" for name, _ in paths)
        raise click.UsageError(f"{names} name the same file; each overwrites the other")


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
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read what is printed has read enough: click ends without a word
        raise
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise click.UsageError(f"{named}{error.strerror or error}") from error
