"""Reading measured runs, damaged ones too."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from maitred.sim.measured import Measured, read_run

ROW = {
    "request_id": "r",
    "input_toks": 10,
    "output_toks": 5,
    "arrival_time": 1000.0,
    "queued_ts": 7.0,
    "first_token_ts": 8.0,
    "last_token_ts": 10.0,
}


def written(path: Path, *rows: object) -> Path:
    file = path / "run.jsonl"
    file.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return file


def test_requests_are_in_order_of_arrival_on_the_engines_clock(tmp_path: Path) -> None:
    late = ROW | {
        "arrival_time": 1002.0,
        "queued_ts": 9.5,
        "first_token_ts": 9.75,
        "last_token_ts": 9.75,
        "output_toks": 1,
    }
    run = read_run(written(tmp_path, late, ROW))
    assert [each.arrived_at for each in run.requests] == [7.0, 9.0]
    first, second = run.requests
    assert (first.prompt_tokens, first.tokens) == (10, 5)
    assert (first.ttft_s, first.decode_s, first.e2e_s, first.tpot_s) == (1.0, 2.0, 3.0, 0.5)
    assert math.isnan(second.tpot_s)
    assert (run.bad, run.complaints) == (0, [])


def test_bad_rows_are_counted_and_the_first_three_named(tmp_path: Path) -> None:
    bad = ["{\n", {"request_id": "r"}, ROW | {"output_toks": 0}, ROW | {"first_token_ts": 6.0}, "\n"]
    run = read_run(written(tmp_path, ROW, *bad, ROW))
    assert (len(run.requests), run.bad) == (2, 5)
    assert len(run.complaints) == 3
    assert run.complaints[0].startswith("run.jsonl:2: ")
    assert "input_toks" in run.complaints[1]
    assert run.complaints[2] == "run.jsonl:4: input_toks and output_toks must be at least 1"


def test_a_file_without_a_good_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no row of a measured run in it. run.jsonl:1: queued_ts"):
        read_run(written(tmp_path, ROW | {"last_token_ts": 1.0}))
    with pytest.raises(ValueError, match="several tokens at one instant"):
        read_run(written(tmp_path, ROW | {"last_token_ts": 8.0}))
    with pytest.raises(ValueError, match=r"no row of a measured run in it$"):
        read_run(written(tmp_path))


def test_a_measured_request_is_a_value() -> None:
    assert Measured(0.0, 1, 2, 0.0, 1.0, 2.0) == Measured(0.0, 1, 2, 0.0, 1.0, 2.0)
