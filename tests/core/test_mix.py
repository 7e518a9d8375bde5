"""Numbers as good as random: the same every time, and each bit of what they are made of counts."""

from __future__ import annotations

from maitred.core.mix import key_of, mix, uniform


def test_the_same_in_every_process() -> None:
    assert key_of("session") == 0xD044D5D4
    assert mix(0, 0) == 0xE220A8397B1DCDAF  # the first number of splitmix64 from 0


def test_each_bit_changes_about_half_of_it() -> None:
    for number in (mix(5, 9) ^ mix(5 ^ 1 << bit, 9) for bit in range(64)):
        assert 16 <= number.bit_count() <= 48
    for number in (mix(5, 9) ^ mix(5, 9 ^ 1 << bit) for bit in range(32)):
        assert 16 <= number.bit_count() <= 48


def test_uniform_is_between_0_and_1() -> None:
    assert 0 < uniform(0) < uniform(2**63) < uniform(2**64 - 1) < 1
    mean = sum(uniform(mix(number, 0)) for number in range(4000)) / 4000
    assert abs(mean - 0.5) < 0.02
