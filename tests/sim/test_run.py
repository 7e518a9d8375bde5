"""A finished run's samples stay few and evenly spread."""

from __future__ import annotations

from itertools import pairwise

import pytest

from maitred.sim.run import SAMPLES_MAX, Sample, Samples


@pytest.mark.parametrize("seconds", [10, SAMPLES_MAX - 1, SAMPLES_MAX, 12_345, 100_000])
def test_samples_are_few_and_even(seconds: int) -> None:
    samples = Samples()
    for second in range(seconds):
        samples.add(Sample(second, 0, 0, 0.0))
    ats = [sample.at for sample in samples.kept]
    gaps = {after - before for before, after in pairwise(ats)}
    assert len(ats) < SAMPLES_MAX
    assert len(ats) >= min(seconds, SAMPLES_MAX // 2)
    assert len(gaps) == 1
    assert ats[0] == 0
    assert seconds - 1 - ats[-1] < gaps.pop()
