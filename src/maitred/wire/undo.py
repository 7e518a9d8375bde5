"""Undoing in an answer what was edited in its request, so that the client sees only what it asked for.

Three things: the usage event, which engines are asked for on every stream since limits and metrics need it,
is cut out where the client did not ask; the served model's name is put back to the client's; and what an
OpenAI stream never has and its official client falls over (`id:`, `retry:`, events without data) is left
out. Every other byte passes as it came. Streams leave in whole events, so that an error event can always
follow.
"""

from __future__ import annotations

import re

from maitred.wire.edit import Renamer
from maitred.wire.openai import is_usage_only
from maitred.wire.sse import Blocks, parse

USAGE = b'_tokens"'
"""Stands in every event that might have to be cut out, and not in the `"usage":null` some engines repeat."""

_PLAIN = re.compile(rb"data: .++\n\n").fullmatch


class Undo:
    """Feed an answer's bytes, get those that may leave. Holds back only what might still have to change."""

    __slots__ = ("_blocks", "_hides_usage", "_renamer", "_streamed", "_strict")

    def __init__(
        self, *, streamed: bool, strict: bool, hides_usage: bool, served_as: str | None, name: str
    ) -> None:
        """`strict`: its client takes nothing but events with data. `hides_usage`: it did not ask for usage.

        `served_as` is put back to `name`.
        """
        self._streamed = streamed
        self._strict = strict
        self._hides_usage = hides_usage
        self._renamer = Renamer(served_as, name) if served_as is not None else None
        self._blocks = Blocks()

    @property
    def calm(self) -> bool:
        """Whether plain events without the word USAGE may leave unseen, as nearly all of them do."""
        return self._renamer is None and not self._blocks.rest

    def feed(self, data: bytes) -> bytes:
        """The bytes that may leave now."""
        if self._streamed:
            blocks = self._blocks.feed(data)
            if self._strict:
                blocks = [block if _PLAIN(block) else _strictly(block) for block in blocks]
            if self._hides_usage:
                blocks = [block for block in blocks if not _is_usage(block)]
            data = b"".join(blocks)
        return data if self._renamer is None else self._renamer.feed(data)

    def flush(self) -> bytes:
        """What was held back, at the end of an answer that is whole."""
        held = bytes(self._blocks.rest)
        self._blocks.rest.clear()
        if self._renamer is not None:
            held = self._renamer.feed(held) + self._renamer.flush()
        return held


def _strictly(block: bytes) -> bytes:
    """The block as an OpenAI client can take it: without `id:` and `retry:`, and without data no event."""
    lines = block.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith((b"id", b"retry"))]
    if not any(line.startswith(b"data") and line.strip() not in (b"data", b"data:") for line in kept):
        kept = [line for line in kept if line.startswith(b":")]
        kept += lines[-1:] if kept else []  # comments are no event, however they end
    return b"".join(kept)


def _is_usage(block: bytes) -> bool:
    """Whether this is the event that the edited request asked for."""
    event = parse(block) if block.find(USAGE) >= 0 else None
    return event is not None and is_usage_only(event.data)
