"""What is told of a run: one set of values, in the terminal, as JSON, CSV and a page."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from maitred.bench import drawings, verdict
from maitred.bench.during import Happening, course
from maitred.bench.figures import part
from maitred.bench.probes import Searched, lines, rung
from maitred.bench.report import (
    Document,
    Report,
    ReportError,
    document,
    html,
    of_run,
    of_sides,
    read,
    to_csv,
    to_json,
    verdicts_json,
)
from maitred.bench.search import Search
from maitred.bench.shot import UNFINISHED, Ending, Own, Run, Shot
from maitred.bench.spans import Spans
from maitred.bench.table import WIDTH, show
from tests.bench.finished import answered, busy_day, lost, mixed, run

EVIL = "<script>alert(1)</script>&\"'"


def printed(report: Report) -> str:
    """As the terminal has it, where it is none."""
    out = StringIO()
    show(report, out)
    return out.getvalue()


def sides(a: list[Run], b: list[Run]) -> Report:
    return of_sides(a, b, ("A.json", "B.json"), verdict.compare(a, b), verdict.doubts(a, b))


def searched() -> Searched:
    """A search that was told of three rates."""
    seeking = Search(2.0)
    for good in (200, 200, 100):
        rate = seeking.next_rate()
        assert rate is not None
        seeking.told(rate, 200, good)
    found = seeking.found()
    whole = document(busy_day()).figures.whole
    rungs = [rung(probe.rate, busy_day(), whole) for probe in found.probes]
    return Searched(found, rungs, ended_early=False)


class Tags(HTMLParser):
    """Counts tags as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_the_table_is_plain_and_narrow_and_says_all() -> None:
    text = printed(of_run(document(busy_day())))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= WIDTH
    for title in ("Requests", "Rates", "Where the time goes", "Times", "By class", "By tenant", "By stage"):
        assert f"\n{title}\n" in text
    labels = {line.strip().partition("  ")[0] for line in text.splitlines()}
    for label in ("TTFT", "TPOT", "TTFT, adjusted", "queue_full", "goodput, of all sent", "documents"):
        assert label in labels
    assert "SLO TTFT 800 ms and TPOT 35 ms" in text
    assert "failed: so many were not served" in text


def test_a_client_that_was_in_the_way_is_told_before_any_figure() -> None:
    report = of_run(document(run(busy_day().shots, own=Own(cpu_share_max=0.99))))
    for text in (printed(report), html(report)):
        at = text.index("This client was a bottleneck")
        assert text.index("chat at http") < at < text.index("99 % of its core") < text.index("Requests")
    assert "bottleneck" not in printed(of_run(document(busy_day())))


def test_groups_are_told_apart_where_there_are_several() -> None:
    shots = [*(answered(float(n)) for n in range(5)), lost(kind="agent"), lost(kind="agent")]
    shots += [lost(ending=Ending.REFUSED, why="queue_full", kind="agent"), answered(kind="agent")]
    shots.append(lost(ending=Ending.LEFT, why="patience", kind="agent"))
    report = of_run(document(run(shots)))
    titles = [table.title for table in report.tables]
    assert "By tenant" not in titles
    [classes] = [table for table in report.tables if table.title == "By class"]
    assert classes.columns[:5] == ["sent", "done", "refused", "failed", "left"]
    assert [(row.label, *(cell.text for cell in row.cells[:5])) for row in classes.rows] == [
        ("agent", "5", "1", "1", "2", "1"),
        ("chat", "5", "5", "0", "0", "0"),
    ]
    assert "queue p90" not in classes.columns
    assert "the server tells it of no single request" in printed(report)
    assert "no single request" not in printed(of_run(document(busy_day())))  # which tells


def test_requests_under_way_are_counted_at_the_end_of_each_step() -> None:
    shots = [answered(0.0, over_at=2.5), answered(0.2, over_at=1.5), answered(3.0, over_at=3.1)]
    assert drawings.in_flight(shots, 1.0) == [(0.0, 2), (1.0, 1), (2.0, 0), (3.0, 0)]


def test_only_what_is_unsure_is_marked() -> None:
    few, enough = ([answered(ttft_s=0.1 + n / 1000) for n in mixed(count)] for count in (71, 368))
    text = printed(of_run(document(run(few))))
    [ttft] = [line for line in text.splitlines() if line.startswith("  TTFT  ")]
    assert [cell.endswith("*") for cell in re.findall(r"[\d.]+ m?s\*?", ttft)] == [0, 0, 0, 1, 1, 0]
    assert "* no upper bound" in text
    assert "*" not in printed(of_run(document(run(enough))))


def test_an_interval_has_units_where_they_differ() -> None:
    shots = [answered(float(n), ttft_s=0.9 + n / 100) for n in range(20)]
    report = of_run(document(run(shots, slo_ttft_s=1.0)))
    cells = {row.label: row.cells for table in report.tables for row in table.rows}
    assert (cells["TTFT"][1].text, cells["TTFT"][1].interval) == ("990 ms", "950 ms – 1.04 s")
    assert (cells["TPOT"][1].text, cells["TPOT"][1].interval) == ("20.0 ms", "20.0 – 20.0")


def test_the_engines_tell_where_time_goes() -> None:
    shots = [answered(float(n), ttft_s=0.5, tpot_s=0.05) for n in range(10)]
    text = printed(of_run(document(run(shots), Spans(10, 0.1, 0.3, 0.5))))
    rows = [line.split() for line in text.partition("Where")[2].splitlines()[2:6]]
    assert [row[-2] for row in rows] == ["10.0", "30.0", "50.0", "10.0"]
    assert rows[3][:3] == ["outside", "the", "engines"]


@pytest.mark.parametrize(
    ("more", "labels"),
    [
        ({}, ["queue and prefill", "decode"]),
        ({"prefill_s": 0.3}, ["prefill", "decode"]),
        ({"queue_s": 0.1}, ["queue", "prefill", "decode"]),
    ],
)
def test_without_engines_answers_tell_it_as_far_as_they_can(
    more: dict[str, float], labels: list[str]
) -> None:
    report = of_run(document(run([answered(**more)])))
    [where] = [table for table in report.tables if table.title == "Where the time goes"]
    assert [row.label for row in where.rows] == labels
    assert where.rows[-1].cells[0].text == "200 ms"


@pytest.mark.parametrize(
    "shots",
    [[], [lost()], [lost(ending=Ending.LEFT, why=UNFINISHED)], [answered()], [answered(tokens=0)]],
    ids=["none", "failed", "unfinished", "one", "empty"],
)
def test_partial_failures_never_crash_a_report(shots: list[Shot]) -> None:
    made = document(run(shots, slo_ttft_s=1.0, ended_early=True))
    report = of_run(made)
    assert printed(report)
    assert html(report)
    assert msgspec.json.decode(to_json(made), type=Document).figures == made.figures
    assert to_csv(made.run).count("\n") == len(shots) + 1
    assert printed(sides([run(shots)], [run([answered()])]))


def test_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    made = busy_day()
    made.shots[0].reads_at = (0.1, 0.2)
    path = tmp_path / "run.json"
    path.write_bytes(to_json(document(made)))
    again = read(path)
    assert again.shots[0].reads_at == ()
    assert made.shots[0].reads_at == (0.1, 0.2)
    made.shots[0].reads_at = ()
    assert again == made
    assert list(json.loads(path.read_bytes()))[:4] == ["format", "verdict", "doubts", "figures"]


def test_infinite_figures_are_null_in_json() -> None:
    shots = [answered(), lost()]
    told = json.loads(to_json(document(run(shots))))
    assert told["figures"]["whole"]["times"]["ttft_adjusted_s"]["percentiles"]["p90"] == {"value": None}
    verdicts = json.loads(verdicts_json(verdict.compare([run([answered()])], [run(shots)])))
    assert [one["b"] for one in verdicts if one["name"] == "ttft_p90_s"] == [None]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "run.json: No such file or directory"),
        (b"{}", "run.json: is no run that --out or --json wrote: "),
        (b'{"format":2,"run":' + b"[" * 100_000, "run.json: is no run that --out or --json wrote: "),
        (b'{"format":', "run.json: is no run that --out or --json wrote: "),
    ],
)
def test_a_file_that_is_no_run_is_one_line(tmp_path: Path, content: bytes | None, error: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReportError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{tmp_path}/{error}")
    assert "\n" not in str(raised.value)


def test_another_format_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b'{"format":9,"run":"written otherwise"}')
    with pytest.raises(ReportError, match="has format 9; this program reads 2"):
        read(path)


def test_csv_has_a_row_for_each_request() -> None:
    made = busy_day()
    rows = list(csv.DictReader(StringIO(to_csv(made))))
    assert len(rows) == len(made.shots)
    assert sum(row["good"] == "1" for row in rows) == sum(map(made.good, made.shots))
    first, shot = rows[0], made.shots[0]
    assert first["ending"] == shot.ending.name
    assert float(first["due_at"]) == pytest.approx(shot.due_at, abs=1e-6)
    [refused, *_] = [row for row in rows if row["ending"] == "REFUSED"]
    assert (refused["why"], refused["first_at"], refused["status"]) == ("queue_full", "", "429")


def test_the_page_is_whole_by_itself() -> None:
    text = html(of_run(document(busy_day())))
    assert set(re.findall(r"https?://[^\"'<\s]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
        "http://127.0.0.1:8000",
    }
    assert not {"script", "link", "img", "iframe"} & set(Tags(text).seen)
    assert not re.search(r"@import|url\(|src=|(?<!xlink:)href=", text)
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_page_has_every_plot_for_which_there_is_something() -> None:
    def titles(of: Run) -> list[str]:
        return re.findall(r"<title>([^<]*)</title><g class=\"graph", html(of_run(document(of))))

    assert titles(busy_day()) == [
        "How long until the first token came",
        "How fast the tokens followed",
        "How long until the answer was whole",
        "Requests under way",
        "TTFT p50, by when it was to be sent",
        "Requests that were not served",
        "Tokens that came out, by rate",
        "Time to first token, by rate",
        "Requests within the SLO, by rate",
    ]
    assert titles(run([answered()]))[-1] == "TTFT p50, by when it was to be sent"
    assert titles(run([])) == []


def test_times_that_differ_by_a_rounding_error_are_drawn() -> None:
    shots = [answered(float(n)) for n in range(5)]
    assert 0 < max(shot.ttft_s or 0 for shot in shots) - min(shot.ttft_s or 0 for shot in shots) < 1e-12
    assert html(of_run(document(run(shots))))


def test_names_stay_text() -> None:
    made = busy_day()
    for shot in made.shots:
        shot.kind = shot.tenant = EVIL
        shot.why = shot.why and EVIL
    made.workload = made.target = EVIL
    text = html(of_run(document(made, during=course(made, Happening(EVIL, 0.0, 1.0, 0, [EVIL])))))
    assert "<script>alert" not in text
    assert "script" not in Tags(text).seen


def test_what_a_command_broke_stands_first() -> None:
    made = busy_day()
    told = course(made, Happening("kubectl rollout restart", 10.0, 20.0, 1, ["error: no cluster"]))
    text = printed(of_run(document(made, during=told)))
    assert text.index("Around kubectl rollout restart") < text.index("Requests")
    assert "the command ended with 1: error: no cluster" in " ".join(text.split())
    assert f"{told.broken:,} conversations were broken" in text


def test_a_search_tells_what_was_found_and_every_rate() -> None:
    text = printed(of_run(document(busy_day(), goodput=searched())))
    assert (
        "4 requests/s keep the SLO, 8 requests/s do not; where between them it turns is unresolved." in text
    )
    rows = [line.split() for line in text.splitlines() if line.startswith("  ") and "/s " in line]
    assert [(row[0], row[-1]) for row in rows[:3]] == [("2/s", "yes"), ("4/s", "yes"), ("8/s", "no")]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "unresolved; no probe had enough requests"),
        ([(1.0, 200, 200)], "1 requests/s keep the SLO; no rate was shown to break it"),
        ([(1.0, 200, 0)], "1 requests/s do not keep the SLO, and no lower rate was shown to"),
        ([(1.0, 200, 200), (1.05, 200, 0)], "1 requests/s keep the SLO, 1.05 requests/s do not."),
    ],
)
def test_the_words_of_a_search(told: list[tuple[float, int, int]], words: str) -> None:
    seeking = Search(1.0)
    for rate, attempted, good in told:
        seeking.told(rate, attempted, good)
    found = seeking.found()
    rungs = [rung(probe.rate, run([]), part([], run([]))) for probe in found.probes]
    line, how = lines(Searched(found, rungs, ended_early=False), "requests")
    assert words in line
    assert "binomial test at 95 % shows that at least 95 % of all requests sent" in how


def test_a_rate_of_conversations_is_told_in_requests_too() -> None:
    """Three turns each, so that two conversations a second are six requests."""
    talks = [answered(float(n), conversation=n // 3 + 1, turn=n % 3 + 1) for n in range(300)]
    made = run(talks, slo_ttft_s=1.0, rates={1: 2.0}, rates_of="conversations")
    seeking = Search(2.0)
    seeking.told(2.0, 300, 300)
    whole = document(made).figures.whole
    goodput = Searched(seeking.found(), [rung(2.0, made, whole)], ended_early=False)
    text = printed(of_run(document(made, goodput=goodput)))
    assert "2 conversations/s (6 requests/s) keep the SLO" in text
    assert "\n2 conversations/s, " in text
    assert "Search for goodput, by conversations begun per s" in text
    [row] = [line.split() for line in text.splitlines() if line.startswith("  2/s ")]
    assert row[1:3] == ["6", "300"]


def test_a_probe_that_was_cut_short_is_marked() -> None:
    seeking = Search(2.0)
    seeking.told(2.0, 200, 200, independent=80)
    seeking.told(4.0, 0, 0, overloaded=True)
    figures = document(run([])).figures.whole
    rungs = [rung(2.0, run([]), figures), rung(4.0, run([]), figures)]
    text = printed(of_run(document(run([]), goodput=Searched(seeking.found(), rungs, ended_early=False))))
    [worth, cut] = [line for line in text.splitlines() if "worth 80" in line or line.startswith("  4/s ")]
    assert "worth 80" in worth
    assert cut.split() == ["4/s", "–", "0", "–", "–", "–", "0", "no,", "cut", "short"]
    assert "cut short: requests under way and TTFT rose on" in text


def test_each_limit_is_answered() -> None:
    def told(*shots: Shot) -> list[list[str]]:
        report = of_run(document(run(shots, slo_ttft_s=1.0, slo_tpot_s=0.05)))
        [table] = [table for table in report.tables if table.title == "Limits"]
        return [[row.label, *(cell.text for cell in row.cells)] for row in table.rows]

    fast = [answered()] * 459
    assert told(*fast) == [
        ["TTFT within 1.00 s", "459", "0", "yes"],
        ["TPOT within 50.0 ms", "459", "0", "yes"],
    ]
    assert told(*fast[:100])[0][-1] == "cannot tell yet: 359 more requests"
    assert "were none of them over" in printed(of_run(document(run(fast, slo_ttft_s=1.0))))
    assert "Limits" not in printed(of_run(document(run(fast))))


def test_the_means_of_engines_say_whose_they_are() -> None:
    made = run([answered(float(n)) for n in range(10)])
    note = (
        "over all 1,234 requests that ended there meanwhile: those of the warm-up and of other clients, too"
    )
    assert note in " ".join(printed(of_run(document(made, Spans(1234, 0.1, 0.3, 0.5)))).split())
    assert "other clients" not in printed(of_run(document(made)))


def test_from_nothing_there_is_no_relative_change() -> None:
    a, b = ([answered(float(n), ttft_s=ttft_s) for n in range(100)] for ttft_s in (2.0, 0.2))
    text = printed(sides([run(a, slo_ttft_s=1.0)], [run(b, slo_ttft_s=1.0)]))
    [goodput] = [line.split() for line in text.splitlines() if line.startswith("  goodput, of all sent")]
    assert goodput[-2:] == ["–", "better"]
    assert "inf" not in text


def test_two_sides_are_compared_figure_by_figure() -> None:
    text = printed(sides([busy_day(n) for n in range(3)], [busy_day(n, 2.0) for n in range(3, 6)]))
    rows = {line[2:24].strip(): line.split() for line in text.splitlines()}
    assert rows["TTFT p50"][-1] == "worse"
    assert rows["goodput, of all sent"][-1] == "worse"
    assert rows["output tokens, per s"]
    assert text.splitlines()[0] == "B.json against A.json"
    same = printed(sides([busy_day(1)], [busy_day(1)]))
    assert "worse" not in same
    assert "better" not in same
    assert "A side has a single run" in same


def test_of_two_sides_only_the_clients_faults_are_told() -> None:
    few = run([answered()], own=Own(stall_s=0.5))
    report = sides([few], [run([answered()])])
    assert report.verdict
    assert report.doubts[0].text.startswith("the client stood still")
    assert not any("upper bound" in doubt.text for doubt in report.doubts)
