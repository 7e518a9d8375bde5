"""The text itself: its pieces, its escapes, and that it is documented."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from maitred.core.events import Answered, AtDoor, EndpointMoved, LegFailed, Tokenized
from maitred.core.line import Line
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.words import EndpointState, Failure, Load, Usage
from maitred.observe.budgets import Budget
from maitred.observe.exposition import PIECE_LINES, families, render
from maitred.observe.findings import Findings
from maitred.observe.kv_events import COUNTS, figures
from maitred.observe.metrics import READINGS, Metrics, Slo
from tests.observe.events import endpoint, over, queued, seat, tell

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def lived_in() -> Metrics:
    """Metrics in which every family has a sample."""
    readings, now = dict.fromkeys(READINGS, float), {"qwen": 0}
    findings = Findings()
    slos = {"qwen": Slo(ttft_s=1.0)}
    budget = Budget("tenant", "t", "usd_per_day", 5.0, 1.25)
    heard = figures("qwen/a:1")
    heard.heard_at, heard.lag_s, heard.blocks, heard.counts["gaps"] = 102.5, 0.25, 7, 2
    metrics = Metrics(
        "1.2.3",
        slos,
        lambda: now,
        lambda: now,
        readings,
        findings.counts,
        lambda: 103.0,
        lambda: [budget],
        lambda: [heard, figures("qwen/b:1")],
    )
    ticket, where = queued(), endpoint()
    where.load, where.observed_at = Load(3, 2, 0.25), 101.0
    where.reads, where.writes = Line(0.1, 0.001, 1, 0.25), Line(0.02, 0.001, 1, 0.125)
    tell(metrics, EndpointMoved(0.0, where, EndpointState.PROBING, EndpointState.READY, ""))
    metrics.mcp_called("github", "completed", 0.25)
    tell(metrics, Tokenized(100.0, "qwen", 0.01, None))
    leg = seat(ticket, 100.0, where)
    tell(metrics, Answered(100.1, leg))
    tell(metrics, LegFailed(100.2, leg, Failure(FailureKind.TRUNCATED), again=False))
    tell(metrics, over(100.2, ticket, Outcome.FAILED_TRUNCATED, Usage(1, 0, 2)))
    seat(ticket, 100.3, where).thought = 0
    tell(metrics, over(100.4, ticket, Outcome.COMPLETED, Usage(20, 16, 2)))
    metrics.turns.end(Outcome.COMPLETED)
    metrics.turns.recalled(2)
    metrics.turns.stored("history", 0.001)
    return metrics


def test_every_metric_is_documented_as_it_is_and_nothing_else() -> None:
    rows = re.findall(r"^\| `(maitred_\w+)` \| (\w+) \| ([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: (kind, sorted(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    actual = {
        family.name: (family.kind, sorted(next(family.read())[1].keys() - {"le"}))
        for family in families(lived_in())
    }
    assert documented == actual


def test_every_kind_of_failure_is_documented_and_nothing_else() -> None:
    [row] = re.findall(
        r"^\| `maitred_leg_failures_total` .*`kind` is (.*)\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", row)) == {kind.label for kind in FailureKind}


def test_the_text_is_what_prometheus_reads() -> None:
    text = b"".join(render(lived_in())).decode()
    read = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(read) == len(families(lived_in()))
    assert read["maitred_requests"].type == "counter"
    assert read["maitred_ttft_seconds"].type == "histogram"
    assert text.count("# TYPE maitred_requests_total counter\n") == 1
    assert 'maitred_build_info{version="1.2.3"} 1.0\n' in text


def test_what_an_engine_says_has_its_age() -> None:
    text = b"".join(render(lived_in())).decode()
    said = dict(re.findall(r"^maitred_engine_(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
    assert said == {"running": "3.0", "waiting": "2.0", "kv_use": "0.25", "metrics_age_seconds": "2.0"}


def test_what_is_learned_of_an_endpoint_has_its_error_and_nothing_is_said_before() -> None:
    text = b"".join(render(lived_in())).decode()
    assert re.findall(r"^maitred_(\w+_error)\{[^}]*\} (\S+)$", text, re.MULTILINE) == [
        ("ttft_prediction_error", "0.25"),
        ("tpot_prediction_error", "0.125"),
    ]
    metrics = lived_in()
    [series] = metrics.endpoints.values()
    series.endpoint = endpoint()
    text = b"".join(render(metrics)).decode()
    assert not re.findall(r"^maitred_\w+(?:_error|_speed)\{", text, re.MULTILINE)


def test_kv_events_have_their_figures() -> None:
    text = b"".join(render(lived_in())).decode()
    said = dict(re.findall(r"^maitred_kv_events_(\w+\{[^}]*a:1\"\}) (\S+)$", text, re.MULTILINE))
    named = {name.partition("{")[0]: value for name, value in said.items()}
    assert named == {"used": "1.0", "age_seconds": "0.5", "lag_seconds": "0.25", "blocks": "7.0"}
    assert 'maitred_kv_events_total{endpoint="qwen/a:1",what="gaps"} 2.0\n' in text
    assert 'maitred_kv_events_blocks{endpoint="qwen/b:1"} 0.0\n' in text
    assert 'age_seconds{endpoint="qwen/b:1"}' not in text, "before the first there is no age"


def test_everything_counted_of_kv_events_is_documented_and_nothing_else() -> None:
    [row] = re.findall(
        r"^\| `maitred_kv_events_total` .*`what` is (.*)\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", row)) == COUNTS.keys()


def test_a_large_metric_comes_in_pieces_under_one_heading() -> None:
    metrics = Metrics("1")
    for number in range(130):
        tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, None, f"m{number}"))
    pieces = list(render(metrics))
    assert max(piece.count(b"\n") for piece in pieces) <= PIECE_LINES + 2
    text = b"".join(pieces)
    assert text.count(b"# TYPE maitred_ttft_seconds histogram\n") == 1
    assert text.count(b"maitred_ttft_seconds_count{") == 130


def test_a_metric_without_samples_takes_no_room() -> None:
    assert b"leg_failures" not in b"".join(render(Metrics("1")))


def test_odd_model_names_are_escaped() -> None:
    metrics = Metrics("1")
    tell(metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, None, 'a"b\\c\nd'))
    assert rb'model="a\"b\\c\nd"' in b"".join(render(metrics))
