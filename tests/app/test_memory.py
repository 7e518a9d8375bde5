"""Where what is remembered is kept, and when it is opened."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maitred.app.memory import Memory, default_file
from maitred.config.auth import Store
from maitred.config.tree import Config
from maitred.observe.findings import Findings
from maitred.store.rows import StoreError
from maitred.store.store import Store as Database


def memory(config: Config | None = None, shared: Database | None = None) -> tuple[Memory, Findings]:
    findings = Findings()
    return Memory(config or Config(), lambda: shared, findings, lambda _operation, _s: None), findings


def test_by_default_it_is_a_file_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_file() == tmp_path / "maitred" / "maitred.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # which the standard says to leave alone
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_file() == tmp_path / ".local" / "state" / "maitred" / "maitred.db"


def test_that_file_is_made_when_it_is_first_needed_and_is_the_users_alone() -> None:
    async def main() -> None:
        kept, _ = memory()
        await kept.start()
        assert not default_file().parent.exists()
        store = await kept()
        assert await kept() is store
        assert kept.opened is store
        await kept.close()

    asyncio.run(main())
    assert default_file().exists()
    assert default_file().parent.stat().st_mode & 0o077 == 0


def test_all_who_wait_share_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        kept, findings = memory(Config(store=Store(url="sqlite:////nowhere/maitred.db")))
        told: list[str] = []
        monkeypatch.setattr(findings, "tell", lambda kind, *_: told.append(kind))
        failed = await asyncio.gather(*(kept() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, StoreError) for error in failed)
        assert told == ["memory_unreachable"]
        with pytest.raises(StoreError):
            await kept()
        assert len(told) == 2

    asyncio.run(main())


def test_what_an_earlier_run_left_is_opened_at_the_start() -> None:
    async def main() -> None:
        for _ in range(2):
            kept, _findings = memory()
            await kept.start()
            await kept()
            await kept.close()
        again, _findings = memory()
        await again.start()
        assert again.opened is not None
        await again.close()

    asyncio.run(main())


def test_a_database_that_was_named_or_is_open_for_keys_is_used(tmp_path: Path) -> None:
    async def main() -> None:
        named, shared = tmp_path / "named.db", tmp_path / "shared.db"
        kept, _ = memory(Config(store=Store(url=f"sqlite:///{named}")))
        await kept.start()
        assert named.exists()
        await kept.close()
        database = Database.open(f"sqlite:///{shared}")
        kept, _ = memory(shared=database)
        await kept.start()
        assert shared.exists()
        await kept.close()
        await database.close()

    asyncio.run(main())
    assert not default_file().exists()


def test_an_attempt_that_fails_half_way_leaves_no_thread_behind(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "named.db"
        kept, _ = memory(Config(store=Store(url=f"sqlite:///{path}", statement_s=0.05)))
        await kept()
        await kept.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("DELETE FROM secrets")
            other.execute("BEGIN IMMEDIATE")
            kept, _ = memory(Config(store=Store(url=f"sqlite:///{path}", statement_s=0.05)))
            with pytest.raises(StoreError, match="locked"):
                await kept()
            assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("store")]
        await kept.close()

    asyncio.run(main())


def test_where_it_cannot_be_a_finding_says_so_until_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> Any:
        (tmp_path / "state").write_text("no folder")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        kept, findings = memory()
        with pytest.raises(StoreError):
            await kept()
        assert findings.counts()["memory_unreachable"] == 1
        (tmp_path / "state").unlink()
        await kept()
        kept.worked()
        assert not findings.counts().get("memory_unreachable")
        await kept.close()

    asyncio.run(main())
