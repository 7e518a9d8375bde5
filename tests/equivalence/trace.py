"""What happens in a run, written down once for both shells: who comes, what fails, what the operator does.

Instants are in seconds from the start. Everything a client and an engine need to know is derived from an
`Arrival` of the simulator: its prompt as text has the same tokens and shares the same beginnings.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, structs

from maitred.config.kinds import Address
from maitred.config.simulate import Fault, Simulate
from maitred.config.tree import Config, Health, Listen, Model, Queue, Scrape, Upstream
from maitred.sim.arrival import Arrival
from maitred.sim.profile import Profile, StepTime
from maitred.twin import tokens

MODEL = "m"
CHAT = "/v1/chat/completions"
URLS = tuple(f"http://10.0.0.{number}:8000" for number in (1, 2, 3))
PROFILE = Profile(
    name="small",
    model=MODEL,
    gpu="none",
    step=StepTime(base_s=0.0213, per_sequence_s=0.00117, per_token_s=1.3e-6, prefill_tokens_per_s=9_000.0),
    kv_blocks=300,
    sequences_max=16,
    step_tokens_max=512,
    context_tokens_max=4096,
    start=(("process", 1.37), ("weights", 2.41)),
)
"""Round figures would have things happen at one instant that have nothing to do with one another."""

SHARED_TOKENS, OWN = 64, 5
"""Tokens at the beginning of a prompt that every third shares, and how many texts may follow them."""
BEFORE = 2
AFTER = tokens.count(tokens.conversation([("user", "")])) - BEFORE
"""Tokens that the chat template puts before a text, and behind it."""


class Flaw(Struct, frozen=True):
    """From `at` until `until` every request that comes to an engine fails there.

    `status`: it is answered with that; else its stream breaks after `tokens`, a multiple of 16 or 1.
    """

    at: float
    until: float
    url: str
    status: int = 0
    tokens: int = 0


class Act(Struct, frozen=True):
    """What the operator does: has another configuration read, or takes an endpoint out (`held`) or in."""

    at: float
    config: Config | None = None
    url: str = ""
    held: bool = False


class Trace(Struct, frozen=True):
    """One run. `config` says what is there at the start, `simulate.faults` of it what goes wrong."""

    config: Config
    arrivals: tuple[Arrival, ...]
    flaws: tuple[Flaw, ...] = ()
    acts: tuple[Act, ...] = ()
    profile: Profile = PROFILE
    seed: int = 1

    @property
    def precise(self) -> bool:
        """Whether engines tell what is in their caches."""
        return self.config.models[0].cache.events is not None


def config(*faults: Fault, cap: int = 2, routing: str = "least-requests") -> Config:
    """A gateway before two engines. It does not read their metrics, and its probes cost them nothing."""
    return Config(
        listen=Listen(Address("127.0.0.1", 0)),
        models=(
            Model(
                MODEL,
                URLS[:2],
                routing=routing,
                saturation="concurrency",
                cap=cap,
                queue=Queue(wait_s=3.7, requests_max=4),
            ),
        ),
        upstream=Upstream(first_byte_s=2.6, idle_s=1.4),
        health=Health(generate=False, failures_max=2, slow_start_s=5.3),
        scrape=Scrape(period_s=1e6),
        simulate=Simulate(faults=faults),
    )


def changed(config: Config, **members: Any) -> Config:
    """The same with other options of its model."""
    return structs.replace(config, models=(structs.replace(config.models[0], **members),))


def routed(trace: Trace, routing: str) -> Trace:
    """The same by another policy, whatever the operator does."""

    def by_policy(config: Config) -> Config:
        return changed(config, routing=routing)

    acts = [structs.replace(act, config=act.config and by_policy(act.config)) for act in trace.acts]
    return structs.replace(trace, config=by_policy(trace.config), acts=tuple(acts))


def arrival(
    number: int,
    at: float,
    output_tokens: int = 40,
    prompt_tokens: int = 100,
    patience_s: float | None = None,
    *,
    stream: bool = True,
) -> Arrival:
    """One request. Of all that begin as it does, every fifth goes on as it does."""
    own_tokens = prompt_tokens - SHARED_TOKENS - AFTER
    prompt = ((number % 3, SHARED_TOKENS), (1000 + number % OWN, own_tokens), (999, AFTER))
    return Arrival(
        number,
        at,
        MODEL,
        prompt,
        prompt_tokens,
        output_tokens,
        2000 + number,
        stream=stream,
        patience_s=patience_s,
    )


def body(arrival: Arrival) -> bytes:
    """The request as its client writes it."""
    (shared, shared_tokens), (own, own_tokens), _ = arrival.prompt
    text = _word(shared) * (shared_tokens - BEFORE) + _word(own) * own_tokens
    asked = {
        "model": arrival.model,
        "messages": [{"role": "user", "content": text}],
        "stream": arrival.stream,
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
    }
    return json.dumps(asked).encode()


def _word(piece: int) -> str:
    """The one token of which a piece of text consists."""
    return f"{piece:04d}"
