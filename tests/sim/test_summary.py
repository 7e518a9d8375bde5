"""Seeds together, stages as a ladder, and configurations against each other."""

from __future__ import annotations

import msgspec
import pytest

from maitred.core.outcome import Outcome
from maitred.sim.arrival import Record
from maitred.sim.run import EndpointUse, Run
from maitred.sim.summary import compare, ladder, summarize, to_json
from tests.sim.finished import answered, arrival, busy_day, run


def constant(ttft_s: float, seed: int, requests: int = 10) -> Run:
    """Equal requests in one seed."""
    return run([answered(arrival(), ttft_s) for _ in range(requests)], seed=seed)


def test_a_figure_is_the_mean_of_the_seeds_with_their_range() -> None:
    summary = summarize([constant(1.0, 1), constant(4.0, 2), constant(1.0, 3)])
    figure = summary.whole.figures["ttft_p50_s"]
    assert (figure.mean, figure.low, figure.high) == (2, 1, 4)
    assert summary.seeds == [1, 2, 3]


def test_a_percentile_is_sure_only_if_it_is_in_every_seed() -> None:
    sure, unsure = constant(1.0, 1, 36), constant(1.0, 2, 35)
    assert summarize([sure, sure]).whole.figures["ttft_p90_s"].bounded
    assert not summarize([sure, unsure]).whole.figures["ttft_p90_s"].bounded


def test_an_outcome_that_a_seed_did_not_see_it_saw_no_times() -> None:
    refused = Record(arrival(), Outcome.QUEUE_FULL, 0.0)
    summary = summarize([run([answered(arrival()), refused, refused]), run([answered(arrival())])])
    figure = summary.whole.refused["queue_full"]
    assert (figure.mean, figure.low, figure.high) == (1, 0, 2)


def test_parts_add_up_to_the_whole() -> None:
    summary = summarize([busy_day("a", 1)])
    for parts in (summary.tenants, summary.bands, summary.models, summary.stages):
        for name in ("requests", "completed", "refused", "failed"):
            assert sum(p.figures[name].mean for p in parts.values()) == summary.whole.figures[name].mean
    assert list(summary.tenants) == ["chat", "nightly"]
    assert list(summary.stages) == [0, 1, 2]
    assert set(summary.tenants["nightly"].refused) == {"queue_full"}
    assert not summary.tenants["chat"].refused


def test_names_are_in_order() -> None:
    records = [answered(arrival(tenant=tenant)) for tenant in ("c", "a", "b")]
    assert list(summarize([run(records)]).tenants) == ["a", "b", "c"]


def test_endpoints_are_busy_for_a_part_of_the_run() -> None:
    uses = [EndpointUse("a", "h100", 5.0, 3, 30, 100, 25, 1), EndpointUse("b", "h100", 10.0, 3, 30, 0, 0, 0)]
    summary = summarize([run([answered(arrival())], endpoints=uses, began_at=10.0, ended_at=20.0)])
    assert summary.endpoints["a"]["busy_share"].mean == 0.5
    assert summary.endpoints["a"]["cached_share"].mean == 0.25
    assert summary.endpoints["b"]["cached_share"].mean == 0
    assert summary.whole.figures["busy_share"].mean == 0.75


def test_a_run_without_a_request_has_a_summary() -> None:
    assert summarize([run([])]).whole.figures == {}


def test_the_ladder_goes_by_rate_and_leaves_out_what_has_none() -> None:
    rows = ladder(summarize([busy_day("a", 1)]), {1: 20.0, 2: 10.0, 7: 5.0})
    assert [row.rate for row in rows] == [10.0, 20.0]
    assert all(row.requests == 100 and row.output_tokens_per_s > 0 for row in rows)
    assert all(row.ttft_p50_s is not None and 0.1 < row.ttft_p50_s < row.ttft_p90_s for row in rows)  # type: ignore[operator]
    names = ["rate", "ttft_p50_s", "ttft_p90_s", "output_tokens_per_s", "requests", "refused", "failed"]
    assert list(msgspec.to_builtins(rows[0])) == [*names, "preemptions"]


def test_a_ladder_shows_what_was_refused_throughout() -> None:
    [row] = ladder(summarize([run([Record(arrival(), Outcome.QUEUE_FULL, 0.0)])]), {0: 3.0})
    assert (row.ttft_p50_s, row.output_tokens_per_s, row.refused) == (None, 0, 1)


@pytest.mark.parametrize(
    ("base", "other", "verdict"),
    [
        ((2.0, 3.0), (1.0, 1.9), "better"),
        ((1.0, 1.9), (2.0, 3.0), "worse"),
        ((1.0, 2.0), (2.0, 3.0), "cannot tell"),
        ((1.0, 3.0), (2.0, 2.1), "cannot tell"),
        ((1.0, 2.0), (2.0, 1.0), "same"),
        ((1.0,), (2.0,), "cannot tell"),
    ],
)
def test_a_verdict_needs_ranges_that_do_not_overlap(
    base: tuple[float, ...], other: tuple[float, ...], verdict: str
) -> None:
    one, two = (summarize([constant(ttft, n) for n, ttft in enumerate(config)]) for config in (base, other))
    assert compare(one, two)["ttft_p50_s"].verdict == verdict


def test_more_is_better_where_it_is() -> None:
    slow, fast = ([constant(ttft, seed) for seed in (1, 2)] for ttft in (9.0, 1.0))
    change = compare(summarize(slow), summarize(fast))["output_tokens_per_s"]
    assert change.verdict == "better"
    assert change.share == pytest.approx(4.0)
    assert compare(summarize(slow), summarize(fast))["failed"].share is None


def test_the_same_runs_give_the_same_bytes() -> None:
    first, second = ([summarize([busy_day("a", 1), busy_day("a", 2)])] for _ in range(2))
    assert to_json(first) == to_json(second)
    assert to_json(first) != to_json([summarize([busy_day("a", 1), busy_day("a", 3)])])


def test_json_has_no_more_digits_than_mean_anything() -> None:
    [read] = msgspec.json.decode(to_json([summarize([constant(1 / 3, 1), constant(1.0, 2)])]))
    assert read["name"] == "config"
    assert read["whole"]["figures"]["ttft_p50_s"] == {
        "mean": 0.666667,
        "low": 0.333333,
        "high": 1,
    }
    assert read["whole"]["figures"]["ttft_p99_s"]["bounded"] is False
