"""Metrics as Prometheus text, in pieces small enough that streams do not feel the rendering.

Runs in the admin thread while the gateway counts: lists and dicts are copied before they are walked, and
the caller pauses after each piece. prometheus_client writes the text; the numbers are `metrics.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from maitred.core.blocks import APPROXIMATE, PRECISE
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint, EndpointState, Load
from maitred.observe.budgets import Budget
from maitred.observe.histogram import Histogram
from maitred.observe.kv_events import KvFigures
from maitred.observe.metrics import ENDPOINTS_MAX, READINGS, Metrics, ModelSeries, TenantSeries

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "maitred_"
PIECE_LINES = 200
API_LABELS = (*(api.label for api in Api), "")
TOKENIZED_LABELS = (*(reason.label for reason in NoTokens), "found")
STATES = [state for state in EndpointState if state is not EndpointState.GONE]

CLASSES = ("completed", "invalid", "refused", "failed", "gone")
"""How a request can end, as far as a tenant is concerned."""


def _class(outcome: Outcome) -> str:
    """Served; or the client was wrong, had too much or came too early; or we failed, or it left."""
    if outcome in (Outcome.COMPLETED, Outcome.CLIENT_GONE):
        return "completed" if outcome is Outcome.COMPLETED else "gone"
    if outcome.status in (429, 503):
        return "refused"
    return "invalid" if outcome.status < 500 else "failed"


CLASS_OF = [_class(outcome) for outcome in Outcome]
"""The class of each outcome, by its index."""

Values = Iterator[tuple[str, dict[str, str], float]]
"""Samples as (suffix of the family's name, labels, value)."""


class Family(Struct, frozen=True):
    """One metric: its full name, Prometheus type, help text, and a reader of its samples."""

    name: str
    kind: str
    help: str
    read: Callable[[], Values]


def render(metrics: Metrics) -> Iterator[bytes]:
    """The text of all metrics, at most PIECE_LINES samples a piece."""
    for family in families(metrics):
        samples = (Sample(family.name + suffix, labels, value) for suffix, labels, value in family.read())
        heading = True
        while part := list(islice(samples, PIECE_LINES)):
            metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            metric.samples = part
            text = generate_latest(_Just(metric))
            yield text if heading else text.split(b"\n", 2)[2]  # HELP and TYPE may come only once
            heading = False


def families(metrics: Metrics) -> list[Family]:
    """All metrics there are, also those without a sample yet."""

    def counts(name: str, kind: str, text: str, value: Callable[[ModelSeries], float]) -> Family:
        return Family(PREFIX + name, kind, text, lambda: _by_model(metrics, value))

    def times(name: str, text: str, of: Callable[[ModelSeries], Histogram]) -> Family:
        return Family(PREFIX + name, "histogram", text, lambda: _buckets(metrics, of))

    def other(name: str, kind: str, text: str, read: Callable[[Metrics], Values]) -> Family:
        return Family(PREFIX + name, kind, text, lambda: read(metrics))

    def single(name: str, kind: str, text: str, value: Callable[[], float]) -> Family:
        return Family(PREFIX + name, kind, text, lambda: iter([("", {}, value())]))

    return [
        other("requests_total", "counter", "Requests that ended, by outcome.", _requests),
        other("band_requests_total", "counter", "Requests that ended, by band.", _band_requests),
        other("tenant_requests_total", "counter", "Requests that ended, by tenant.", _tenant_requests),
        other("tenant_tokens_total", "counter", "Tokens of ended requests, by tenant.", _tenant_tokens),
        other("in_flight", "gauge", "Requests at an engine now.", lambda m: _now(m.in_flight())),
        other("queued", "gauge", "Requests waiting for a place now.", lambda m: _now(m.queued())),
        other("queue_seconds", "histogram", "Wait from arrival to a place at an engine.", _queue_times),
        times("ttft_seconds", "Arrival to first content, of streams.", lambda s: s.ttft),
        times("answer_token_seconds", "Arrival to first token after reasoning.", lambda s: s.answer),
        times("output_token_seconds", "Time for each token after the first, of streams.", lambda s: s.tpot),
        times("request_seconds", "Arrival to end, of completed requests.", lambda s: s.whole),
        other("slo_met_total", "counter", "Completed requests within the SLO.", _slo_met),
        other("tokens_total", "counter", "Tokens of ended requests.", _tokens),
        counts("retries_total", "counter", "Requests queued again after a failure.", lambda s: s.retries),
        counts(
            "client_retries_total", "counter", "Requests that clients sent again.", lambda s: s.client_retries
        ),
        other("tokenized_total", "counter", "Requests whose token ids were looked for.", _tokenized),
        other("tokenizing_seconds", "histogram", "Time to find the token ids of a request.", _tokenizing),
        other("budget_limit", "gauge", "What may be spent in a day or month.", _budget_limits),
        other("budget_spent", "gauge", "What was spent of it.", _budgets_spent),
        other("leg_failures_total", "counter", "Failed attempts at an endpoint.", _leg_failures),
        other("endpoint_state", "gauge", "1 for the state an endpoint is in.", _endpoint_states),
        other("endpoint_in_flight", "gauge", "Places taken at an endpoint now.", _endpoints_in_flight),
        other("endpoint_share", "gauge", "Part of its places an endpoint may use.", _shares),
        other("endpoint_speed", "gauge", "Prompt tokens a second reckoned with.", _speeds),
        other("endpoint_slowness", "gauge", "Times as slow as its fastest peer.", _slownesses),
        other("ttft_prediction_error", "gauge", "How far predicted first tokens were off.", _ttft_errors),
        other("tpot_prediction_error", "gauge", "How far predicted later tokens were off.", _tpot_errors),
        other("engine_running", "gauge", "Sequences an engine runs, by its metrics.", _engine_running),
        other("engine_waiting", "gauge", "Sequences waiting in an engine, by its metrics.", _engine_waiting),
        other("engine_kv_use", "gauge", "Use of an engine's KV cache, 0 to 1.", _engine_kv_use),
        other("engine_metrics_age_seconds", "gauge", "Age of an engine's metrics.", _engine_ages),
        other(
            "cached_tokens_total", "counter", "Cached tokens of prompts, as predicted and reported.", _cached
        ),
        other("kv_events_total", "counter", "What came of an engine's KV events.", _kv_counts),
        other("kv_events_used", "gauge", "1 where an engine's KV events are gone by.", _kv_used),
        other("kv_events_age_seconds", "gauge", "Age of an engine's last KV events.", _kv_ages),
        other("kv_events_lag_seconds", "gauge", "How old they were when they came.", _kv_lags),
        other("kv_events_blocks", "gauge", "Keys of blocks known from KV events.", _kv_blocks),
        other("mcp_calls_total", "counter", "Calls of MCP servers' tools.", _mcp_calls),
        other("mcp_call_seconds", "histogram", "How long they took.", _mcp_seconds),
        other("turns_total", "counter", "Turns of the Responses API that ended.", _turns),
        other("history_items", "histogram", "Items that were said before a turn.", _histories),
        other("store_seconds", "histogram", "Time of operations on what is remembered.", _store_times),
        other("findings", "gauge", "What is wrong now, by kind.", _findings),
        other("reloads_total", "counter", "Reloads of the configuration.", _reloads),
        single("loop_lag_seconds", "gauge", "Last delay of a timer.", lambda: metrics.loop_lag_s),
        single("loop_lag_max_seconds", "gauge", "Longest since start.", lambda: metrics.loop_lag_max_s),
        *(single(name, *READINGS[name], value) for name, value in metrics.readings.items()),
        other("build_info", "gauge", "1; the label says which maitred this is.", _build),
    ]


class _Just(Collector):
    """A collector of one metric: the form in which prometheus_client takes it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def _by_model(metrics: Metrics, value: Callable[[ModelSeries], float]) -> Values:
    for model, series in list(metrics.models.items()):
        yield "", {"model": model}, value(series)


def _buckets(metrics: Metrics, of: Callable[[ModelSeries], Histogram]) -> Values:
    for model, series in list(metrics.models.items()):
        yield from _histogram(of(series), {"model": model})


def _queue_times(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        for band, histogram in list(series.queue.items()):
            yield from _histogram(histogram, {"model": model, "band": band})


def _tokenized(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        for result, count in zip(TOKENIZED_LABELS, series.tokenized, strict=True):
            if count:
                yield "", {"model": model, "result": result}, count


def _tokenizing(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        if series.tokenizing is not None:
            yield from _histogram(series.tokenizing, {"model": model})


def _mcp_calls(metrics: Metrics) -> Values:
    for server, series in metrics.mcp.copy().items():
        for outcome, count in series.calls.copy().items():
            yield "", {"server": server, "outcome": outcome}, count


def _mcp_seconds(metrics: Metrics) -> Values:
    for server, series in metrics.mcp.copy().items():
        yield from _histogram(series.seconds, {"server": server})


def _histogram(histogram: Histogram, labels: dict[str, str]) -> Values:
    counts, total, so_far = histogram.counts.copy(), histogram.total, 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True):
        so_far += count
        yield "_bucket", {**labels, "le": bound}, so_far
    yield "_sum", labels, total
    yield "_count", labels, so_far


def _requests(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        for api, row in zip(API_LABELS, series.requests, strict=True):
            for outcome in Outcome:
                if count := row[outcome.index]:
                    yield "", {"model": model, "api": api, "outcome": outcome.label}, count


def _band_requests(metrics: Metrics) -> Values:
    for band, row in list(metrics.bands.items()):
        for outcome in Outcome:
            if count := row[outcome.index]:
                yield "", {"band": band, "outcome": outcome.label}, count


def _tenant_requests(metrics: Metrics) -> Values:
    for tenant, series in list(metrics.tenants.items()):
        counts = dict.fromkeys(CLASSES, 0)
        for name, count in zip(CLASS_OF, series.requests, strict=True):
            counts[name] += count
        for name, count in counts.items():
            if count:
                yield "", {"tenant": tenant, "class": name}, count


def _tenant_tokens(metrics: Metrics) -> Values:
    for tenant, series in list(metrics.tenants.items()):
        for kind, tokens in _by_kind(series):
            if tokens:
                yield "", {"tenant": tenant, "kind": kind}, tokens


def _by_kind(series: ModelSeries | TenantSeries) -> tuple[tuple[str, int], ...]:
    return (
        ("prompt", series.prompt_tokens),
        ("cached", series.cached_tokens),
        ("output", series.output_tokens),
    )


def _now(by_model: Mapping[str, int]) -> Values:
    for model, count in by_model.items():
        yield "", {"model": model}, count


def _slo_met(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        if model in metrics.slos:
            yield "", {"model": model}, series.slo_met


def _tokens(metrics: Metrics) -> Values:
    for model, series in list(metrics.models.items()):
        for kind, tokens in _by_kind(series):
            yield "", {"model": model, "kind": kind}, tokens


def _budget_limits(metrics: Metrics) -> Values:
    return ((*_of(budget), budget.limit) for budget in metrics.budgets())


def _budgets_spent(metrics: Metrics) -> Values:
    return ((*_of(budget), budget.spent) for budget in metrics.budgets())


def _of(budget: Budget) -> tuple[str, dict[str, str]]:
    return "", {"kind": budget.kind, "name": budget.name, "budget": budget.budget}


def _leg_failures(metrics: Metrics) -> Values:
    for name, series in list(metrics.endpoints.items()):
        for kind in FailureKind:
            if count := series.failures[kind.index]:
                yield "", {"endpoint": name, "kind": kind.label}, count


def _endpoint_states(metrics: Metrics) -> Values:
    for name, series in list(metrics.endpoints.items()):
        if series.endpoint is not None:
            now = series.endpoint.state
            for state in STATES:
                yield "", {"endpoint": name, "state": state.label}, state is now


def _endpoints_in_flight(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.running)


def _shares(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.share)


def _speeds(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.speed if endpoint.reads.told else None)


def _slownesses(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.slowness)


def _ttft_errors(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.reads.error if endpoint.reads.told else None)


def _tpot_errors(metrics: Metrics) -> Values:
    return _of_endpoints(metrics, lambda endpoint: endpoint.writes.error if endpoint.writes.told else None)


def _of_endpoints(metrics: Metrics, value: Callable[[Endpoint], float | None]) -> Values:
    """What is known of each endpoint, where it is."""
    for name, series in list(metrics.endpoints.items()):
        if series.endpoint is not None and (found := value(series.endpoint)) is not None:
            yield "", {"endpoint": name}, found


def _engine_running(metrics: Metrics) -> Values:
    return _loads(metrics, lambda _endpoint, load: load.running)


def _engine_waiting(metrics: Metrics) -> Values:
    return _loads(metrics, lambda _endpoint, load: load.waiting)


def _engine_kv_use(metrics: Metrics) -> Values:
    return _loads(metrics, lambda _endpoint, load: load.kv_use)


def _engine_ages(metrics: Metrics) -> Values:
    now = metrics.clock()
    return _loads(metrics, lambda endpoint, _load: max(0.0, now - endpoint.observed_at))


def _loads(metrics: Metrics, value: Callable[[Endpoint, Load], float | None]) -> Values:
    """What engines say of themselves, of those whose metrics could be read."""
    for name, series in list(metrics.endpoints.items()):
        endpoint = series.endpoint
        if endpoint is None or endpoint.load is None:
            continue
        if (said := value(endpoint, endpoint.load)) is not None:
            yield "", {"endpoint": name}, said


def _cached(metrics: Metrics) -> Values:
    for name, series in list(metrics.endpoints.items()):
        for index, cached in ((APPROXIMATE, series.guessed), (PRECISE, series.told)):
            if cached.predicted or cached.reported:
                labels = {"endpoint": name, "index": index}
                yield "", {**labels, "kind": "predicted"}, cached.predicted
                yield "", {**labels, "kind": "reported"}, cached.reported


def _kv_counts(metrics: Metrics) -> Values:
    for known in _kv_known(metrics):
        for what, count in known.counts.items():
            yield "", {"endpoint": known.endpoint, "what": what}, count


def _kv_used(metrics: Metrics) -> Values:
    return (("", {"endpoint": known.endpoint}, not known.why) for known in _kv_known(metrics))


def _kv_ages(metrics: Metrics) -> Values:
    now = metrics.clock()
    for known in _kv_known(metrics):
        if (heard_at := known.heard_at) is not None:
            yield "", {"endpoint": known.endpoint}, max(0.0, now - heard_at)


def _kv_lags(metrics: Metrics) -> Values:
    for known in _kv_known(metrics):
        if known.heard_at is not None:
            yield "", {"endpoint": known.endpoint}, known.lag_s


def _kv_blocks(metrics: Metrics) -> Values:
    return (("", {"endpoint": known.endpoint}, known.blocks) for known in _kv_known(metrics))


def _kv_known(metrics: Metrics) -> Iterable[KvFigures]:
    return islice(metrics.kv_events(), ENDPOINTS_MAX)


def _turns(metrics: Metrics) -> Values:
    for outcome in Outcome:
        if count := metrics.turns.ended[outcome.index]:
            yield "", {"outcome": outcome.label}, count


def _histories(metrics: Metrics) -> Values:
    if any(metrics.turns.history.counts):
        yield from _histogram(metrics.turns.history, {})


def _store_times(metrics: Metrics) -> Values:
    for operation, histogram in list(metrics.turns.store.items()):
        yield from _histogram(histogram, {"operation": operation})


def _findings(metrics: Metrics) -> Values:
    for kind, count in metrics.findings().items():
        yield "", {"kind": kind}, count


def _reloads(metrics: Metrics) -> Values:
    for result, count in metrics.reloads.items():
        yield "", {"result": result}, count


def _build(metrics: Metrics) -> Values:
    yield "", {"version": metrics.version}, 1
