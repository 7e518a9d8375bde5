"""The figures of a run, from shots made by hand."""

from __future__ import annotations

import pytest

from maitred.bench.figures import Figure, Part, Times, part, summarize
from maitred.bench.shot import UNFINISHED, Ending, Run, Shot
from tests.bench.finished import answered, busy_day, lost, mixed, run


def whole(shots: list[Shot], **more: object) -> Part:
    """The figures of all of these."""
    return summarize(run(shots, **more)).whole


def times(shots: list[Shot], name: str, **more: object) -> Times:
    return whole(shots, **more).times[name]


def test_times_count_from_when_it_was_due_and_from_when_it_was_sent() -> None:
    shot = answered(10.0, ttft_s=2.5, sent_at=12.0)
    assert times([shot], "ttft_s").mean.value == 2.5
    assert times([shot], "ttft_sent_s").mean.value == 0.5
    assert times([shot], "lag_s").most == 2.0
    assert times([shot], "e2e_s").mean.value == pytest.approx(2.7)


def test_tpot_leaves_the_first_token_out() -> None:
    assert times([answered(tpot_s=0.05)], "tpot_s").mean.value == pytest.approx(0.05)
    assert "tpot_s" not in whole([answered(tokens=1)]).times


def test_the_time_goes_to_queue_prefill_and_decode() -> None:
    shots = [answered(ttft_s=0.5, tpot_s=0.02, queue_s=0.1, sent_at=0.0)]
    found = whole(shots).times
    assert [found[name].mean.value for name in ("queue_s", "prefill_s", "decode_s")] == [
        pytest.approx(value) for value in (0.1, 0.4, 0.2)
    ]
    assert times([answered(prefill_s=0.3)], "prefill_s").mean.value == 0.3  # as the server tells
    assert {"queue_s", "prefill_s"}.isdisjoint(whole([answered()]).times)


def test_the_answer_of_a_model_that_thinks_has_a_time_of_its_own() -> None:
    assert times([answered(answer_at=3.0)], "answer_s").mean.value == 3.0
    assert "answer_s" not in whole([answered()]).times


def test_gaps_are_of_all_answers_together_and_have_no_interval() -> None:
    shots = [answered(reads_at=(0.2, 0.3, 0.5)), answered(reads_at=(0.2, 0.21))]
    itl = times(shots, "itl_s")
    assert itl.count == 3
    assert itl.most == pytest.approx(0.2)
    middle = itl.percentiles["p50"]
    assert middle.value == pytest.approx(0.1)
    assert (middle.low, middle.high, middle.bounded) == (None, None, True)
    assert "itl_s" not in whole([answered()]).times


def test_who_was_not_served_waits_for_ever_in_adjusted_figures() -> None:
    shots = [answered(ttft_s=0.1 + n / 1000) if n < 90 else lost() for n in mixed(100)]
    found = whole(shots).times
    assert found["ttft_s"].count == 90
    adjusted = found["ttft_adjusted_s"]
    assert adjusted.count == 100
    assert adjusted.percentiles["p50"].value == pytest.approx(0.149)
    assert adjusted.percentiles["p90"].value == pytest.approx(0.189)
    assert adjusted.percentiles["p90"].high is None
    assert adjusted.percentiles["p90"].bounded
    assert adjusted.percentiles["p99"] == Figure(None)
    assert (adjusted.mean, adjusted.most) == (Figure(None), None)
    assert "ttft_adjusted_s" not in whole([answered()]).times


def test_what_failed_on_the_way_has_a_ttft_but_no_adjusted_one() -> None:
    shots = [answered(), answered(ending=Ending.FAILED, why="reset", ttft_s=0.9)]
    found = whole(shots).times
    assert found["ttft_s"].most == 0.9
    assert found["ttft_adjusted_s"].percentiles["p90"] == Figure(None)
    assert found["e2e_s"].count == found["tpot_s"].count == 1


def test_a_percentile_of_too_few_is_marked() -> None:
    few, enough = ([answered(ttft_s=0.1 + n / 1000) for n in mixed(count)] for count in (367, 368))
    assert not times(few, "ttft_s").percentiles["p99"].bounded
    found = times(enough, "ttft_s").percentiles["p99"]
    assert found.bounded
    assert found.low is not None
    assert found.high is not None
    assert found.low < (found.value or 0) < found.high


def test_requests_that_hang_together_count_for_less() -> None:
    """As many slow ones, and as many good: but in a row, as when a queue stands for half of the time."""
    even, queue = ([answered(ttft_s=0.1 + n / 1000) for n in order] for order in (mixed(400), range(400)))
    parts = [whole(shots, slo_ttft_s=0.3) for shots in (even, queue)]
    p90s = [part.times["ttft_s"].percentiles["p90"] for part in parts]
    assert p90s[0].value == p90s[1].value
    assert [p90.bounded for p90 in p90s] == [True, False]
    means = [part.times["ttft_s"].mean for part in parts]
    assert means[1].high - means[1].value > 3 * (means[0].high - means[0].value)  # type: ignore[operator]
    shares = [part.rates["goodput_share"] for part in parts]
    assert shares[1].high - shares[1].low > 3 * (shares[0].high - shares[0].low)  # type: ignore[operator]


def test_goodput_is_of_all_that_were_sent() -> None:
    shots = [
        answered(ttft_s=1.0, tpot_s=0.05),
        answered(ttft_s=1.1),
        answered(tpot_s=0.06),
        lost(ending=Ending.REFUSED),
    ]
    rates = whole(shots, slo_ttft_s=1.0, slo_tpot_s=0.05).rates
    assert rates["goodput_share"].value == 0.25
    low, high = rates["goodput_share"].low, rates["goodput_share"].high
    assert low is not None
    assert high is not None
    assert 0.0 < low < 0.25 < high < 0.75
    assert "goodput_share" not in whole(shots).rates


@pytest.mark.parametrize(("e2e_s", "good"), [(1.4, 1.0), (1.6, 0.0)])
def test_an_answer_in_one_piece_is_judged_as_a_whole(e2e_s: float, good: float) -> None:
    shot = answered(first_at=None, answer_at=None, over_at=e2e_s)
    rates = whole([shot], slo_ttft_s=1.0, slo_tpot_s=0.05).rates
    assert rates["goodput_share"].value == good


def test_rates_are_over_the_time_from_the_first_to_the_last() -> None:
    found = whole([answered(100.0, over_at=101.0), answered(101.0, over_at=102.0, cached_tokens=500)])
    assert found.span_s == 2.0
    assert found.rates["requests_per_s"].value == 1.0
    assert found.rates["output_tokens_per_s"].value == 11.0
    assert found.rates["cached_share"].value == 0.5  # of the one that the server told of


def test_reasons_are_counted_the_most_frequent_first() -> None:
    shots = [
        lost(why="reset"),
        lost(why="truncated"),
        lost(why="truncated"),
        lost(ending=Ending.REFUSED, why="queue_full"),
        lost(ending=Ending.LEFT, why="patience"),
    ]
    found = whole(shots)
    assert (found.requests, found.completed, found.refused, found.failed, found.left) == (5, 0, 1, 3, 1)
    assert list(found.why["failed"].items()) == [("truncated", 2), ("reset", 1)]
    assert found.why["refused"] == {"queue_full": 1}
    assert found.why["left"] == {"patience": 1}


def test_warm_up_and_what_the_end_cut_off_are_in_no_figure() -> None:
    shots = [answered(warm_up=True), answered(stage=1), lost(stage=1, ending=Ending.LEFT, why=UNFINISHED)]
    summary = summarize(run(shots))
    assert summary.whole.requests == 1
    assert list(summary.stages) == [1]
    assert summary.unfinished == 1


def test_stages_are_numbered_by_whoever_has_them() -> None:
    """A trace is stage 0 all along, be the common stage 0 a warm-up or not."""
    shots = [answered(warm_up=True), answered(stage=1), answered(kind="trace"), answered(kind="trace")]
    summary = summarize(run(shots, apart=("trace",)))
    assert {kind: part.requests for kind, part in summary.classes.items()} == {"chat": 1, "trace": 2}
    assert {stage: part.requests for stage, part in summary.stages.items()} == {1: 1}


def test_a_percentile_tells_how_many_requests_it_rests_on() -> None:
    together = [answered(float(n), ttft_s=0.1 + n // 20 * 0.01) for n in range(400)]
    found = times(together, "ttft_s").percentiles["p50"]
    assert found.independent is not None
    assert found.independent < 100
    assert (
        times([answered(ttft_s=n / 100) for n in mixed(400)], "ttft_s").percentiles["p50"].independent is None
    )


def test_classes_tenants_and_stages_make_the_whole() -> None:
    summary = summarize(busy_day())
    for groups in (summary.classes, summary.tenants, summary.stages):
        assert len(groups) > 1
        for name in ("requests", "completed", "refused", "failed"):
            assert sum(getattr(group, name) for group in groups.values()) == getattr(summary.whole, name) > 0


@pytest.mark.parametrize("shots", [[], [lost()], [lost(ending=Ending.LEFT, why=UNFINISHED)]])
def test_a_run_of_nothing_has_figures_too(shots: list[Shot]) -> None:
    empty: Run = run(shots, slo_ttft_s=1.0)
    found = part(empty.measured(), empty)
    assert found.completed == 0
    assert "ttft_s" not in found.times
