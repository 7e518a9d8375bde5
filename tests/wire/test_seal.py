"""Sealed texts: they open for whose they are, unchanged, and for nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.wire.seal import BEGINS, Seal

SEAL = Seal(b"secret")


@given(st.text(max_size=20), st.text(max_size=200))
def test_what_was_sealed_opens(tenant: str, text: str) -> None:
    sealed = SEAL.close(tenant, text)
    assert sealed.startswith(BEGINS)
    assert SEAL.open(tenant, sealed) == text


def test_nobody_else_can_read_it() -> None:
    sealed = SEAL.close("a", "what was said")
    assert len({sealed, SEAL.close("b", "what was said"), Seal(b"other").close("a", "what was said")}) == 3
    for seal, tenant in ((Seal(b"other"), "a"), (SEAL, "b"), (SEAL, "")):
        with pytest.raises(ValueError, match="not sealed here"):
            seal.open(tenant, sealed)


def test_tenant_and_text_cannot_be_shifted() -> None:
    with pytest.raises(ValueError, match="not sealed here"):
        SEAL.open("ab", SEAL.close("a", "bc"))


@pytest.mark.parametrize("at", range(len(BEGINS), 60))
def test_a_changed_one_does_not_open(at: int) -> None:
    sealed = SEAL.close("a", "what was said")
    changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
    with pytest.raises(ValueError):
        SEAL.open("a", changed)


@pytest.mark.parametrize("sealed", ["", "gAAAA", BEGINS, BEGINS + "!", BEGINS + "AA==", BEGINS + "é"])
def test_what_is_no_seal(sealed: str) -> None:
    with pytest.raises(ValueError):
        SEAL.open("a", sealed)
