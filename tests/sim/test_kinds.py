"""Rates, shares and factors: what is read, what is refused, and how."""

from __future__ import annotations

import pytest

from maitred.config.kinds import Kind
from maitred.sim.kinds import FACTOR, RATE, SHARE


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (RATE, "15/s", 15.0),
        (RATE, "90/m", 1.5),
        (RATE, "100/h", 100 / 3600),
        (SHARE, "30%", 0.3),
        (SHARE, "0.5%", 0.005),
        (SHARE, "100%", 1.0),
        (FACTOR, "2", 2.0),
        (FACTOR, "1.85", 1.85),
    ],
)
def test_what_is_read_is_written_as_it_was(kind: Kind, text: str, value: float) -> None:
    assert kind.parse(text) == pytest.approx(value)
    assert kind.write(kind.parse(text)) == text


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (RATE, "15", "15 has no unit; write 15/s"),
        (RATE, "15/d", "'15/d' is not a rate; write a whole number per s, m or h, such as 15/s"),
        (RATE, "0/s", "'0/s' is not a rate; write a whole number per s, m or h, such as 15/s"),
        (RATE, "1.5/s", "'1.5/s' is not a rate; write a whole number per s, m or h, such as 15/s"),
        (SHARE, "0.3", "'0.3' is not a share; write 0% to 100%, such as 30%"),
        (SHARE, "101%", "'101%' is not a share; write 0% to 100%, such as 30%"),
        (FACTOR, "0", "'0' is not a factor; write a number above zero, such as 1.5"),
        (FACTOR, "-1", "'-1' is not a factor; write a number above zero, such as 1.5"),
        (FACTOR, "nan", "'nan' is not a factor; write a number above zero, such as 1.5"),
    ],
)
def test_what_is_refused(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(text)
    assert str(caught.value) == said
