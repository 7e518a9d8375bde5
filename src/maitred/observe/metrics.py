"""Counting: core events become plain ints, on the hot path.

Nothing here knows Prometheus; `exposition.py` turns these numbers into text, in another thread and only
when asked. Each number is one int or float in a list or a slot, so a reader sees a whole value at any
time, and at worst two numbers that are a batch of ends apart.

Labels are bounded: models and endpoints beyond the bounds share one series named "other", and the series
of an endpoint leave with it. Tenants and bands have series of their own only where they are configured, so
that no client can make one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from maitred.core.events import (
    AnswerBegan,
    Answered,
    AtDoor,
    Ended,
    EndpointMoved,
    Hears,
    LegFailed,
    Tokenized,
)
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint, EndpointState
from maitred.observe.budgets import Budget
from maitred.observe.ends import Over
from maitred.observe.histogram import Histogram
from maitred.observe.kv_events import KvFigures
from maitred.observe.turns import Turns

COMPLETED = Outcome.COMPLETED.index
MODELS_MAX = 256
ENDPOINTS_MAX = 1024
TENANTS_MAX = 256
BANDS_MAX = 64
MCP_SERVERS_MAX = 256
PLACES_MAX = 4096
"""Remembered at once; beyond it all are found anew."""
OTHER = "other"

FIRST_TOKEN_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
"""Bounds of waits: from an idle small model to the longest queue; the usual SLOs are bounds themselves."""
TOKEN_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0)
"""Bounds of the time between tokens, close together around reading speed."""
TOKENIZING_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
"""Bounds of the time that finding token ids takes; the last is where it is given up."""
WHOLE_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of whole answers."""

READINGS: dict[str, tuple[str, str]] = {
    "client_connections": ("gauge", "Connections from clients open now."),
    "upstream_connections": ("gauge", "Connections to engines open now, idle ones included."),
    "background_waiting": ("gauge", "Background responses that wait in the store, as last counted."),
    "background_making": ("gauge", "Background responses that this gateway is making."),
    "quarantined": ("gauge", "Requests kept out now because engines died of them."),
    "key_table_age_seconds": ("gauge", "How long ago the keys were read; 0 where none are kept."),
    "config_version": ("gauge", "How often the configuration was changed since start."),
    "kv_events_foreign_total": ("counter", "KV events that came to us and were of no engine we know."),
    "access_log_dropped_total": ("counter", "Log lines lost: the buffer was full or a write failed."),
}
"""Numbers that live elsewhere, name -> (type, help); the assembler gives a callable for each it has."""


class Slo(Struct, frozen=True):
    """What was promised for a model, in seconds; None promises nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None


class TenantSeries:
    """All numbers of one tenant. `requests[outcome.index]`."""

    __slots__ = ("cached_tokens", "output_tokens", "prompt_tokens", "requests")

    def __init__(self) -> None:
        self.requests = [0] * len(Outcome)
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0


class ModelSeries:
    """All numbers of one model. `requests[api][outcome.index]`; the last row is for an unknown API.

    `queue` is by band. `tokenized[reason]` counts token ids by why there were none, the last those found.
    """

    __slots__ = (
        "answer",
        "cached_tokens",
        "client_retries",
        "output_tokens",
        "prompt_tokens",
        "queue",
        "requests",
        "retries",
        "slo_met",
        "tokenized",
        "tokenizing",
        "tpot",
        "ttft",
        "whole",
    )

    def __init__(self) -> None:
        self.requests = [[0] * len(Outcome) for _ in range(len(Api) + 1)]
        self.queue: dict[str, Histogram] = {}
        self.ttft = Histogram(FIRST_TOKEN_S)
        self.answer = Histogram(FIRST_TOKEN_S)
        self.tpot = Histogram(TOKEN_S)
        self.whole = Histogram(WHOLE_S)
        self.tokenizing: Histogram | None = None
        self.tokenized = [0] * (len(NoTokens) + 1)
        self.retries = self.client_retries = self.slo_met = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0


Place: TypeAlias = tuple[ModelSeries, Histogram, list[int], TenantSeries]
"""Where the tickets of one model, band and tenant are counted: the model's numbers, the waits in the band,
the band's ends and the tenant's numbers.
"""


Alike: TypeAlias = tuple[str, str, str, Api, bool, int, int]
"""What is the same of ends that are counted at once: the model, band and tenant, the API, whether it was a
stream, the client's retries and the outcome's index.
"""


class McpSeries:
    """Calls of the tools of one MCP server, by how they ended, and how long they took."""

    __slots__ = ("calls", "seconds")

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.seconds = Histogram(WHOLE_S)


class Cached:
    """Cached tokens of prompts, as predicted and as engines reported them."""

    __slots__ = ("predicted", "reported")

    def __init__(self) -> None:
        self.predicted = self.reported = 0


class EndpointSeries:
    """Numbers of one endpoint; `endpoint` is None for the one that stands for all beyond the bound.

    Cached tokens are those where it was `guessed` what is cached, and those where the engine had `told`.
    """

    __slots__ = ("endpoint", "failures", "guessed", "told")

    def __init__(self, endpoint: Endpoint | None) -> None:
        self.endpoint = endpoint
        self.failures = [0] * len(FailureKind)
        self.guessed, self.told = Cached(), Cached()


class Metrics:
    """Subscriber to the core's events, all but ends, which it is told by `over`.

    Called on the gateway's thread; read from any.

    `queued` and `in_flight` give the waiting and the running requests of each model, `findings` how many
    there are of each kind, `budgets` how far each is spent, `kv_events` what is known of each endpoint's, and
    `readings` one callable for each name of `READINGS` that exists; the thread that renders calls them.
    Raises ValueError for a reading that nobody declared (and so nobody documented). `clock` is the gateway's,
    by which what engines said has an age.
    """

    def __init__(
        self,
        version: str,
        slos: Mapping[str, Slo] | None = None,
        queued: Callable[[], Mapping[str, int]] = dict,
        in_flight: Callable[[], Mapping[str, int]] = dict,
        readings: Mapping[str, Callable[[], float]] | None = None,
        findings: Callable[[], Mapping[str, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
        budgets: Callable[[], Iterable[Budget]] = tuple,
        kv_events: Callable[[], Iterable[KvFigures]] = tuple,
    ) -> None:
        self.version = version
        self.slos = dict(slos or {})
        self.queued = queued
        self.in_flight = in_flight
        self.readings = dict(readings or {})
        self.findings = findings
        self.clock = clock
        self.budgets = budgets
        self.kv_events = kv_events
        self.reloads = {"ok": 0, "failed": 0}
        self.turns = Turns()
        if unknown := self.readings.keys() - READINGS.keys():
            raise ValueError(f"unknown readings: {sorted(unknown)}")
        self.models: dict[str, ModelSeries] = {}
        self.bands: dict[str, list[int]] = {}
        self.tenants: dict[str, TenantSeries] = {}
        self.places: dict[tuple[str, str, str], Place] = {}
        self.label((), ())
        self.endpoints: dict[str, EndpointSeries] = {}
        self.mcp: dict[str, McpSeries] = {}
        self.loop_lag_s = self.loop_lag_max_s = 0.0
        self.hears: Hears = {
            Tokenized: self._tokenized,
            Answered: self._answered,
            AnswerBegan: self._answer_began,
            LegFailed: self._leg_failed,
            EndpointMoved: self._endpoint_moved,
        }

    def label(self, tenants: Iterable[str], bands: Iterable[str]) -> None:
        """From now on these are counted by name and all others as one; what was counted of them stays."""
        self.places.clear()
        self.tenants = {
            name: self.tenants.get(name) or TenantSeries() for name in (OTHER, *islice(tenants, TENANTS_MAX))
        }
        self.bands = {
            name: self.bands.get(name) or [0] * len(Outcome) for name in (OTHER, *islice(bands, BANDS_MAX))
        }

    def over(self, ends: Sequence[Over]) -> None:
        """Count what is over, all that is alike at once."""
        alike: defaultdict[Alike, list[Ended]] = defaultdict(list)
        for event in ends:
            if not isinstance(event, Ended):
                self._at_door(event)
                continue
            ticket = event.ticket
            request = ticket.request
            alike[
                request.model,
                ticket.band,
                ticket.identity.tenant,
                request.api,
                request.stream,
                request.retry,
                event.outcome.index,
            ].append(event)
        for what, those in alike.items():
            self._ended(what, those)

    def _ended(self, what: Alike, ends: list[Ended]) -> None:
        model, band, who, api, stream, retry, index = what
        series, queue, outcomes, tenant = self.places.get((model, band, who)) or self._place(model, band, who)
        count, completed = len(ends), index == COMPLETED
        series.requests[api][index] += count
        outcomes[index] += count
        tenant.requests[index] += count
        if retry:
            series.client_retries += count
        endpoints, slo = self.endpoints, self.slos.get(model) if completed else None
        waits, wholes, paces = list[float](), list[float](), list[float]()
        prompt = cached = output = 0
        for event in ends:
            ticket, usage, leg = event.ticket, event.usage, event.leg
            tpot_s = None
            if leg is None:  # it left the queue without a seat
                continue
            arrival = ticket.arrival
            waits.append(leg.seated_at - arrival)
            wholes.append(event.at - arrival)
            if usage is not None:
                prompt += usage.prompt_tokens
                cached += usage.cached_tokens
                output += usage.output_tokens
                if completed and leg.thought >= 0 and usage.exact:
                    known = endpoints.get(leg.endpoint.name) or self._other_endpoint()
                    found = known.told if leg.exact else known.guessed
                    found.predicted += ticket.prompt_tokens - leg.fresh
                    found.reported += usage.cached_tokens
                if stream and usage.output_tokens > 1 and leg.answered_at and ticket.request.sequences == 1:
                    tpot_s = (event.at - leg.answered_at) / (usage.output_tokens - 1)
                    paces.append(tpot_s)
            if slo is not None:
                series.slo_met += _kept(slo, event, leg.answered_at, tpot_s)
        queue.observe_all(waits)
        series.tpot.observe_all(paces)
        if completed:
            series.whole.observe_all(wholes)
        for tokens in (series, tenant):
            tokens.prompt_tokens += prompt
            tokens.cached_tokens += cached
            tokens.output_tokens += output

    def mcp_called(self, server: str, outcome: str, seconds: float) -> None:
        """A tool of an MCP server was called; outcomes are few, and so are servers."""
        known = self.mcp.get(server)
        if known is None:
            label = server if len(self.mcp) < MCP_SERVERS_MAX else OTHER
            known = self.mcp.setdefault(label, McpSeries())
        known.calls[outcome] = known.calls.get(outcome, 0) + 1
        known.seconds.observe(seconds)

    def loop_lag(self, lag_s: float) -> None:
        """The gateway's loop ran a timer this late."""
        self.loop_lag_s = lag_s
        self.loop_lag_max_s = max(lag_s, self.loop_lag_max_s)

    def _at_door(self, event: AtDoor) -> None:
        row = -1 if event.api is None else event.api
        index = event.outcome.index
        series = self._model(event.model)
        series.requests[row][index] += 1
        if event.retry:
            series.client_retries += 1
        if event.band:
            self.bands.get(event.band, self.bands[OTHER])[index] += 1
        if event.tenant:
            self.tenants.get(event.tenant, self.tenants[OTHER]).requests[index] += 1

    def _tokenized(self, event: Tokenized) -> None:
        series = self._model(event.model)
        series.tokenized[-1 if event.missing is None else event.missing] += 1
        if series.tokenizing is None:
            series.tokenizing = Histogram(TOKENIZING_S)
        series.tokenizing.observe(event.took_s)

    def _answered(self, event: Answered) -> None:
        ticket = event.leg.ticket
        model = ticket.request.model
        series = self.models.get(model) or self._model(model)
        series.ttft.observe(event.at - ticket.arrival)

    def _answer_began(self, event: AnswerBegan) -> None:
        ticket = event.leg.ticket
        self._model(ticket.request.model).answer.observe(event.at - ticket.arrival)

    def _leg_failed(self, event: LegFailed) -> None:
        endpoint = self.endpoints.get(event.leg.endpoint.name) or self._other_endpoint()
        endpoint.failures[event.failure.kind.index] += 1
        if event.again:
            self._model(event.leg.ticket.request.model).retries += 1

    def _endpoint_moved(self, event: EndpointMoved) -> None:
        name, endpoint = event.endpoint.name, event.endpoint
        known = self.endpoints.get(name)
        if event.after is EndpointState.GONE:
            if known is not None and known.endpoint is endpoint:
                del self.endpoints[name]
        elif known is not None:
            known.endpoint = endpoint
        elif len(self.endpoints) < ENDPOINTS_MAX:
            self.endpoints[name] = EndpointSeries(endpoint)

    def _model(self, name: str) -> ModelSeries:
        series = self.models.get(name)
        if series is None:
            label = name if len(self.models) < MODELS_MAX else OTHER
            series = self.models.setdefault(label, ModelSeries())
        return series

    def _place(self, model: str, band: str, tenant: str) -> Place:
        """Find where tickets of these are counted."""
        series, label = self._model(model), band if band in self.bands else OTHER
        queue = series.queue.setdefault(label, Histogram(FIRST_TOKEN_S))
        place = series, queue, self.bands[label], self.tenants.get(tenant) or self.tenants[OTHER]
        if len(self.places) >= PLACES_MAX:
            self.places.clear()
        self.places[model, band, tenant] = place
        return place

    def _other_endpoint(self) -> EndpointSeries:
        return self.endpoints.setdefault(OTHER, EndpointSeries(None))


def _kept(slo: Slo, event: Ended, first_at: float, tpot_s: float | None) -> bool:
    """Whether a completed request was within its SLO.

    A stream is judged by its first token and its pace. A plain answer shows neither, so the whole must
    come within the time a stream at the SLO would have taken.
    """
    ticket = event.ticket
    if ticket.request.stream:
        seen_at = first_at or event.at  # an empty stream shows only its end
        in_time = slo.ttft_s is None or seen_at - ticket.arrival <= slo.ttft_s
        return in_time and (slo.tpot_s is None or tpot_s is None or tpot_s <= slo.tpot_s)
    later_tokens = max(0, event.usage.output_tokens - 1) if event.usage else 0
    if slo.ttft_s is None or (slo.tpot_s is None and later_tokens):
        return True
    return event.at - ticket.arrival <= slo.ttft_s + later_tokens * (slo.tpot_s or 0)
