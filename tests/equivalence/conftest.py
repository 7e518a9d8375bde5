"""What these tests have in common."""

from __future__ import annotations

import pytest

from maitred.proxy import relay


@pytest.fixture
def stock_at_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tokens counted at each read, so that progress is told at the instant of its token.

    The relay counts them every few reads, and so tells the same totals a little later.
    """
    monkeypatch.setattr(relay, "STOCK_READS", 1)
