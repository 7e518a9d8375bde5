"""The workload file: classes of traffic, each made up or replayed, declared as the configuration is."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import SWITCH, TEXT, TIMEOUT
from maitred.config.setting import Forms, Setting
from maitred.sim.kinds import SHARE
from maitred.sim.lengths import LENGTH, Length
from maitred.sim.prompts import Alone, Answers, Conversations, Groups, Prompts
from maitred.sim.stages import Arrivals
from maitred.sim.traces import TraceFile


class Sent(Struct, frozen=True, kw_only=True):
    """What all requests of a class have in common."""

    name: Annotated[str, Setting("name", TEXT, "The class; its random numbers follow from it.")]
    model: Annotated[
        str, Setting("model", TEXT, "The model asked for. A trace may name it instead.", "the trace's")
    ] = ""
    tenant: Annotated[str, Setting("tenant", TEXT, "Who asks.", "the trace's, else `anonymous`")] = ""
    band: Annotated[str, Setting("band", TEXT, "The priority class asked for.", "none")] = ""
    adapter: Annotated[str, Setting("adapter", TEXT, "The LoRA adapter asked for.", "none")] = ""
    stream: Annotated[bool, Setting("stream", SWITCH, "Whether answers are streamed.")] = True
    patience_s: Annotated[
        float | None, Setting("patience", TIMEOUT, "Clients leave when it takes longer.", "they stay")
    ] = None


class Generated(Sent, frozen=True):
    """A class that is made up."""

    prompts: Annotated[
        Prompts,
        Setting(
            "prompts",
            Forms(
                (Alone, Groups, Conversations),
                "{tokens: 1k}, {groups: 150, per_group: 5, shared: 6k, own: 1k} or {turns: 6, own: 200}",
            ),
            "What is asked.",
        ),
    ]
    output: Annotated[Length, Setting("output", LENGTH, "Length of an answer.")]
    reasoning: Annotated[
        Length | None, Setting("reasoning", LENGTH, "Tokens thought before it; they count as output.", "none")
    ] = None
    share: Annotated[
        float, Setting("share", SHARE, "Part of the arrivals that classes have in common; these make 100%.")
    ] = 1.0
    arrivals: Annotated[
        Arrivals | None, Setting("arrivals", Arrivals, "Arrivals of this class alone.", "a share of all")
    ] = None

    @property
    def answers(self) -> Answers:
        """How long its answers are."""
        return Answers(self.output, self.reasoning)


class Replayed(Sent, frozen=True):
    """A class that was recorded."""

    trace: Annotated[TraceFile, Setting("trace", TraceFile)]


Traffic = Generated | Replayed
