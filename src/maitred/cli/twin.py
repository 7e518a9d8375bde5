"""The command that runs a twin: a model of an engine that speaks vLLM's API.

Only what `--help` needs is imported at the top; the rest comes when the command is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from maitred.sim.profile import Profile

PORT = click.IntRange(0, 65535)
COUNT = click.IntRange(1, 10_000_000)
ROLE = click.Choice(["both", "prefill", "decode"])
FORM = click.Choice(["map", "array"])

OF_FLEETS = {"fleet", "name"}
OF_EVENTS = {"kv_replay", "kv_topic", "kv_form"}
"""Flags that go with -c, and those that need --kv-events."""


@click.command()
@click.option(
    "-c",
    "--config",
    "fleet",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run a twin for each endpoint of this configuration, with the faults of its `simulate` section.",
)
@click.option("--profile", "name", default="h100-qwen3-32b", show_default=True, help="A model on its GPUs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=8101, show_default=True, type=PORT, help="Port to listen at; 0: a free one.")
@click.option("--model", default="", metavar="NAME", help="What clients call the model; else the profile's.")
@click.option("--role", default="both", show_default=True, type=ROLE, help="What it does of a request.")
@click.option("--seed", default=0, show_default=True, help="Decides texts, ids and which requests fail.")
@click.option("--answer-tokens", default=200, show_default=True, type=COUNT, help="Mean length of answers.")
@click.option("--max-num-seqs", type=COUNT, help="Requests that run at once.")
@click.option("--max-model-len", type=COUNT, help="Context length in tokens.")
@click.option("--kv-blocks", type=COUNT, help="Blocks of KV cache.")
@click.option("--priority", is_flag=True, help="Schedule by the priority of requests, lowest first.")
@click.option("--no-prefix-caching", is_flag=True, help="Keep no prefixes.")
@click.option(
    "--kv-events", metavar="ENDPOINT", help="Publish KV events: tcp://*:5557 binds, others connect."
)
@click.option("--kv-replay", metavar="ENDPOINT", help="Send them again on request, as tcp://*:5558.")
@click.option("--kv-topic", default="", metavar="TOPIC", help="Their topic; else kv@HOST:PORT@MODEL.")
@click.option("--kv-form", default="map", show_default=True, type=FORM, help="As vLLM 0.32, or up to 0.16.")
@click.option("--cold", is_flag=True, help="Begin with a cold start, in the profile's phases.")
@click.option("--fail", default="", metavar="WORDS", help="What is wrong from the start; see above.")
@click.option("--exit-on-crash", is_flag=True, help="A crash ends the process, with exit code 70.")
@click.pass_context
def twin(
    context: click.Context,
    /,
    fleet: Path | None,
    name: str,
    host: str,
    port: int,
    exit_on_crash: bool,
    **flags: Any,
) -> None:
    """Run a stand-in for vLLM: a model of an engine with its timing, metrics and failures.

    It speaks vLLM's API (chat, completions, responses, messages, embeddings, tokens, models, metrics, sleep,
    LoRA). Texts mean nothing and are the same for the same prompt and seed; their timing is that of the
    profile, batching, caching and preemption included.

    \b
      maitred twin --profile h100-qwen3-32b --port 8101
      maitred twin -c maitred.yaml
      maitred twin --port 8102 --kv-events 'tcp://*:5557' --kv-replay 'tcp://*:5558'
      maitred serve http://127.0.0.1:8101 http://127.0.0.1:8102

    Failures are words, joined by commas: status=503, hang, reset=20 (after 20 tokens), slow=3, crash,
    metrics-stop, and rate=0.1 for a share of the requests. They come by flag, for one request by header,
    or by call:

    \b
      maitred twin --fail status=503,rate=0.1
      curl -H 'x-twin-fail: reset=20' ...
      curl -X POST http://127.0.0.1:8101/twin/slow=3
      curl -X POST http://127.0.0.1:8101/twin/crash
      curl -X POST http://127.0.0.1:8101/twin/recover
    """
    given = _given(context)
    _check(given)
    if fleet is not None:
        _fleet(fleet, name if "name" in given else "")
        return
    from maitred.sim.job import Role
    from maitred.sim.profiles import load
    from maitred.twin.faults import parse
    from maitred.twin.run import Place, Publish, run
    from maitred.twin.twin import Options

    publish = None
    if flags["kv_events"]:
        publish = Publish(flags["kv_events"], flags["kv_replay"], flags["kv_topic"], flags["kv_form"])
    try:
        profile = _changed(load(name), **flags)
        options = Options(
            model=flags["model"],
            role=Role[flags["role"].upper()],
            seed=flags["seed"],
            mean_tokens=flags["answer_tokens"],
            fault=parse(flags["fail"]),
            cold=flags["cold"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        code = run(profile, Place(host, port, publish, exit_on_crash), options, click.echo)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(code)


def _given(context: click.Context) -> dict[str, str]:
    """The flags that were given, by the names of their parameters."""
    source = context.get_parameter_source
    return {
        param.name: param.opts[-1]
        for param in context.command.params
        if param.name and source(param.name) is ParameterSource.COMMANDLINE
    }


def _check(given: dict[str, str]) -> None:
    """Refuse flags that would do nothing. Raises UsageError."""
    idle: set[str] = set()
    if "fleet" in given:
        idle, where = given.keys() - OF_FLEETS, "with -c: there the configuration says what stands where"
    elif "kv_events" not in given:
        idle, where = given.keys() & OF_EVENTS, "without --kv-events"
    if idle:
        raise click.UsageError(f"{', '.join(sorted(given[name] for name in idle))} cannot go {where}")


def _fleet(path: Path, profile: str) -> None:
    """The twins of a whole configuration, until a signal; of this profile, where one is given."""
    from maitred.app.outside import load
    from maitred.app.twins import run
    from maitred.config.raw import ConfigError
    from maitred.sim.simulate import SimulationError

    try:
        run(load(path, {"simulate.profile": profile} if profile else {}), click.echo)
    except (ConfigError, SimulationError) as error:
        raise click.UsageError(str(error)) from error


def _changed(profile: Profile, **flags: Any) -> Profile:
    """The profile as the engine's own flags change it."""
    from msgspec import structs

    sequences_max = flags["max_num_seqs"] or profile.sequences_max
    said = {
        "sequences_max": sequences_max,
        "step_tokens_max": max(sequences_max, profile.step_tokens_max),  # a step serves all who decode
        "context_tokens_max": flags["max_model_len"],
        "kv_blocks": flags["kv_blocks"],
        "by_priority": flags["priority"] or None,
        "prefix_caching": False if flags["no_prefix_caching"] else None,
    }
    return structs.replace(profile, **{key: value for key, value in said.items() if value is not None})
