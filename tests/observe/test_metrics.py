"""What each event adds to the numbers, seen through the text that Prometheus gets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from msgspec import structs

from maitred.core.events import AnswerBegan, Answered, AtDoor, EndpointMoved, LegFailed, Tokenized
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint, EndpointState, Failure, Identity, Leg, Ticket, Usage
from maitred.observe.exposition import CLASS_OF, render
from maitred.observe.histogram import Histogram
from maitred.observe.metrics import (
    BANDS_MAX,
    ENDPOINTS_MAX,
    MODELS_MAX,
    TENANTS_MAX,
    Metrics,
    Slo,
)
from tests.observe.events import endpoint, over, queued, seat, tell


def lines(metrics: Metrics, name: str) -> list[str]:
    """The samples of one metric, without the prefix."""
    text = b"".join(render(metrics)).decode()
    prefix = f"maitred_{name}"
    return [line.removeprefix("maitred_") for line in text.splitlines() if line.startswith(prefix)]


def served(metrics: Metrics, ticket: Ticket, *, first: float, end: float, tokens: int) -> None:
    """A whole completed life: seated at once, first content and end after so many seconds."""
    leg = seat(ticket, 100.0)
    leg.answered_at = 100.0 + first
    if ticket.request.stream:
        tell(metrics, Answered(leg.answered_at, leg))
    tell(metrics, over(100.0 + end, ticket, Outcome.COMPLETED, Usage(100, 60, tokens)))


def moved(metrics: Metrics, which: Endpoint, after: EndpointState) -> None:
    before, which.state = which.state, after
    tell(metrics, EndpointMoved(1.0, which, before, after, ""))


def test_every_end_is_counted_by_model_api_and_outcome() -> None:
    metrics = Metrics("1")
    tell(metrics, AtDoor(1.0, "r0", Outcome.PATH_NOT_FOUND))
    tell(metrics, AtDoor(1.0, "r1", Outcome.QUEUE_FULL, Api.EMBEDDINGS, "qwen"))
    served(metrics, queued(), first=0.2, end=1.0, tokens=5)
    served(metrics, queued(), first=0.2, end=1.0, tokens=5)
    tell(metrics, over(130.0, queued(), Outcome.QUEUE_DEADLINE, None))
    assert lines(metrics, "requests_total") == [
        'requests_total{api="",model="",outcome="path_not_found"} 1.0',
        'requests_total{api="chat",model="qwen",outcome="completed"} 2.0',
        'requests_total{api="chat",model="qwen",outcome="queue_deadline"} 1.0',
        'requests_total{api="embeddings",model="qwen",outcome="queue_full"} 1.0',
    ]


def test_what_waits_and_runs_now_is_asked_when_it_is_read() -> None:
    waiting, running = {"qwen": 2}, {"qwen": 1, "other": 0}
    metrics = Metrics("1", queued=lambda: waiting, in_flight=lambda: running)
    assert lines(metrics, "in_flight") == ['in_flight{model="qwen"} 1.0', 'in_flight{model="other"} 0.0']
    assert lines(metrics, "queued") == ['queued{model="qwen"} 2.0']
    running["other"] = 3
    assert lines(metrics, "in_flight")[1] == 'in_flight{model="other"} 3.0'


def test_token_ids_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics("1")
    assert lines(metrics, "tokeniz") == []
    for missing in (None, None, NoTokens.BUSY, NoTokens.UNSUPPORTED):
        tell(metrics, Tokenized(1.0, "qwen", 0.004, missing))
    assert lines(metrics, "tokenized_total") == [
        'tokenized_total{model="qwen",result="busy"} 1.0',
        'tokenized_total{model="qwen",result="unsupported"} 1.0',
        'tokenized_total{model="qwen",result="found"} 2.0',
    ]
    told = lines(metrics, "tokenizing_seconds")
    assert 'tokenizing_seconds_bucket{le="0.002",model="qwen"} 0.0' in told
    assert 'tokenizing_seconds_bucket{le="0.005",model="qwen"} 4.0' in told


def test_every_reason_for_no_token_ids_is_documented() -> None:
    document = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    (row,) = re.findall(r"^\| `maitred_tokenized_total` .*$", document, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {
        "maitred_tokenized_total", "model", "result", "found", "tokens",
        *(reason.label for reason in NoTokens if reason is not NoTokens.OFF),
    }  # fmt: skip


def test_nothing_of_an_ended_ticket_is_kept() -> None:
    metrics, ticket = Metrics("1"), queued()
    before = sys.getrefcount(ticket)
    leg = seat(ticket, 100.0)
    tell(metrics, Answered(100.1, leg))
    tell(metrics, over(101.0, ticket, Outcome.COMPLETED, None))
    del leg
    ticket.legs = ()
    assert sys.getrefcount(ticket) == before


@pytest.mark.parametrize("again", [True, False])
def test_only_a_failure_that_is_tried_again_is_a_retry(again: bool) -> None:
    metrics, ticket = Metrics("1"), queued()
    leg = seat(ticket, 100.0)
    tell(metrics, LegFailed(100.1, leg, Failure(FailureKind.CONNECT), again=again))
    tell(metrics, over(130.0, ticket, Outcome.QUEUE_DEADLINE, None))
    assert lines(metrics, "retries_total") == [f'retries_total{{model="qwen"}} {float(again)}']


def test_a_bucket_holds_its_bound_and_what_is_beyond_all_goes_last() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.1, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(6.2)


@pytest.mark.parametrize("values", [[], [2.1], [0.5, 7.0, 1.0, 0.0, 2.0, 1.5, 1.0, 9.0], [3.0, 4.0]])
def test_many_are_counted_as_one_by_one(values: list[float]) -> None:
    together, alone = Histogram((1.0, 2.0, 3.0)), Histogram((1.0, 2.0, 3.0))
    for histogram in (together, alone):
        histogram.observe(0.1)
    for value in values:
        alone.observe(value)
    together.observe_all(values)
    assert (together.counts, together.total) == (alone.counts, alone.total)


def test_ends_that_differ_in_anything_are_counted_apart() -> None:
    metrics = labelled()
    tickets = [
        queued(),
        queued("other"),
        queued(api=Api.MESSAGES),
        queued(stream=False),
        asked_by("support"),
        asked_by("support", "batch"),
        asked_by("support", retry=1),
    ]
    ends = []
    for number, ticket in enumerate(tickets * 2):
        seat(ticket, 100.0).answered_at = 101.0
        outcome = Outcome.COMPLETED if number % 2 else Outcome.FAILED_TRUNCATED
        ends.append(over(103.0, ticket, outcome, Usage(10, 4, 3)))
    tell(metrics, *ends)
    alone = labelled()
    for end in ends:
        tell(alone, end)
    assert b"".join(render(metrics)) == b"".join(render(alone))
    assert 'requests_total{api="messages",model="qwen",outcome="completed"} 1.0' in lines(
        metrics, "requests_total"
    )
    assert lines(metrics, "output_token_seconds_count") == [
        'output_token_seconds_count{model="qwen"} 10.0',
        'output_token_seconds_count{model="other"} 2.0',
    ]


def test_buckets_are_cumulative_and_agree_with_the_count() -> None:
    metrics = Metrics("1")
    for wait_s in (0.004, 0.03, 500.0):
        ticket = queued()
        seat(ticket, 100.0 + wait_s)
        tell(metrics, over(700.0, ticket, Outcome.CLIENT_GONE, None))
    tell(metrics, over(130.0, queued(), Outcome.QUEUE_DEADLINE, None))  # never had a place
    text = lines(metrics, "queue_seconds")
    assert 'queue_seconds_bucket{band="other",le="0.005",model="qwen"} 1.0' in text
    assert 'queue_seconds_bucket{band="other",le="0.02",model="qwen"} 1.0' in text
    assert 'queue_seconds_bucket{band="other",le="0.05",model="qwen"} 2.0' in text
    assert 'queue_seconds_bucket{band="other",le="120.0",model="qwen"} 2.0' in text
    assert 'queue_seconds_bucket{band="other",le="+Inf",model="qwen"} 3.0' in text
    assert 'queue_seconds_count{band="other",model="qwen"} 3.0' in text


def test_a_stream_shows_first_token_pace_and_whole() -> None:
    metrics = Metrics("1")
    served(metrics, queued(), first=0.25, end=1.25, tokens=11)
    assert 'ttft_seconds_sum{model="qwen"} 0.25' in lines(metrics, "ttft_seconds")
    assert 'output_token_seconds_sum{model="qwen"} 0.1' in lines(metrics, "output_token_seconds")
    assert 'request_seconds_sum{model="qwen"} 1.25' in lines(metrics, "request_seconds")


@pytest.mark.parametrize(
    ("ticket", "tokens"),
    [(queued(stream=False), 11), (queued(), 1), (queued(sequences=2), 11)],
    ids=["plain answer", "one token", "two sequences"],
)
def test_no_pace_without_one_stream_of_tokens(ticket: Ticket, tokens: int) -> None:
    metrics = Metrics("1")
    served(metrics, ticket, first=0.25, end=1.25, tokens=tokens)
    assert 'output_token_seconds_count{model="qwen"} 0.0' in lines(metrics, "output_token_seconds")


def test_a_plain_answer_has_no_first_token_time() -> None:
    metrics = Metrics("1")
    served(metrics, queued(stream=False), first=1.0, end=1.0, tokens=11)
    assert 'ttft_seconds_count{model="qwen"} 0.0' in lines(metrics, "ttft_seconds")
    assert 'request_seconds_count{model="qwen"} 1.0' in lines(metrics, "request_seconds")


def test_the_first_token_after_reasoning_is_measured_from_arrival() -> None:
    metrics = Metrics("1")
    ticket = queued()
    tell(metrics, AnswerBegan(107.5, Leg(1, ticket, Endpoint("m/e", "m", "http://e"), 0, 1, ticket.arrival)))
    assert 'answer_token_seconds_sum{model="qwen"} 7.5' in lines(metrics, "answer_token_seconds")


def test_tokens_are_summed_by_kind() -> None:
    metrics = Metrics("1")
    served(metrics, queued(), first=0.2, end=1.0, tokens=5)
    served(metrics, queued(), first=0.2, end=1.0, tokens=7)
    assert lines(metrics, "tokens_total") == [
        'tokens_total{kind="prompt",model="qwen"} 200.0',
        'tokens_total{kind="cached",model="qwen"} 120.0',
        'tokens_total{kind="output",model="qwen"} 12.0',
    ]


@pytest.mark.parametrize(
    ("slo", "stream", "first", "end", "tokens", "met"),
    [
        (Slo(ttft_s=2.0, tpot_s=0.05), True, 1.9, 2.2, 9, 1),
        (Slo(ttft_s=2.0, tpot_s=0.05), True, 2.1, 2.2, 9, 0),
        (Slo(ttft_s=2.0, tpot_s=0.05), True, 1.0, 1.5, 9, 0),
        (Slo(ttft_s=2.0), True, 1.0, 60.0, 9, 1),
        (Slo(tpot_s=0.05), True, 60.0, 60.1, 9, 1),
        (Slo(ttft_s=2.0, tpot_s=0.05), False, 2.3, 2.3, 9, 1),
        (Slo(ttft_s=2.0, tpot_s=0.05), False, 2.5, 2.5, 9, 0),
        (Slo(ttft_s=2.0), False, 60.0, 60.0, 9, 1),
        (Slo(ttft_s=2.0), False, 2.1, 2.1, 0, 0),
    ],
)
def test_a_completed_request_within_its_slo_is_counted(
    slo: Slo, stream: bool, first: float, end: float, tokens: int, met: int
) -> None:
    metrics = Metrics("1", {"qwen": slo})
    served(metrics, queued(stream=stream), first=first, end=end, tokens=tokens)
    served(metrics, queued("other-model"), first=first, end=end, tokens=tokens)
    assert lines(metrics, "slo_met_total") == [f'slo_met_total{{model="qwen"}} {met}.0']


def test_only_completed_requests_meet_an_slo() -> None:
    metrics, ticket = Metrics("1", {"qwen": Slo(ttft_s=2.0)}), queued()
    tell(metrics, Answered(100.1, seat(ticket, 100.0)))
    tell(metrics, over(100.2, ticket, Outcome.FAILED_TRUNCATED, Usage(10, 0, 3)))
    assert lines(metrics, "slo_met_total") == ['slo_met_total{model="qwen"} 0.0']


def test_predicted_cached_tokens_stand_beside_the_reported_ones() -> None:
    metrics, one = Metrics("1"), endpoint()
    moved(metrics, one, EndpointState.READY)
    for thought, exact, outcome, said in (
        (64, False, Outcome.COMPLETED, Usage(100, 32, 1)),
        (80, True, Outcome.COMPLETED, Usage(100, 80, 1)),
        (96, True, Outcome.COMPLETED, Usage(100, 48, 1, exact=False)),
        (96, True, Outcome.FAILED_TRUNCATED, Usage(100, 48, 1)),
        (-1, False, Outcome.COMPLETED, Usage(100, 48, 1)),
    ):
        ticket = queued()
        ticket.prompt_tokens = 100
        leg = seat(ticket, 101.0, one)
        leg.thought, leg.exact, leg.fresh = thought, exact, 100 - thought
        tell(metrics, over(102.0, ticket, outcome, said))
    assert lines(metrics, "cached_tokens_total") == [
        f'cached_tokens_total{{endpoint="{one.name}",index="{index}",kind="{kind}"}} {tokens}.0'
        for index, kind, tokens in (
            ("approximate", "predicted", 64),
            ("approximate", "reported", 32),
            ("precise", "predicted", 80),
            ("precise", "reported", 80),
        )
    ]


def test_an_endpoint_shows_its_state_and_load_until_it_is_gone() -> None:
    metrics, one = Metrics("1"), endpoint(state=EndpointState.PROBING)
    moved(metrics, one, EndpointState.READY)
    one.running = 3
    assert lines(metrics, "endpoint_") == [
        'endpoint_state{endpoint="qwen/127.0.0.1:8001",state="probing"} 0.0',
        'endpoint_state{endpoint="qwen/127.0.0.1:8001",state="ready"} 1.0',
        'endpoint_state{endpoint="qwen/127.0.0.1:8001",state="ejected"} 0.0',
        'endpoint_state{endpoint="qwen/127.0.0.1:8001",state="draining"} 0.0',
        'endpoint_in_flight{endpoint="qwen/127.0.0.1:8001"} 3.0',
        'endpoint_share{endpoint="qwen/127.0.0.1:8001"} 1.0',
        'endpoint_slowness{endpoint="qwen/127.0.0.1:8001"} 1.0',
    ]
    tell(metrics, LegFailed(1.0, seat(queued(), 1.0, one), Failure(FailureKind.STATUS_5XX), again=False))
    assert lines(metrics, "leg_failures_total") == [
        'leg_failures_total{endpoint="qwen/127.0.0.1:8001",kind="status_5xx"} 1.0'
    ]
    moved(metrics, one, EndpointState.GONE)
    assert lines(metrics, "endpoint_") == lines(metrics, "leg_failures_total") == []


def test_the_end_of_an_old_endpoint_does_not_take_its_successor_along() -> None:
    metrics, old, new = Metrics("1"), endpoint(), endpoint()
    moved(metrics, old, EndpointState.DRAINING)
    moved(metrics, new, EndpointState.READY)
    moved(metrics, old, EndpointState.GONE)
    assert 'endpoint_state{endpoint="qwen/127.0.0.1:8001",state="ready"} 1.0' in lines(metrics, "endpoint_")


def test_models_beyond_the_bound_share_one_label() -> None:
    metrics = Metrics("1")
    for number in range(MODELS_MAX + 3):
        tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, Api.CHAT, f"m{number}"))
    text = lines(metrics, "requests_total")
    assert len(text) == MODELS_MAX + 1
    assert text[-1] == 'requests_total{api="chat",model="other",outcome="queue_full"} 3.0'


def test_endpoints_beyond_the_bound_share_their_failures() -> None:
    metrics = Metrics("1")
    for number in range(ENDPOINTS_MAX + 3):
        one = endpoint(f"qwen/h:{number}")
        moved(metrics, one, EndpointState.READY)
        tell(metrics, LegFailed(1.0, seat(queued(), 1.0, one), Failure(FailureKind.RESET), again=False))
    failures = lines(metrics, "leg_failures_total")
    assert len(failures) == len(lines(metrics, "endpoint_in_flight")) + 1 == ENDPOINTS_MAX + 1
    assert failures[-1] == 'leg_failures_total{endpoint="other",kind="reset"} 3.0'


def test_loop_lag_is_the_last_and_the_longest() -> None:
    metrics = Metrics("1")
    metrics.loop_lag(0.5)
    metrics.loop_lag(0.25)
    assert lines(metrics, "loop_lag") == ["loop_lag_seconds 0.25", "loop_lag_max_seconds 0.5"]


def test_what_lives_elsewhere_is_asked_when_rendered() -> None:
    connections = [3]
    metrics = Metrics(
        "1", queued=lambda: {"qwen": 7}, readings={"client_connections": lambda: connections[0]}
    )
    connections[0] = 4
    assert lines(metrics, "client_connections") == ["client_connections 4.0"]
    assert lines(metrics, "queued") == ['queued{model="qwen"} 7.0']


def test_an_undeclared_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="mystery"):
        Metrics("1", readings={"mystery": lambda: 1.0})


# -- tenants and bands --------------------------------------------------------------------------------


def asked_by(tenant: str, band: str = "chat", retry: int = 0) -> Ticket:
    ticket = queued()
    ticket.identity = Identity(tenant)
    ticket.band = band
    ticket.request = structs.replace(ticket.request, retry=retry)
    return ticket


def labelled() -> Metrics:
    metrics = Metrics("1")
    metrics.label(["support", "nightly"], ["chat", "batch"])
    return metrics


def test_tenants_are_told_who_was_served_and_who_was_not() -> None:
    metrics = labelled()
    served(metrics, asked_by("support"), first=0.2, end=1.0, tokens=5)
    for outcome in (Outcome.QUEUE_DEADLINE, Outcome.CLIENT_GONE, Outcome.FAILED_UPSTREAM):
        tell(metrics, over(130.0, asked_by("support"), outcome, None))
    tell(metrics, AtDoor(1.0, "r", Outcome.RATE_LIMITED, Api.CHAT, "qwen", "nightly"))
    tell(metrics, AtDoor(1.0, "r", Outcome.BAD_REQUEST, Api.CHAT, "", "nightly"))
    tell(metrics, AtDoor(1.0, "r", Outcome.UNAUTHENTICATED, Api.CHAT))  # whose it is nobody knows
    assert lines(metrics, "tenant_requests_total") == [
        'tenant_requests_total{class="completed",tenant="support"} 1.0',
        'tenant_requests_total{class="refused",tenant="support"} 1.0',
        'tenant_requests_total{class="failed",tenant="support"} 1.0',
        'tenant_requests_total{class="gone",tenant="support"} 1.0',
        'tenant_requests_total{class="invalid",tenant="nightly"} 1.0',
        'tenant_requests_total{class="refused",tenant="nightly"} 1.0',
    ]
    assert lines(metrics, "tenant_tokens_total") == [
        'tenant_tokens_total{kind="prompt",tenant="support"} 100.0',
        'tenant_tokens_total{kind="cached",tenant="support"} 60.0',
        'tenant_tokens_total{kind="output",tenant="support"} 5.0',
    ]


def test_bands_are_told_who_waited_and_who_was_refused() -> None:
    metrics = labelled()
    for band, wait_s in (("chat", 0.0), ("batch", 20.0)):
        ticket = asked_by("support", band)
        seat(ticket, 100.0 + wait_s)
        tell(metrics, over(130.0, ticket, Outcome.COMPLETED, None))
    tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, Api.CHAT, "qwen", "support", "", "batch"))
    tell(metrics, AtDoor(1.0, "r", Outcome.BAD_REQUEST, Api.CHAT))
    assert 'queue_seconds_sum{band="chat",model="qwen"} 0.0' in lines(metrics, "queue_seconds")
    assert 'queue_seconds_sum{band="batch",model="qwen"} 20.0' in lines(metrics, "queue_seconds")
    assert lines(metrics, "band_requests_total") == [
        'band_requests_total{band="chat",outcome="completed"} 1.0',
        'band_requests_total{band="batch",outcome="completed"} 1.0',
        'band_requests_total{band="batch",outcome="queue_full"} 1.0',
    ]


def test_every_outcome_has_its_class() -> None:
    assert len(CLASS_OF) == len(Outcome)
    of = {outcome: CLASS_OF[outcome.index] for outcome in Outcome}
    assert [of[o] for o in (Outcome.QUOTA_SPENT, Outcome.NO_ENDPOINT, Outcome.EVICTED)] == ["refused"] * 3
    assert [of[o] for o in (Outcome.MODEL_NOT_FOUND, Outcome.ENGINE_REFUSED)] == ["invalid"] * 2
    assert [of[o] for o in (Outcome.FAILED_TRUNCATED, Outcome.QUARANTINED)] == ["failed"] * 2


def test_what_clients_send_again_is_counted_whether_served_or_refused() -> None:
    metrics = labelled()
    tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, Api.CHAT, "qwen", retry=1))
    for retry in (0, 1, 2):
        tell(metrics, over(130.0, asked_by("support", retry=retry), Outcome.QUEUE_DEADLINE, None))
    assert lines(metrics, "client_retries_total") == ['client_retries_total{model="qwen"} 3.0']


def test_case_b28_no_client_can_make_a_series() -> None:
    metrics = labelled()
    sizes = set()
    for number in range(5000):
        ticket = asked_by(f"t{number}", f"b{number}")
        seat(ticket, 100.0)
        tell(metrics, over(130.0, ticket, Outcome.COMPLETED, Usage(1, 0, 1)))
        names = f"u{number}", f"k{number}", f"c{number}"
        tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, Api.CHAT, "qwen", *names))
        if number in (0, 4999):
            sizes.add(b"".join(render(metrics)).count(b"\n"))
    assert len(sizes) == 1
    assert lines(metrics, "tenant_requests_total") == [
        'tenant_requests_total{class="completed",tenant="other"} 5000.0',
        'tenant_requests_total{class="refused",tenant="other"} 5000.0',
    ]
    assert b"k4999" not in b"".join(render(metrics))


def test_case_b28_even_of_those_configured_there_are_not_too_many() -> None:
    metrics = Metrics("1")
    metrics.label((f"t{number}" for number in range(1000)), (f"b{number}" for number in range(1000)))
    assert (len(metrics.tenants), len(metrics.bands)) == (TENANTS_MAX + 1, BANDS_MAX + 1)


def test_what_was_counted_stays_when_others_are_configured() -> None:
    metrics = labelled()
    for tenant in ("support", "new"):
        tell(metrics, over(130.0, asked_by(tenant), Outcome.QUEUE_DEADLINE, None))
    metrics.label(["support", "new"], ["chat"])
    for tenant in ("support", "new", "nightly"):
        tell(metrics, over(130.0, asked_by(tenant), Outcome.QUEUE_DEADLINE, None))
    assert lines(metrics, "tenant_requests_total") == [
        'tenant_requests_total{class="refused",tenant="other"} 2.0',
        'tenant_requests_total{class="refused",tenant="support"} 2.0',
        'tenant_requests_total{class="refused",tenant="new"} 1.0',
    ]
    assert lines(metrics, "band_requests_total") == [
        'band_requests_total{band="chat",outcome="queue_deadline"} 5.0'
    ]


def test_where_tickets_are_counted_is_remembered_of_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maitred.observe.metrics.PLACES_MAX", 2)
    metrics = Metrics("1")
    for number in range(9):
        tell(metrics, over(130.0, asked_by(f"t{number}"), Outcome.QUEUE_DEADLINE, None))
        assert len(metrics.places) <= 2
    assert lines(metrics, "tenant_requests_total") == [
        'tenant_requests_total{class="refused",tenant="other"} 9.0'
    ]
