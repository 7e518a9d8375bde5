"""Where time goes, as engines tell: the growth of their metrics."""

from __future__ import annotations

import asyncio

import pytest

from maitred.bench.spans import Spans, Totals, between, look
from maitred.net import virtual
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from tests.twin.place import STEP_S, serving


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Totals(10, (1.0, 2.0, 3.0)), Totals(14, (1.4, 2.8, 7.0)), Spans(4, 0.1, 0.2, 1.0)),
        (Totals(10, (1.0, 2.0, 3.0)), Totals(10, (1.0, 2.0, 3.0)), None),  # nothing came
        (Totals(10, (1.0, 2.0, 3.0)), Totals(12, (0.1, 0.1, 9.0)), None),  # it started anew
        (None, Totals(10, (1.0, 2.0, 3.0)), None),
        (Totals(10, (1.0, 2.0, 3.0)), None, None),
    ],
)
def test_means_are_over_what_was_added(
    before: Totals | None, after: Totals | None, told: Spans | None
) -> None:
    found = between(before, after)
    if told is None or found is None:
        assert found is told
    else:
        assert found.requests == told.requests
        for name in ("queue_s", "prefill_s", "decode_s"):
            assert getattr(found, name) == pytest.approx(getattr(told, name))


def test_an_engine_is_asked() -> None:
    async def main() -> None:
        async with serving() as place:
            sweep = Sweep(asyncio.get_running_loop().time)
            sweep.start()
            pool = Pool(place.network, sweep, Patience())
            before = await look(pool, [place.url])
            await asyncio.gather(*(place.chat(max_tokens=6) for _ in range(2)))
            found = between(before, await look(pool, [place.url]))
            both = await look(pool, [place.url, place.url])
            nobody = await look(pool, [place.url, "http://127.0.0.1:1"])
            pool.close()
            sweep.stop()
        assert found is not None
        assert found.requests == 2
        assert found.decode_s == pytest.approx(5 * STEP_S)
        assert found.prefill_s > STEP_S
        assert both is not None
        assert both.requests == 4
        assert nobody is None

    virtual.run(main())
