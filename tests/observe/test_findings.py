"""The board of what is wrong: told once, settled once, bounded."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from maitred.observe.findings import FINDINGS_MAX, KINDS, Findings

OFF = ("prefix_caching_off", "p/a:1", "prefix caching is off", "switch it on")


def board() -> Findings:
    clock = iter(range(1, 10_000))
    return Findings(lambda: next(clock))


def test_a_finding_is_one_line_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    findings = board()
    with caplog.at_level(logging.INFO, "maitred.finding"):
        for what in ("is off", "is off", "is very much off"):
            findings.tell("prefix_caching_off", "p/a:1", what, "switch it on")
        findings.settle("prefix_caching_off", "p/a:1")
        findings.settle("prefix_caching_off", "p/a:1")
    assert caplog.messages == [
        "p/a:1: is off; switch it on",
        "p/a:1: is very much off; switch it on",
        "p/a:1: settled (prefix_caching_off)",
    ]


def test_it_is_known_since_it_was_first_told() -> None:
    findings = board()
    findings.tell(*OFF)
    findings.tell("unreachable", "p/b:1", "does not answer", "start it")
    findings.tell(*OFF[:2], "still off", "switch it on")
    assert [(f.kind, f.since_ms, f.what) for f in findings.current()] == [
        ("prefix_caching_off", 1000, "still off"),
        ("unreachable", 2000, "does not answer"),
    ]
    assert findings.counts() == {**dict.fromkeys(KINDS, 0), "prefix_caching_off": 1, "unreachable": 1}


def test_a_review_settles_what_it_no_longer_finds() -> None:
    findings = board()
    findings.tell("unreachable", "p/b:1", "does not answer", "start it")
    findings.review(["prefix_caching_off", "context_differs"], [OFF])
    assert {f.kind for f in findings.current()} == {"unreachable", "prefix_caching_off"}
    findings.review(["prefix_caching_off", "context_differs"], [])
    assert {f.kind for f in findings.current()} == {"unreachable"}


def test_a_kind_must_be_declared() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        board().tell("weather", "outside", "rains", "wait")


def test_there_are_never_too_many_and_none_hides_another_kind() -> None:
    findings = board()
    for number in range(FINDINGS_MAX + 200):
        findings.tell("unreachable", f"p/{number}:1", "does not answer", "start it")
    findings.tell("unreachable", "p/0:1", "still does not answer", "start it")
    findings.tell("reload_failed", "maitred.yaml", "is not YAML", "put it right")
    assert findings.counts() == {
        **dict.fromkeys(KINDS, 0),
        "unreachable": FINDINGS_MAX,
        "reload_failed": 1,
    }
    assert findings.current()[0].what == "still does not answer"
    findings.settle("unreachable", "p/1:1")
    findings.tell("unreachable", "p/900:1", "does not answer", "start it")
    assert "p/900:1" in {finding.where for finding in findings.current()}


def test_every_kind_is_documented_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = text.partition("## Findings")[2].splitlines()
    first = " ".join(row.split("|")[1] for row in rows if row.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", first)) == set(KINDS)
