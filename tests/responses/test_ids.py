"""Ids are ours: ordered by time, and nobody guesses one."""

from __future__ import annotations

import re
import time

from maitred.responses.ids import CONVERSATION, RESPONSE, mint


def test_an_id_says_its_kind_and_its_time_and_nothing_else() -> None:
    before = time.time_ns() // 1_000_000
    made = mint(RESPONSE)
    assert re.fullmatch(r"resp_[0-9a-f]{48}", made)
    assert before <= int(made[5:17], 16) <= time.time_ns() // 1_000_000
    assert mint(CONVERSATION).startswith("conv_")


def test_no_two_are_alike() -> None:
    assert len({mint("msg")[17:] for _ in range(1000)}) == 1000
