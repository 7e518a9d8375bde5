"""How a model is asked in behalf of a response: by chat completions, or by its engines' own Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from maitred.wire.responses import answer, chat, native
from maitred.wire.responses.answer import Answer, Mine
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import Mint, Unseal, unsealed
from maitred.wire.responses.stream import ChatStream, Stream
from maitred.wire.responses.tools import FunctionTool


class Asks(Protocol):
    """Makes the body of a request."""

    def __call__(
        self,
        create: Create,
        items: Iterable[bytes],
        *,
        stream: bool,
        tools: Sequence[FunctionTool] = (),
        unseal: Unseal = unsealed,
    ) -> bytes:
        """See `chat.request`."""


class Dialect(Struct, frozen=True):
    """One way: its `path`, how to ask, to read an answer and a stream, and what a refusal names."""

    path: str
    request: Asks
    read: Callable[[bytes, Create, Mint, Mine], Answer]
    stream: Callable[[Events, Create, Mint, Mine], Stream]
    param: Callable[[str | None], str | None]


CHAT = Dialect("/v1/chat/completions", chat.request, answer.read, ChatStream, chat.param)
NATIVE = Dialect("/v1/responses", native.request, native.read, native.NativeStream, native.param)
