"""Judging an answer while it passes: has content begun, has it failed, how did it end.

Sans I/O: fed with body bytes, cut anywhere. While an answer is held, `look` decides; once it is committed,
`note` counts (and still waits for content, if it was committed before any), and `end` decides how it ended.
One judge a leg.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, structs

from maitred.core.mutable import mutable
from maitred.core.outcome import FailureKind
from maitred.core.words import Api, Failure, Usage
from maitred.wire import anthropic, native, openai
from maitred.wire.answers import ERROR, NOTHING, REASONING, Grammar, Says, is_json, usage_near_end
from maitred.wire.sse import Event, Scanner, Tail

USAGE_TAIL_BYTES = 4096
CLOSING_BYTES_MAX = 64
"""More than the first line of a last event has."""

_ERROR = Failure(FailureKind.ERROR_EVENT, detail="the engine sent an error event")
NO_ANSWER = Failure(FailureKind.ERROR_EVENT, detail="the engine answered 200 with an error")
_CUT = Failure(FailureKind.TRUNCATED, detail="the connection closed before the end of the answer")


_GRAMMARS = [anthropic.GRAMMAR if api.anthropic else openai.GRAMMAR for api in Api]
_GRAMMARS[Api.RESPONSES] = native.GRAMMAR


grammar_of: Callable[[Api], Grammar] = _GRAMMARS.__getitem__
"""How answers to clients of an API are read."""


class Judge(Protocol):
    """What a relay asks. `begun`: content has come; `reasoning`: so far only the model's thinking.

    `by_one`: of whole events that pass one by one it is enough to note how many and the last of them.
    """

    begun: bool
    reasoning: bool
    streamed: bool
    by_one: bool

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """The next bytes of a held answer; a Failure when it must not be passed on."""

    def begin(self, held: bytes) -> int:
        """The answer is committed; these are all bytes looked at so far. The output tokens in them."""

    def note(self, body: bytes, unseen: int = 0, /) -> int:
        """The next bytes of a committed answer; the output tokens so far, counted by events.

        `unseen` events were before these, each whole, with data and LF LF at its end.
        An answer may be committed before its content: it has `begun` after the bytes with the first of it.
        """

    def end(self) -> tuple[Failure | None, Usage | None]:
        """The answer is over: what was wrong with it, and its usage."""


@mutable
class StreamJudge(Struct, eq=False):  # a Struct, because one is made for each stream
    """A stream of server-sent events."""

    _grammar: Grammar
    _sequences: int
    begun: bool = False
    reasoning: bool = False
    streamed: bool = True
    by_one: bool = False
    _scanner: Scanner | None = None
    _opening: list[Event] = []
    _tail: Tail | None = None
    _carry: bytes = b""
    _closed_by: bytes = b""

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """See Judge."""
        if self._listen(body) is ERROR:
            return _ERROR
        if complete and not self.begun:
            return Failure(FailureKind.TRUNCATED, detail="the stream ended before any content")
        return None

    def begin(self, held: bytes) -> int:
        """See Judge."""
        tail = self._tail = Tail(held, self._grammar.token)
        if self._grammar.closing is not None:
            self._look_for_closing(held)
        else:
            self.by_one = tail.simple
        return tail.events

    def note(self, body: bytes, unseen: int = 0, /) -> int:
        """See Judge."""
        tail, grammar = self._tail, self._grammar
        if tail is None:
            return 0
        tail.events += unseen
        tail.feed(body)
        if not self.begun:
            self._listen(body)  # an error among it is found at the end
        if self.reasoning and grammar.answer_begins.search(body):
            self.reasoning = False
        if grammar.closing is not None:
            self._look_for_closing(body)
        return tail.events

    def end(self) -> tuple[Failure | None, Usage | None]:
        """See Judge."""
        tail, grammar = self._tail, self._grammar
        if tail is None:
            return None, None
        if self._closed_by:
            usage_told = usage_near_end(tail.text()[-USAGE_TAIL_BYTES:], grammar.read_usage)
            ended = grammar.judge_end([Event(self._closed_by, b"")], self._sequences)
            end = structs.replace(ended, usage=usage_told)
        else:
            end = grammar.judge_end(self._opening + tail.last(), self._sequences)
        usage = end.usage
        if usage is None:
            usage = Usage(0, 0, tail.events, False)
        elif not usage.exact:
            usage = structs.replace(usage, output_tokens=tail.events)
        if end.whole:
            return None, usage
        if end.error:
            return _ERROR, usage
        return Failure(FailureKind.TRUNCATED, detail="the stream ended without its end"), usage

    def _look_for_closing(self, body: bytes) -> None:
        """See whether the last event has begun, where that is told apart by its name."""
        assert self._grammar.closing is not None  # noqa: S101 - who calls has looked
        seen = self._carry + body
        for found in self._grammar.closing.finditer(seen):
            self._closed_by = found[1]
        self._carry = seen[-CLOSING_BYTES_MAX:]

    def _listen(self, body: bytes) -> Says:
        """Read as far as the first event that says something; it decides `begun` and `reasoning`."""
        grammar, scanner = self._grammar, self._scanner
        if scanner is None:
            scanner = self._scanner = Scanner()
        for event in scanner.each(body):
            if event.name == grammar.opening:
                self._opening = [event]
            said = grammar.says(event)
            if said is not NOTHING:
                self.begun = said is not ERROR
                self.reasoning = said is REASONING
                return said
        return NOTHING


class WholeJudge:
    """A JSON answer in one piece.

    `refused`: the engine answered 4xx, so an error object is expected, and any text will do. `until_close`:
    nothing but the connection's close ends the answer, so a cut shows in the JSON alone.
    """

    __slots__ = (
        "_grammar",
        "_refused",
        "_tail",
        "_until_close",
        "_usage",
        "begun",
        "by_one",
        "reasoning",
        "streamed",
    )

    def __init__(self, grammar: Grammar, *, refused: bool, until_close: bool = False) -> None:
        self.begun = False
        self.reasoning = False
        self.streamed = self.by_one = False
        self._grammar = grammar
        self._refused = refused
        self._until_close = until_close and not refused
        self._usage: Usage | None = None
        self._tail = b""

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """See Judge; `body` is everything so far, since a JSON answer is judged when it is whole."""
        if complete:
            if self._until_close and not is_json(body):
                return _CUT
            is_error, self._usage = self._grammar.read_whole(body)
            if is_error and not self._refused:
                return NO_ANSWER
            self.begun = True
        return None

    def begin(self, held: bytes) -> int:
        """See Judge."""
        self._tail = held[-USAGE_TAIL_BYTES:]
        return 0

    def note(self, body: bytes, _unseen: int = 0, /) -> int:
        """See Judge: nothing is counted."""
        self._tail = (self._tail + body)[-USAGE_TAIL_BYTES:]
        return 0

    def end(self) -> tuple[Failure | None, Usage | None]:
        """See Judge. Of an answer too large to be kept, its last byte has to tell whether it was cut."""
        whole = self.begun or not self._until_close or self._tail.rstrip().endswith((b"}", b"]"))
        return None if whole else _CUT, self._usage or usage_near_end(self._tail, self._grammar.read_usage)
