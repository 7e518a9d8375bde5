"""The figures of requests: what each one counts, and when a percentile is sure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.config.tree import Slo
from maitred.core.outcome import Outcome
from maitred.sim.arrival import Record
from maitred.sim.measure import part, samples_min, tpot_s, within
from tests.sim.finished import MODEL, answered, arrival


@pytest.mark.parametrize(("share", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_a_percentile_needs_so_many_requests(share: float, needed: int) -> None:
    assert samples_min(share) == needed


def test_every_request_is_counted_once_by_how_it_ended() -> None:
    ends = [
        answered(arrival()),
        Record(arrival(), Outcome.QUEUE_FULL, 0.0),
        Record(arrival(), Outcome.QUEUE_DEADLINE, 30.0),
        Record(arrival(), Outcome.FAILED_UPSTREAM, 1.0, attempts=2),
        Record(arrival(), Outcome.QUEUE_DEADLINE, 30.0, attempts=1),
        Record(arrival(), Outcome.CLIENT_GONE, 1.0, attempts=1, preemptions=3),
    ]
    found = part(ends, {})
    counts = {
        name: found.figures[name].mean for name in ("requests", "completed", "left", "refused", "failed")
    }
    assert counts == {"requests": 6, "completed": 1, "left": 1, "refused": 2, "failed": 2}
    assert {name: figure.mean for name, figure in found.refused.items()} == {
        "queue_full": 1,
        "queue_deadline": 1,
    }
    assert {name: figure.mean for name, figure in found.failed.items()} == {
        "failed_upstream": 1,
        "queue_deadline": 1,
    }
    assert found.figures["preemptions"].mean == 3


def test_times_are_order_statistics_and_say_when_they_are_unsure() -> None:
    records = [answered(arrival(), ttft_s=1 + n / 100) for n in range(100)]
    figures = part(records[::-1], {}).figures
    assert figures["ttft_p50_s"].mean == pytest.approx(1.49)
    assert figures["ttft_p90_s"].mean == pytest.approx(1.89)
    assert figures["ttft_p99_s"].mean == pytest.approx(1.98)
    assert figures["ttft_mean_s"].mean == pytest.approx(1.495)
    assert figures["queue_p50_s"].mean == pytest.approx(1.49 / 2)
    assert figures["tpot_p50_s"].mean == pytest.approx(0.1)
    assert figures["e2e_p90_s"].mean == pytest.approx(1.89 + 10 * 0.1)
    assert [figures[f"ttft_{of}_s"].bounded for of in ("p50", "p90", "p99")] == [True, True, False]


def test_the_first_token_is_no_part_of_the_pace() -> None:
    assert tpot_s(answered(arrival(), ttft_s=5.0, tpot_s=0.2)) == pytest.approx(0.2)
    assert tpot_s(answered(arrival(), tokens=1)) is None
    assert tpot_s(Record(arrival(), Outcome.FAILED_TRUNCATED, 9.0, ttft_s=1.0, tokens=5)) is None


def test_rates_are_over_the_time_until_the_last_is_over() -> None:
    """Tokens of answers that broke off reached their clients, too."""
    broken = Record(arrival(12.0), Outcome.FAILED_TRUNCATED, 20.0, ttft_s=1.0, tokens=30, attempts=1)
    figures = part([answered(arrival(10.0), tokens=70, tpot_s=0.01), broken], {}).figures
    assert figures["output_tokens_per_s"].mean == 10


def test_goodput_counts_against_all_that_were_sent() -> None:
    records = [
        answered(arrival(0.0), ttft_s=1.0, tpot_s=0.1),
        answered(arrival(0.0), ttft_s=3.0, tpot_s=0.1),
        answered(arrival(0.0), ttft_s=1.0, tpot_s=0.9),
        Record(arrival(0.0), Outcome.QUEUE_FULL, 0.0),
        answered(arrival(0.0, model="unpromised")),
    ]
    figures = part(records, {MODEL: Slo(2.0, 0.2), "unpromised": Slo()}).figures
    assert figures["goodput_share"].mean == 0.25
    assert figures["goodput_per_s"].mean == pytest.approx(1 / 10)
    assert "goodput_share" not in part(records, {}).figures


def test_an_answer_in_one_piece_must_come_while_a_stream_would_have() -> None:
    plain = arrival(stream=False)
    record = Record(plain, Outcome.COMPLETED, 3.0, tokens=11, attempts=1)
    assert within(record, Slo(2.0, 0.1))
    assert not within(record, Slo(1.9, 0.1))
    assert within(record, Slo(2.0))


def test_cached_is_of_the_prompts_that_were_answered() -> None:
    records = [
        answered(arrival(), cached=750),
        answered(arrival()),
        Record(arrival(), Outcome.QUEUE_FULL, 0.0),
    ]
    assert part(records, {}).figures["cached_share"].mean == 0.375


def test_what_never_happened_has_no_figure() -> None:
    figures = part([Record(arrival(), Outcome.QUEUE_FULL, 0.0)], {}).figures
    assert set(figures) == {"requests", "completed", "left", "refused", "failed", "preemptions"}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=400))
def test_percentiles_are_values_that_were_seen_and_in_order(times: list[float]) -> None:
    figures = part([answered(arrival(), ttft_s=time) for time in times], {}).figures
    p50, p90, p99 = (figures[f"ttft_{of}_s"].mean for of in ("p50", "p90", "p99"))
    assert {p50, p90, p99} <= set(times)
    assert p50 <= p90 <= p99
    assert sum(time <= p90 for time in times) >= 0.9 * len(times)
