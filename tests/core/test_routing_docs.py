"""docs/routing.md says the weights of the default policy, and how much each policy keeps in mind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maitred.core import homes
from maitred.core.prefix import MEMORY, TOKENS_GUESS

PAGE = (Path(__file__).parents[2] / "docs" / "routing.md").read_text()


@pytest.mark.parametrize("name", ["MISS", "STREAM_TOKENS", "WAIT_TOKENS", "BEGUN_TOKENS"])
def test_weights_are_as_documented(name: str) -> None:
    told = re.findall(rf"`{name}` \((\d+)\)", PAGE)
    assert list(map(float, told)) == [getattr(homes, name)]


def test_so_is_how_much_is_kept_in_mind() -> None:
    told = re.findall(r"^\| `([\w-]+)` \| (\d+) \|$", PAGE, re.MULTILINE)
    assert {policy: int(times) for policy, times in told} == MEMORY
    assert f"{TOKENS_GUESS:,} tokens" in PAGE
