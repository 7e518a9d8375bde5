"""`maitred keys` and `maitred db`: what they print, what they keep, and what is wrong in one line."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from maitred.cli.main import main

DAY_MS = 24 * 3600 * 1000
IMPORTED = "sk-a-key-of-another-gateway"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and the environment that alone is enough."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAITRED_AUTH_KEYS", "store")
    monkeypatch.setenv("MAITRED_AUTH_PEPPER", "a-pepper-of-the-tests")


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=given)


def said(*words: str, given: str | None = None) -> str:
    result = run(*words, given=given)
    assert result.exit_code == 0, result.output
    return result.stdout.rstrip("\n")


def rows() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(said("keys", "list", "--json"))
    return listed


def test_a_key_is_printed_once_and_listed_with_all_it_gives() -> None:
    options = ["--model", "m", "--model", "n", "--band", "chat", "--may-set", "band", "--note", "for Ann"]
    options += ["--limit", "requests_per_min=1k", "--limit", "concurrent=5", "--expires", "48h"]
    key = said("keys", "add", "--tenant", "support", *options)
    assert key.startswith("mk_")
    (row,) = rows()
    now = time.time() * 1000
    assert abs(row.pop("created_ms") - now) < 60_000
    assert abs(row.pop("expires_ms") - now - 2 * DAY_MS) < 60_000
    assert row == {
        "id": key.split("_")[1],
        "tenant": "support",
        "models": ["m", "n"],
        "bands": ["chat"],
        "may_set": ["band"],
        "limits": {"requests_per_min": 1000, "concurrent": 5},
        "revoked_ms": None,
        "note": "for Ann",
    }
    listed = said("keys", "list")
    for word in (row["id"], "support", "models=m,n", "bands=chat", "concurrent=5", "expires 2", "for Ann"):
        assert word in listed
    assert key not in listed
    assert key.encode() not in Path("maitred.db").read_bytes()


def test_a_day_is_its_end() -> None:
    said("keys", "add", "--tenant", "t", "--expires", "2031-01-31")
    assert rows()[0]["expires_ms"] == 1_927_670_400_000  # 2031-02-01 00:00 UTC


def test_a_key_of_elsewhere_comes_by_stdin_and_once() -> None:
    first = said("keys", "add", "--tenant", "legacy", "--import", given=IMPORTED + "\n")
    assert first == f"{rows()[0]['id']} is added"
    again = run("keys", "add", "--tenant", "legacy", "--import", given=IMPORTED)
    assert (again.exit_code, again.output) == (1, "Error: this key is there already\n")
    short = run("keys", "add", "--tenant", "legacy", "--import", given="sk-1\n")
    assert short.exit_code == 1
    assert "standard input must hold 16 to 4096 printable ASCII characters" in short.output
    assert len(rows()) == 1


def test_a_key_is_revoked_once() -> None:
    id_ = said("keys", "add", "--tenant", "t").split("_")[1]
    assert said("keys", "revoke", id_) == f"{id_} is revoked"
    assert "revoked 2" in said("keys", "list")
    again = run("keys", "revoke", id_)
    assert (again.exit_code, again.output) == (
        1,
        f"Error: no key of the id {id_} is in force; maitred keys list has them all\n",
    )


def test_who_makes_a_store_is_told_where() -> None:
    made, again = (run("keys", "add", "--tenant", "t") for _ in range(2))
    assert made.stderr == "sqlite:///maitred.db is new: there are no keys and no accounts in it\n"
    assert made.stdout.startswith("mk_")
    assert again.stderr == ""


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            ["--limit", "requests=5"],
            "there is no limit 'requests'; known are requests_per_min, tokens_per_min",
        ),
        (["--limit", "concurrent"], "'' is not a"),
        (["--limit", "concurrent=-1"], "-1"),
        (["--limit", "concurrent=0"], "--limit concurrent: 0 is too small; write more than zero"),
        (["--expires", "2020-02-29"], "--expires: 2020-02-29 is over; write a later day"),
        (["--expires", "0s"], "--expires: 0s is over; write a later day"),
        (["--expires", "tomorrow"], "'tomorrow' is not a duration"),
        (["--model", " m"], "must be 1 to 256 printable characters"),
    ],
)
def test_what_is_wrong_is_one_line_and_adds_nothing(words: list[str], wrong: str) -> None:
    result = run("keys", "add", "--tenant", "t", *words)
    assert result.exit_code == 1
    assert wrong in result.output
    assert result.output.count("\n") == 1
    assert not Path("maitred.db").exists()


MODELS = """version: 1
models:
- {name: a, endpoints: [http://h], aliases: [x], price: {output: 1}}
- {name: b, endpoints: [http://h]}
- {name: c, endpoints: [http://h]}
"""


@pytest.mark.parametrize("limit", ["money_per_day", "money_per_month"])
@pytest.mark.parametrize(
    ("models", "code", "said"),
    [
        ([], 0, "a budget in money counts as free what has no price: b, c; write price: "),
        (["x", "b"], 0, "a budget in money counts as free what has no price: b; write price: "),
        (["b", "c"], 1, "Error: a budget in money counts nothing while no model has a price; write price: "),
        (["adapter"], 0, "what has no price: b, c"),
        (["a"], 0, ""),
    ],
)
def test_a_budget_in_money_needs_prices(limit: str, models: list[str], code: int, said: str) -> None:
    Path("maitred.yaml").write_text(MODELS)
    run("keys", "list")  # makes the store, and says so
    named = [word for model in models for word in ("--model", model)]
    result = run("keys", "add", "--tenant", "t", *named, "--limit", f"{limit}=1M")
    assert result.exit_code == code
    assert said in result.stderr
    assert bool(result.stderr) is bool(said)
    assert bool(result.stdout) is not bool(code)


def test_without_prices_other_limits_need_none() -> None:
    assert said("keys", "add", "--tenant", "t", "--limit", "tokens_per_day=5").startswith("mk_")


def test_the_file_says_where_keys_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAITRED_AUTH_KEYS")
    monkeypatch.delenv("MAITRED_AUTH_PEPPER")
    none = run("keys", "add", "--tenant", "t")
    assert none.exit_code == 1
    assert "no keys are kept; write auth: {keys: store, pepper:" in none.output
    (tmp_path / "pepper").write_text("a-pepper-of-the-tests")
    Path("maitred.yaml").write_text(
        "version: 1\nendpoints: [http://h]\nstore: {url: 'sqlite:///other.db'}\n"
        "auth: {keys: store, pepper: {file: pepper}}\n"
    )
    said("keys", "add", "--tenant", "t")
    assert Path("other.db").exists()
    with Path("maitred.yaml").open("a") as file:
        file.write("bands: [{name: chat}, {name: batch}]\n")
    said("keys", "add", "--tenant", "t", "--band", "batch")
    strange = run("keys", "add", "--tenant", "t", "--band", "bath")
    assert (strange.exit_code, strange.output) == (
        1,
        "Error: no band is named 'bath'; there are chat, batch\n",
    )
    assert len(rows()) == 2
    Path("maitred.yaml").write_text("version: 1\nendpoints: [http://h]\nauth: {keys: store}\n")
    broken = run("keys", "list")
    assert (broken.exit_code, "pepper is missing" in broken.output) == (2, True)


def test_the_tables_are_upgraded_and_a_store_that_is_away_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said("keys", "list") == "There are no keys."
    assert said("db", "upgrade") == "the tables are of version 0003"
    with sqlite3.connect("maitred.db") as book:
        assert book.execute("SELECT version_num FROM maitred_version").fetchall() == [("0003",)]
    book.close()
    monkeypatch.setenv("MAITRED_STORE_URL", "postgresql://me:canary-pw@127.0.0.1:1/m")
    away = run("db", "upgrade")
    assert away.exit_code == 1
    assert away.output.startswith("Error: postgresql at 127.0.0.1: ")
    assert "canary" not in away.output
    monkeypatch.setenv("MAITRED_STORE_URL", "canary-pw@nowhere")
    bad = run("keys", "list")
    assert (bad.exit_code, bad.output.startswith("store.url: it is no URL of a database")) == (2, True)
    assert "canary" not in bad.output


def test_stats_tell_what_each_tenant_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = run("db", "stats")
    assert (nothing.exit_code, nothing.output) == (
        1,
        "Error: sqlite:///maitred.db: nothing is kept there yet\n",
    )
    assert not Path("maitred.db").exists()
    said("db", "upgrade")
    assert said("db", "stats") == "sqlite:///maitred.db holds nothing"
    with sqlite3.connect("maitred.db") as book:
        for id_ in ("conv_1", "conv_2"):
            book.execute("INSERT INTO conversations VALUES (?, 'su\x1bpport', NULL, 1, 2, '{}')", [id_])
    book.close()
    assert said("db", "stats").splitlines() == [
        "tenant    table          rows  bytes",
        "su?pport  conversations  2     4",
    ]
    assert json.loads(said("db", "stats", "--json")) == [
        {"table": "conversations", "tenant": "su\x1bpport", "rows": 2, "bytes": 4}
    ]
    monkeypatch.delenv("MAITRED_AUTH_KEYS")
    monkeypatch.delenv("MAITRED_AUTH_PEPPER")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    elsewhere = run("db", "stats")
    assert "state/maitred/maitred.db: nothing is kept there yet" in elsewhere.output
