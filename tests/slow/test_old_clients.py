"""HTTP/1.0 has no chunks: without a length only the end of the connection tells whole from broken."""

from __future__ import annotations

import pytest

from tests.cases.place import on_sockets, serving
from tests.net.http import Broken, post
from tests.proxy.place import CHAT, chat
from tests.proxy.upstream import LAST, End, chunk, head

PIECE = b" " * 200_000
"""More than is held back: it has left when the engine breaks off."""
LARGE = [head(200, "content-type: application/json", "transfer-encoding: chunked"), chunk(b"{"), chunk(PIECE)]


@on_sockets
async def test_an_answer_that_broke_off_is_not_closed_like_a_whole_one() -> None:
    async with serving([*LARGE, End.CLOSE]) as place:
        client = await place.client()
        client.send(post(CHAT, chat(), version="1.0"))
        with pytest.raises(Broken) as broken:
            await client.answer()
        assert broken.value.answer is not None
        assert broken.value.answer.framing == "close"
        assert isinstance(client.error, ConnectionResetError)


@on_sockets
async def test_a_whole_answer_is_closed_and_not_reset() -> None:
    async with serving([*LARGE, chunk(b"}"), LAST]) as place:
        client = await place.client()
        client.send(post(CHAT, chat(), version="1.0"))
        answer = await client.answer()
        assert (answer.framing, len(answer.body)) == ("close", len(PIECE) + 2)
