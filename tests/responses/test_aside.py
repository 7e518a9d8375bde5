"""Large requests are taken apart beside the loop."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import pytest
from msgspec import structs

from maitred.responses.aside import BYTES_MAX, ITEMS_MAX
from maitred.wire.responses.create import decode
from maitred.wire.responses.dialects import CHAT
from maitred.wire.responses.input import settle
from tests.net.http import turns
from tests.responses.place import in_real_time, remembering, says, turn


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
    monkeypatch.setattr("maitred.responses.model.CHAT", structs.replace(CHAT, request=noting(CHAT.request)))
    async with remembering(file, says("x")) as it:
        await it.turn("hi")
        assert beside == [False, False, False]
        many = [{"role": "user", "content": str(number)} for number in range(ITEMS_MAX + 1)]
        await it.turn(many)
        assert it.told.said == [("user", str(number)) for number in range(ITEMS_MAX + 1)]
        assert beside[3:] == [False, True, True]
        await it.turn("x" * BYTES_MAX)
        assert beside[6:] == [True, False, False]


@pytest.mark.parametrize("members", [{}, {"stream": True}, {"background": True}])
@in_real_time
async def test_no_engine_is_asked_for_who_leaves_meanwhile(
    file: str, monkeypatch: pytest.MonkeyPatch, members: dict[str, Any]
) -> None:
    async with remembering(file, says("x")) as it:
        client = await it.place.client()

        async def aside(work: Any, **_: Any) -> Any:
            client.leave()
            await turns(5)
            return work()

        monkeypatch.setattr("maitred.responses.model.aside", aside)
        client.send(turn(**members))
        await it.place.until(lambda: it.place.outcomes == ["client_gone"])
        assert not it.place.menu.asked
        assert not it.rows("responses")
