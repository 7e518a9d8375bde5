"""One run from a configuration, a workload and a seed: what `maitred simulate` does for each column."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

from maitred.config.endpoints_file import read_endpoints
from maitred.config.tree import Config, EndpointsDns, EndpointsFile, Model
from maitred.core.chooser import ROUTING
from maitred.sim.arrival import Workload
from maitred.sim.fleet import Fleet, Waits, Write
from maitred.sim.heard import Heard
from maitred.sim.ladder import BOUND, Partitioned, endless, partitioned
from maitred.sim.node import Node
from maitred.sim.profiles import load
from maitred.sim.run import EndpointUse, Run, Sample, Samples
from maitred.sim.workload import Spec
from maitred.sim.world import World

SAMPLE_S = 1.0

Progress = Callable[[float, int], None]
"""Told now and then: the instant in the run, and how many requests are over."""


class SimulationError(ValueError):
    """The configuration cannot be simulated; the message says what to write."""


def nodes_of(config: Config) -> list[Node]:
    """The engines that a configuration puts behind its models. Raises SimulationError."""
    special = {engine.endpoint: engine.profile for engine in config.simulate.engines}
    nodes: list[Node] = []
    for model in config.models:
        for url in _urls(model):
            name = special.get(url, config.simulate.profile)
            if not name:
                message = f"nothing says which engine is at {url}: write simulate.profile, or say --profile"
                raise SimulationError(message)
            if any(node.url == url for node in nodes):
                raise SimulationError(f"{url} is an endpoint of two models; an engine here serves one")
            try:
                nodes.append(Node(model.name, url, load(name), Heard() if _tells(model) else None))
            except ValueError as error:
                raise SimulationError(str(error)) from error
    known = {node.url for node in nodes}
    for url in (*special, *(fault.endpoint for fault in config.simulate.faults)):
        if url not in known:
            raise SimulationError(f"simulate names {url}, and no model has it among its endpoints")
    if not nodes:
        raise SimulationError("nothing to simulate: the configuration has no models with endpoints")
    return nodes


def simulate(
    name: str,
    config: Config,
    spec: Spec,
    seed: int,
    yardstick: str = "",
    progress: Progress = lambda _at, _over: None,
    journal: Write | None = None,
) -> Run:
    """Run a configuration, or a `yardstick` for it, to the end. Raises SimulationError and Violation.

    Stages that warm up are left out of the run's records; tokens in them are as clients count them.
    """
    workload: Workload = spec.workload(Random(seed))
    if yardstick:
        config = listed(config)
        workload = Partitioned(workload, {model.name: len(_urls(model)) for model in config.models})
        config = partitioned(config)
    nodes = nodes_of(config)
    if yardstick == BOUND:
        nodes = [Node(node.pool, node.url, endless(node.profile), node.heard) for node in nodes]
    waits = Waits(
        config.upstream.connect_s,
        config.upstream.first_byte_s,
        config.upstream.idle_s,
        config.simulate.network_s,
    )
    fleet = Fleet(config.core_settings(), nodes, workload, seed, waits, journal)
    World(fleet, config.scrape.period_s, config.simulate.faults, config.health).begin()
    fleet.begin()
    samples, look_at = Samples(), 0.0
    while fleet.expected and fleet.step():
        if fleet.now >= look_at:
            look_at = fleet.now + SAMPLE_S
            samples.add(_sample(fleet))
            progress(fleet.now, len(fleet.records))
    records = [record for record in fleet.records if not record.arrival.warm_up]
    for record in records:
        record.tokens = round(record.tokens * spec.counted)
    slos = {model.name: model.slo for model in config.models}
    return Run(name, seed, records, list(map(_use, nodes)), samples.kept, 0.0, fleet.now, slos)


def listed(config: Config) -> Config:
    """The same with every model's endpoints written out. Raises SimulationError."""
    models = tuple(structs.replace(model, endpoints=_urls(model)) for model in config.models)
    return structs.replace(config, models=models)


def routed(config: Config, routing: str) -> Config:
    """The same with another policy for every model. Raises SimulationError."""
    if routing not in ROUTING:
        raise SimulationError(f"no routing policy {routing!r}; there are {', '.join(ROUTING.names)}")
    models = tuple(structs.replace(model, routing=routing) for model in config.models)
    return structs.replace(config, models=models)


def _tells(model: Model) -> bool:
    """Whether the gateway would hear what is in its engines' caches, and could make use of it."""
    return model.cache.events is not None and model.tokens is not None


def _urls(model: Model) -> tuple[str, ...]:
    match model.endpoints:
        case EndpointsFile(file=file):
            return read_endpoints(file)
        case EndpointsDns():
            raise SimulationError(f"{model.name}: endpoints from DNS cannot be simulated; list them")
        case urls:
            return urls


def _sample(fleet: Fleet) -> Sample:
    nodes = fleet.nodes.values()
    kv_use = sum(node.engine.kv_use for node in nodes) / len(nodes)
    return Sample(fleet.now, fleet.gateway.waiting, sum(len(node.jobs) for node in nodes), kv_use)


def _use(node: Node) -> EndpointUse:
    engines = (*node.before, node.engine)
    return EndpointUse(
        node.name,
        node.profile.name,
        sum(engine.busy_s for engine in engines),
        node.requests,
        sum(engine.generated_tokens for engine in engines),
        sum(engine.prompt_tokens for engine in engines),
        sum(engine.hit_tokens for engine in engines),
        sum(engine.preemptions for engine in engines),
    )
