"""The commands and their help. Each loads its own code only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maitred import __version__
from maitred.cli import bench, desk, keys, simulate, twin

if TYPE_CHECKING:
    from maitred.config.tree import Config

WAYS_TO_START = """\
nothing to serve. Ways to start:

  maitred serve http://gpu1:8000 http://gpu2:8000   in front of these engines
  maitred serve -c maitred.yaml                     from a file (./maitred.yaml is read by itself)
  maitred demo                                      two small engines on this machine, to try it out

docs/configuration.md says what a file may hold; `maitred config schema` says it to an editor."""

LABELS = {
    "listen.data": "flag --listen",
    "admin.listen": "flag --admin",
    "auth": "flag --auth",
    "log.format": "flag --log-format",
    "log.level": "flag --log-level",
    "journal.file": "flag --journal",
    "endpoints": "argument URL",
}

Options = dict[str, Any]
Command = Callable[..., Any]


def settings(command: Command) -> Command:
    """The flags that every serving command takes; each overrides one setting of the file."""
    flags = [
        click.option("--listen", "listen__data", metavar="HOST:PORT", help="Address of the API."),
        click.option("--admin", "admin__listen", metavar="HOST:PORT", help="Address of metrics and status."),
        click.option("--auth", metavar="none", help="Needed beyond loopback: `none` lets everybody in."),
        click.option("--log-format", "log__format", metavar="human|json", help="How log lines are written."),
        click.option("--log-level", "log__level", metavar="LEVEL", help="debug, info, warning or error."),
        click.option("--journal", "journal__file", metavar="FILE", help="Record every decision, for replay."),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="maitred")
def main() -> None:
    """The host stand of your LLM fleet: admits, queues, seats and streams in front of your own engines."""


@main.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Configuration file.")
@settings
def serve(urls: tuple[str, ...], path: Path | None, **flags: str | None) -> None:
    """Serve in front of engines that run already.

    Give their URLs, or a file with -c; without either ./maitred.yaml is read. Models, context lengths and
    engine kinds are learned from the engines. SIGTERM and Ctrl-C drain; a second one ends at once. SIGHUP
    reads the configuration again.

    \b
      maitred serve http://gpu1:8000 http://gpu2:8000
      curl http://127.0.0.1:8000/v1/models
    """
    if path is None and not urls:
        path = Path("maitred.yaml")
        if not path.exists():
            raise click.UsageError(WAYS_TO_START)
    from maitred.app.run import run

    def load() -> Config:
        return _load(path, {"endpoints": urls, **flags})

    with _config_errors():
        _exit_with(run(load(), load))


@main.command()
@settings
@click.option("--engines", default=2, show_default=True, type=click.IntRange(1, 8), help="How many engines.")
def demo(engines: int, **flags: str | None) -> None:
    """Serve two small real engines on this machine, to try everything without a GPU.

    Each is llama.cpp with SmolLM2-135M in a process of its own. Kill one and watch the other take over.
    """
    from maitred.app.demo import demo as run_demo
    from maitred.engines.llamacpp import MissingPart

    try:
        with _config_errors():
            _exit_with(run_demo(lambda urls: _load(None, {"endpoints": urls, **flags}), engines))
    except MissingPart as missing:
        raise click.ClickException(str(missing)) from missing


for command in (
    desk.endpoints,
    desk.explain,
    desk.findings,
    desk.reload,
    keys.keys,
    keys.db,
    simulate.simulate,
    twin.twin,
    bench.bench,
):
    main.add_command(command)


@main.group()
def config() -> None:
    """Look at the configuration."""


@config.command()
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Configuration file.")
@click.argument("urls", nargs=-1, metavar="[URL]...")
def show(path: Path | None, urls: tuple[str, ...]) -> None:
    """Print the whole configuration in force, defaults included, as a file that can be loaded."""
    from maitred.config.show import show as show_config

    default = Path("maitred.yaml")
    if path is None and not urls and default.exists():
        path = default
    with _config_errors():
        click.echo(show_config(_load(path, {"endpoints": urls})), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    import msgspec

    from maitred.config.show import schema as schema_of

    click.echo(msgspec.json.format(msgspec.json.encode(schema_of()), indent=2))


@main.command()
@click.argument("journal", type=click.File("rb"))
def replay(journal: Any) -> None:
    """Replay a recorded JOURNAL into a fresh core and compare every decision."""
    from maitred.app.outside import find
    from maitred.core.journal import Mismatch
    from maitred.core.journal import replay as replay_lines

    with _config_errors():
        find()
    try:
        click.echo(f"{replay_lines(journal)} decisions replayed, all the same")
    except (Mismatch, ValueError) as error:
        raise click.ClickException(str(error)) from error


@main.group(hidden=True)
def engine() -> None:
    """Engines that run inside a child process of this program."""


@engine.command()
@click.option("--host", required=True)
@click.option("--port", required=True, type=int)
@click.option("--model", required=True, type=click.Path(path_type=Path))
@click.option("--alias", required=True)
@click.option("--slots", required=True, type=int)
@click.option("--context", required=True, type=int)
@click.option("--threads", required=True, type=int)
@click.option("--parent", required=True, type=int)
def llamacpp(
    host: str, port: int, model: Path, alias: str, slots: int, context: int, threads: int, parent: int
) -> None:
    """llama.cpp's own server."""
    from maitred.engines.llamacpp_server import run

    run(host, port, model, alias, slots, context, threads, parent)


def _load(path: Path | None, overrides: Options) -> Config:
    """Raises ConfigError."""
    from maitred.app.outside import load

    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load(path, named, labels=LABELS)


@contextmanager
def _config_errors() -> Iterator[None]:
    """Exit 2 with one line for each thing that is wrong in the configuration."""
    from maitred.config.raw import ConfigError

    try:
        yield
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)


def _exit_with(trouble: str | None) -> None:
    """Exit 1 with one line when something could not be started."""
    if trouble is not None:
        raise click.ClickException(trouble)
