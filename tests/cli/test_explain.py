"""`maitred explain`: what was compared, as a table, and in words why the one that won did."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs, to_builtins

from maitred.cli.main import main
from maitred.cli.receipts import explained
from maitred.core.receipt import Candidate, Receipt
from tests.admin.place import House
from tests.observe.test_decisions import keep

HOME = Candidate("m/a:1", "", 0.21, {"read_s": 0.25, "miss_s": 0.04}, cached=5120, running=3)
OTHER = Candidate("m/b:1", "", 1.5, {"read_s": 1.5}, unread=900)
FULL = Candidate("m/c:1", "full", 0.1, {"read_s": 0.1}, running=256)
RECEIPT = Receipt(
    "default", "cost", "m/a:1", "m/a:1", "approximate", "", 1, 0.0123, 6144, (HOME, OTHER, FULL)
)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAITRED_")]:
        monkeypatch.delenv(name)


def say(*words: str) -> Result:
    said = CliRunner().invoke(main, words, env={"TZ": "UTC"})
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return said


def told(**changes: Any) -> list[str]:
    """The lines about one decision with a receipt that differs in this."""
    receipt = to_builtins(structs.replace(RECEIPT, **changes))
    return explained([{"id": "r", "model": "m", "ts": 1_700_000_000_000, "receipt": receipt}]).splitlines()


def why(**changes: Any) -> str:
    return told(**changes)[-1]


def test_a_decision_is_a_table() -> None:
    head, known, *table = told()
    assert head.startswith("r  m  2023-11-1")
    assert known == "attempt 1, waited 0.012 s, 6144 tokens of prompt; policy default, index approximate"
    *table, said = table
    assert table == [
        "",
        "endpoint  cost  read_s  miss_s  cached  unread  running  begun  why not",
        "m/a:1     0.21  0.25    0.04    5120    0       3        0      -",
        "m/b:1     1.5   1.5     -       0       900     0        0      -",
        "m/c:1     0.1   0.1     -       0       0       256      0      full",
        "",
    ]
    assert said == (
        "m/a:1 was chosen for the least cost, in seconds; "
        "it is the home of this prompt, with 5120 tokens of it cached."
    )
    assert told(left_off=4, index_why="timeout")[-3] == "and 4 more"
    assert told(index_why="timeout")[1].endswith("index approximate timeout")


def test_why_another_than_the_home_was_chosen() -> None:
    away = {"endpoint": "m/b:1", "candidates": (OTHER, structs.replace(HOME, why_not="full"))}
    assert why(**away) == (
        "m/b:1 was chosen as the only one that could have it; the prompt's home is m/a:1, "
        "but it was full, and not worth the wait."
    )
    assert why(**away, measure="score").endswith("but it was full.")
    for why_not, said in {
        "kept": "it was kept for another request",
        "zone": "it is in another zone",
        "session": "it was left out: session",
    }.items():
        away["candidates"] = (OTHER, structs.replace(HOME, why_not=why_not))
        assert why(**away).endswith(f"the prompt's home is m/a:1, but {said}.")
    assert why(endpoint="m/b:1", candidates=(OTHER,)).endswith("but it is there no more.")
    busy = structs.replace(HOME, value=9.0)
    assert why(endpoint="m/b:1", candidates=(OTHER, busy)) == (
        "m/b:1 was chosen for the least cost, in seconds; "
        "the prompt's home is m/a:1, but it was not the best."
    )


def test_why_one_of_a_policy_that_has_no_homes_was_chosen() -> None:
    plain = {"home": "", "index": "none"}
    assert why(**plain, measure="requests") == "m/a:1 was chosen for the fewest requests."
    assert why(**plain, measure="score") == "m/a:1 was chosen by a picker that does not always take the best."
    assert why(**plain, measure="") == "m/a:1 was chosen by a policy that does not tell what it compares."
    assert why(policy="exploration", home="").startswith(
        "m/a:1 was chosen to see whether it is as slow as it was; "
    )
    assert why(home="").endswith("; nobody has much of this prompt, so it has no home.")


def test_attempts_are_told_in_their_order(house: House) -> None:
    keep(house.desk.log, 1, "req-1", where="qwen/a:1")
    keep(house.desk.log, 2, "req-1", where="qwen/b:1")
    said = say("explain", "req-1", "--admin", house.url)
    assert said.exit_code == 0
    assert said.stdout.index("qwen/a:1 was chosen") < said.stdout.index("qwen/b:1 was chosen")
    answer = json.loads(say("explain", "req-1", "--json", "--admin", house.url).stdout)
    assert [each["number"] for each in answer] == [2, 1]


def test_one_that_is_not_kept_is_told_with_the_setting(house: House) -> None:
    said = say("explain", "req-9 \x1b", "--admin", house.url)
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr == "Error: no decision of req-9 ? is kept; decisions.sample says how many are\n"
