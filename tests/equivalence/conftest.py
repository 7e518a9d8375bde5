"""What these tests have in common."""

from __future__ import annotations

import pytest

from maitred.control import kv_events
from maitred.proxy import relay


@pytest.fixture
def stock_at_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tokens counted at each read, so that progress is told at the instant of its token.

    The relay counts them every few reads, and so tells the same totals a little later.
    """
    monkeypatch.setattr(relay, "STOCK_READS", 1)


@pytest.fixture
def nobody_called_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an engine refuse however many requests before it tells anything of its cache."""
    monkeypatch.setattr(kv_events, "SILENT_SEATED", 1_000_000)
