"""Signals while something is measured: what the first one does, the second, and those after it."""

from __future__ import annotations

import os
import signal

import pytest

from maitred.bench.interrupt import SAME_S, STOPS, Interrupt


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def send(number: signal.Signals) -> None:
    """To this process, which hears it before this returns."""
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_only_asks_for_the_end(number: signal.Signals, code: int) -> None:
    with Interrupt() as interrupt:
        assert not interrupt.heard()
        assert interrupt.code == 0
        send(number)
        assert interrupt.heard()
        assert interrupt.code == code


def test_the_second_is_the_end_and_clearing_up_is_not_broken_off() -> None:
    clock = Clock()
    with Interrupt(clock) as interrupt:
        send(signal.SIGTERM)
        clock.now += SAME_S
        with pytest.raises(SystemExit) as raised:
            send(signal.SIGINT)
        assert raised.value.code == 143, "the first one is the reason"
        clock.now += 10.0
        send(signal.SIGINT)
        assert interrupt.code == 143


def test_two_at_once_are_one() -> None:
    clock = Clock()
    with Interrupt(clock) as interrupt:
        send(signal.SIGTERM)
        clock.now += SAME_S / 2
        send(signal.SIGTERM)
        assert interrupt.code == 143


def test_all_is_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in STOPS]
    with Interrupt():
        assert [signal.getsignal(number) for number in STOPS] != before
    assert [signal.getsignal(number) for number in STOPS] == before
