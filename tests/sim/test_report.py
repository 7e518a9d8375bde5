"""The report: one file, whole by itself, the same bytes each time, and nobody's text becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from maitred.sim import plots
from maitred.sim.report import html, ladder_plots
from maitred.sim.run import Run, Sample
from maitred.sim.summary import StageRow, ladder, summarize
from tests.sim.finished import answered, arrival, busy_day, run

RATES = {0: 5.0, 1: 10.0, 2: 15.0}
PUBLISHED = {"published": [StageRow(5.0, 0.1, 0.2, 900.0), StageRow(15.0, 1.0, 2.0, 1800.0)]}
EVIL = "<script>alert(1)</script>&\"'"
SVG = "{http://www.w3.org/2000/svg}"


def report(*names: str) -> str:
    """A report on configurations of these names."""
    runs = [[busy_day(name, seed, 1 + n) for seed in (1, 2)] for n, name in enumerate(names)]
    return html([summarize(seeds) for seeds in runs], runs, RATES, PUBLISHED)


def titles(text: str) -> list[str]:
    """What the plots are called."""
    return re.findall(r"<title>([^<]*)</title><g class=\"graph", text)


class Tags(HTMLParser):
    """Counts tags as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_it_is_whole_by_itself() -> None:
    text = report("fifo", "fair")
    assert set(re.findall(r"https?://[^\"'<\s]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not {"script", "link", "img", "iframe"} & set(Tags(text).seen)
    assert not re.search(r"@import|url\(|src=|(?<!xlink:)href=", text)
    assert "<!--" not in text


def test_it_shows_every_plot_and_the_figures() -> None:
    text = report("fifo", "fair")
    assert titles(text) == [
        "How long until the first token came",
        "How fast the tokens followed",
        "How many tokens came out, by rate",
        "How long nine in ten waited for the first token, by rate",
        "Requests waiting at the gateway",
        "Requests at the engines",
        "KV cache in use, mean of the engines",
        "How busy each endpoint was",
        "Requests refused, by tenant",
    ]
    assert "<td>300</td><td>300</td>" in text
    assert "Against fifo" in text
    assert text.count(">published</text>") == 2


def test_the_same_runs_give_the_same_bytes() -> None:
    assert report("fifo", "fair") == report("fifo", "fair")
    ids = re.findall(r'id="([^"]+)"', report("fifo", "fair"))
    assert len(ids) == len(set(ids))


def test_what_did_not_happen_is_not_drawn() -> None:
    seeds: list[Run] = [run([answered(arrival())])]
    text = html([summarize(seeds)], [seeds])
    assert titles(text) == ["How long until the first token came", "How fast the tokens followed"]
    empty = [run([])]
    assert titles(html([summarize(empty)], [empty])) == []


def test_time_counts_from_the_begin() -> None:
    samples = [Sample(5000.0 + second, second, second, 0.5) for second in range(9)]
    seeds = [run([answered(arrival(5000.0))], samples=samples, began_at=5000.0)]
    assert not re.search(r">500\d</text>", html([summarize(seeds)], [seeds]))


def test_names_stay_text() -> None:
    seeds = [busy_day(EVIL, 1)]
    for record in seeds[0].records:
        record.arrival.tenant = record.arrival.band = record.arrival.model = EVIL
    text = html([summarize(seeds)], [seeds], RATES, {EVIL: PUBLISHED["published"]})
    assert "<script>alert" not in text
    assert "script" not in Tags(text).seen
    assert text.count("&lt;script&gt;alert") > 10


def test_the_plots_for_documents_are_files_of_their_own() -> None:
    ladders = {"reproduced": ladder(summarize([busy_day("a", 1)]), RATES)}
    drawn = ladder_plots(ladders, PUBLISHED)
    assert list(drawn) == ["ladder-output.svg", "ladder-ttft.svg"]
    for text in drawn.values():
        root = ElementTree.fromstring(text)
        legends = [node.text for node in root.iter(f"{SVG}text") if node.text in {"reproduced", "published"}]
        assert legends == ["reproduced", "published"]
        assert len(list(root.iter(f"{SVG}circle"))) == 5  # three stages, two published
    assert "15: 1800</title>" in drawn["ladder-output.svg"]
    assert "15: 2</title>" in drawn["ladder-ttft.svg"]


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([0.03, 0.06], ["20 ms", "50 ms", "100 ms"]),
        ([0.0, 0.0001], ["1 ms"]),
        ([0.05, 90.0], ["10 ms", "100 ms", "1 s", "10 s", "100 s"]),
    ],
)
def test_a_distribution_lies_between_round_times(times: list[float], labels: list[str]) -> None:
    root = ElementTree.fromstring(plots.distribution("d", "Times", "time", {"a": times}))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and re.fullmatch(r"\d+ m?s", text)] == labels


def test_a_crowd_of_labels_is_cut() -> None:
    values = {"a": {f"label-{n}": float(n) for n in range(500)}}
    root = ElementTree.fromstring(plots.bars("b", "Bars", "things", values))
    assert (
        len([node for node in root.iter(f"{SVG}rect") if "rect" in node.get("class", "")]) == plots.BARS_MAX
    )
