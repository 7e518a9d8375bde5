"""How figures are written, and which rows there are."""

from __future__ import annotations

from io import StringIO

import pytest

from maitred.sim.rows import FOOTNOTE, ROWS_MAX, Scale, count, details, overview, seconds, share
from maitred.sim.summary import summarize
from maitred.sim.table import WIDTH, show
from tests.sim.finished import answered, arrival, busy_day, run

CONFIGS = ("fifo", "fair-share", "a-third-one")


def written(scale: Scale, value: float) -> str:
    """As a cell writes it."""
    factor, decimals, unit = scale
    return f"{factor * value:,.{decimals}f}{unit}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0441, "44.1 ms"), (0.91, "910 ms"), (1.0, "1.00 s"), (9.876, "9.88 s"), (154.12, "154.1 s")],
)
def test_durations_have_about_three_digits(value: float, text: str) -> None:
    assert written(seconds(value), value) == text


def test_counts_and_shares() -> None:
    assert written(count(17_084), 17_084) == "17,084"
    assert written(count(0.25), 0.25) == "0.2"
    assert written(share(0.125), 0.125) == "12.5 %"


def test_the_table_is_plain_and_narrow_and_says_all() -> None:
    summaries = [
        summarize([busy_day(name, seed, 1 + n) for seed in (1, 2)]) for n, name in enumerate(CONFIGS)
    ]
    out = StringIO()
    show(summaries, out)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "\x1b" not in out.getvalue()
    assert lines[0].split() == list(CONFIGS)
    cells = {line[:26].strip(): line[26:].split() for line in lines}
    assert cells["requests"] == ["300", "300", "300"]
    assert cells["nightly: queue_full"]
    assert cells["nightly-band: queue_full"]
    assert cells["pool/a:8000"]
    assert "Against fifo" in cells
    assert any("TTFT p90" in line and "worse" in line for line in lines)
    assert lines[-1] == FOOTNOTE


def test_many_long_names_are_folded_into_the_width() -> None:
    out = StringIO()
    show([summarize([busy_day(f"a-rather-long-name-of-configuration-{n}", 1)]) for n in range(5)], out)
    assert max(map(len, out.getvalue().splitlines())) <= WIDTH


def test_one_configuration_is_held_against_nothing() -> None:
    summary = summarize([busy_day("a", 1)])
    assert not [section for section in overview([summary]) if section.title.startswith("Against")]


def test_only_what_is_unsure_is_marked() -> None:
    out = StringIO()
    show([summarize([run([answered(arrival()) for _ in range(368)])])], out)
    assert "*" not in out.getvalue()


def test_a_crowd_of_tenants_does_not_flood_the_table() -> None:
    summary = summarize([busy_day("a", 1)])
    part = summary.tenants["nightly"]
    summary.tenants.update({f"tenant-{n}": part for n in range(100)})
    [refused] = [section for section in overview([summary]) if section.title == "Refused, by tenant"]
    assert len(refused.rows) == ROWS_MAX


def test_details_are_of_groups_of_which_there_are_several() -> None:
    titles = [section.title for section in details([summarize([busy_day("a", 1)])])]
    assert titles == [
        "Tenant chat",
        "Tenant nightly",
        "Band chat-band",
        "Band nightly-band",
        *("Stage 0", "Stage 1", "Stage 2"),
    ]
