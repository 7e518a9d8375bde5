"""What is asked about a conversation without going on with it: how many tokens it has, and a shorter form."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw
from msgspec.json import Decoder, encode

from maitred.wire.responses.answer import Answer
from maitred.wire.responses.items import (
    Compaction,
    InputText,
    Message,
    Mint,
    OutputText,
    keep,
)
from maitred.wire.responses.response import Usage

REQUEST = (
    "Write down what the one who goes on with this conversation has to know, and nothing else: what was "
    "asked for, what was found out, decided and done, names, numbers and texts that will be needed word by "
    "word, what is still to be done. Whoever reads it sees nothing of the conversation itself."
)
_message = Decoder(Message).decode


def asking(items: Iterable[bytes], mint: Mint) -> list[bytes]:
    """These items, and the request to write them down in short."""
    return [*items, keep(Message(role="user", content=[InputText(REQUEST)]), mint("msg")).data]


def summary(answer: Answer) -> str:
    """The words of an answer."""
    said = [_message(item.data) for item in answer.items if item.data.startswith(b'{"type":"message"')]
    parts = [part for message in said for part in message.content]
    return "".join(part.text for part in parts if isinstance(part, OutputText))


def compacted(response_id: str, created_s: int, sealed: str, usage: Usage | None, mint: Mint) -> bytes:
    """Return the answer to a request for a compaction, whose summary is `sealed`."""
    return encode(
        {
            "id": response_id,
            "object": "response.compaction",
            "created_at": created_s,
            "output": [Raw(keep(Compaction(encrypted_content=sealed), mint("cmp")).data)],
            "usage": usage or Usage(),
        }
    )


def counted(usage: Usage) -> bytes:
    """Return the answer to a request for a count."""
    return encode({"object": "response.input_tokens", "input_tokens": usage.input_tokens})
