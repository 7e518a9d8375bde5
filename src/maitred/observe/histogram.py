"""A histogram: a few ints and a sum."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Histogram:
    """Counts by upper bound (inclusive), the last for all beyond, and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: list[float]) -> None:
        """Count many, and leave them sorted."""
        self.total = sum(values, self.total)
        values.sort()
        bounds, counts, start, end = self.bounds, self.counts, 0, len(values)
        while start < end:
            bucket = bisect_left(bounds, values[start])
            stop = bisect_right(values, bounds[bucket], start) if bucket < len(bounds) else end
            counts[bucket] += stop - start
            start = stop
