"""Salts: one for each tenant, and nobody makes that of another."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from maitred.wire import salt
from maitred.wire.salt import Salter

TEXTS = st.text("ab:1\0", max_size=4)
SALTER = Salter(b"secret")


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_salts_are_equal_only_for_the_same_tenant_and_word(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert (SALTER.salt(*one) == SALTER.salt(*other)) is (one == other)


def test_they_last_as_long_as_the_secret() -> None:
    assert SALTER.salt("a") == Salter(b"secret").salt("a") != Salter(b"other").salt("a")


def test_they_are_short_and_tell_nothing() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{24}", SALTER.salt("tenant-a", "own"))
    assert "secret" not in repr(SALTER)


def test_only_so_many_are_remembered() -> None:
    salter = Salter(b"s")
    first = salter.salt("0")
    for number in range(salt.KNOWN_MAX + 10):
        salter.salt(str(number))
    assert len(salter._known) <= salt.KNOWN_MAX
    assert salter.salt("0") == first
