"""Traces: the three formats, damaged rows, and times on a grid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.config.raw import ConfigError
from maitred.observe.access import Line
from maitred.sim import traces
from maitred.sim.job import block_keys
from maitred.sim.traces import Row, Trace, read_trace

DATA = Path(__file__).parents[1] / "data" / "traces"
MOONCAKE = DATA / "mooncake_conversation.jsonl"
AZURE = DATA / "azure_2023_conv.csv"

Written = Callable[[str | bytes], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    path = tmp_path / "trace"

    def write(content: str | bytes) -> Path:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def logged(ts: int, duration_s: float, outcome: str = "completed", tokens: int | None = 10) -> bytes:
    line = Line(
        ts,
        f"req-{ts}",
        outcome,
        200,
        tenant="support",
        model="qwen3-32b",
        stream=True,
        duration_s=duration_s,
        prompt_tokens=tokens,
        output_tokens=tokens,
    )
    return msgspec.json.encode(line) + b"\n"


def test_mooncake_prompts_share_what_they_shared() -> None:
    trace = read_trace(MOONCAKE)
    recorded = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    assert (len(trace.rows), trace.bad, trace.bad_first) == (150, 0, ())
    for row, line in zip(trace.rows, recorded, strict=True):
        assert (row.prompt_tokens, row.output_tokens) == (line["input_length"], line["output_length"])
        assert sum(tokens for _, tokens in row.prompt) == row.prompt_tokens
        assert row.at_s == line["timestamp"] / 1000
    first, second = (block_keys(row.prompt, 16) for row in trace.rows[:2])
    common = [a == b for a, b in zip(first, second, strict=False)]
    assert common == [True] * 32 + [False] * (len(common) - 32)  # both begin with block 0 of 512 tokens
    assert len(
        {row.answer for row in trace.rows} | {id_ for r in trace.rows for id_, _ in r.prompt}
    ) == 150 + len({id_ for line in recorded for id_ in line["hash_ids"]})


def test_two_traces_can_be_kept_apart() -> None:
    ids = [
        {id_ for row in read_trace(MOONCAKE, first_id=i << 40).rows for id_, _ in row.prompt} for i in (0, 1)
    ]
    assert not ids[0] & ids[1]


def test_azure() -> None:
    trace = read_trace(AZURE)
    assert (len(trace.rows), trace.bad, trace.spread_s) == (60, 0, 0.0)
    second = trace.rows[1]
    assert (second.prompt_tokens, second.output_tokens) == (396, 109)
    assert second.at_s == pytest.approx(50.995169 - 46.68059, abs=1e-6)
    assert len({row.prompt for row in trace.rows}) == 60


def test_the_access_log_tells_when_requests_came(written: Written) -> None:
    begun = b'{"ts":1700000000000,"level":"info","logger":"maitred","message":"ready"}\n'
    refused = logged(1_700_000_009_000, 0.0, "queue_full", None)
    path = written(
        begun + logged(1_700_000_010_000, 1.0) + logged(1_700_000_011_000, 10.5, tokens=20) + refused
    )
    trace = read_trace(path)
    assert [(row.at_s, row.prompt_tokens) for row in trace.rows] == [(0.0, 20), (8.5, 10)]
    assert (trace.rows[0].model, trace.rows[0].tenant, trace.rows[0].stream) == ("qwen3-32b", "support", True)
    assert trace.bad_first == (f"{path}:4: a request that ended as queue_full has no token counts",)


def test_damaged_rows_are_counted_and_the_first_three_shown(written: Written) -> None:
    good = MOONCAKE.read_bytes().splitlines()[:5]
    damaged = [
        good[0][:40],
        b'{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [1, 2]}',
        b'{"timestamp": 1, "output_length": 5, "hash_ids": []}',
        b'{"timestamp": 1, "input_length": 0, "output_length": 5, "hash_ids": []}',
        b'{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [-1]}',
        b'{"timestamp": 1, "input_length": 5, "output_length": 5, "\xff": [1]}',
    ]
    path = written(b"\n".join([good[0], *damaged, b"", *good[1:]]))
    trace = read_trace(path)
    assert (len(trace.rows), trace.bad) == (5, 6)
    assert trace.bad_first == (
        f"{path}:2: JSON is malformed: invalid character (byte 40)",
        f"{path}:3: input_length 5 takes 1 hash_ids, not 2",
        f"{path}:4: Object missing required field `input_length`",
    )
    with pytest.raises(ConfigError) as caught:
        read_trace(path, strict=True)
    assert caught.value.errors == [*trace.bad_first, f"{path}: 6 of 11 rows cannot be used"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:15:46.68,374", "has 2 values, not 3"),
        ("noon,374,44", "Invalid isoformat string: 'noon'"),
        ("2023-11-16 18:15:46.68,x,44", "invalid literal for int() with base 10: 'x'"),
        ("2023-11-16 18:15:46.68,374,0", "GeneratedTokens 0 must be 1 to 10000000"),
    ],
)
def test_damaged_rows_of_azure(written: Written, row: str, said: str) -> None:
    path = written(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n{row}")
    assert read_trace(path).bad_first == (f"{path}:3: {said}",)


@pytest.mark.parametrize(
    ("content", "form", "said"),
    [
        ("", "auto", "holds no row that can be used"),
        ("hello\n", "auto", "its first line looks like no known trace; write its format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "azure", "holds no row that can be used"),
        ("x" * (1 << 20) + "\n", "auto", "has a line of more than 1048576 bytes; is it a trace?"),
    ],
)
def test_what_is_no_trace(written: Written, content: str, form: str, said: str) -> None:
    path = written(content)
    with pytest.raises(ConfigError) as caught:
        read_trace(path, form)
    assert caught.value.errors == [f"{path}: {said}"]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace: No such file or directory$"):
        read_trace(tmp_path / "trace")


def test_only_so_many_rows() -> None:
    assert len(read_trace(AZURE, rows_max=7).rows) == 7


def test_times_on_a_grid_are_spread_within_their_step() -> None:
    trace = read_trace(MOONCAKE)
    assert trace.spread_s == pytest.approx(3.0, abs=0.002)
    times = trace.times_s(Random(1))
    assert times == trace.times_s(Random(1)) != trace.times_s(Random(2))
    assert times == sorted(times)
    assert len(set(times)) == len(times)
    assert all(0 <= time - row.at_s <= 3.002 for time, row in zip(times, trace.rows, strict=True))
    assert sum(time - row.at_s for time, row in zip(times, trace.rows, strict=True)) / 150 == pytest.approx(
        1.5, abs=0.25
    )


@given(st.integers(0, 2**32))
def test_a_step_that_is_short_stays_in_order(seed: int) -> None:
    trace = Trace([Row(at, (), 1, 1, 1) for at in (0.0, 0.0, 2.5, 2.5)], spread_s=3.0)
    times = trace.times_s(Random(seed))
    assert times == sorted(times)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_times_on_no_grid_stay_as_they_are(stamps: list[float]) -> None:
    rows = [Row(at, (), 1, 1, 1) for at in sorted(stamps)]
    if len(set(stamps)) * 2 > len(stamps):
        assert traces._grid_s(rows) == 0.0
    assert Trace(rows).times_s(Random(1)) == sorted(stamps)


def test_one_row_a_second_is_a_rate_and_no_grid() -> None:
    assert traces._grid_s([Row(float(at), (), 1, 1, 1) for at in range(50)]) == 0.0


def test_pairs_at_odd_times_are_no_grid() -> None:
    rng = Random(1)
    odd = sorted(2 * [rng.random() * 100 for _ in range(50)])
    assert traces._grid_s([Row(at, (), 1, 1, 1) for at in odd]) == 0.0
