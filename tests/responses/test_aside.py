"""Large requests are taken apart beside the loop."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import pytest

from maitred.responses.aside import BYTES_MAX, ITEMS_MAX
from maitred.wire.responses.create import decode
from maitred.wire.responses.input import settle
from tests.responses.place import in_real_time, remembering, says


@in_real_time
async def test_only_large_requests_are_taken_apart_in_a_thread(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, beside = get_ident(), list[bool]()

    def noting(work: Any) -> Any:
        def noted(*said: Any, **more: Any) -> Any:
            beside.append(get_ident() != loop)
            return work(*said, **more)

        return noted

    monkeypatch.setattr("maitred.responses.create.decode", noting(decode))
    monkeypatch.setattr("maitred.responses.settled.settle", noting(settle))
    async with remembering(file, says("x")) as it:
        await it.turn("hi")
        assert beside == [False, False]
        many = [{"role": "user", "content": str(number)} for number in range(ITEMS_MAX + 1)]
        await it.turn(many)
        assert it.told.said == [("user", str(number)) for number in range(ITEMS_MAX + 1)]
        assert beside[2:] == [False, True]
        await it.turn("x" * BYTES_MAX)
        assert beside[4:] == [True, False]
