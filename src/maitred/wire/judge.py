"""Judging an answer while it passes: has content begun, has it failed, how did it end.

Sans I/O: fed with body bytes, cut anywhere. While an answer is held, `look` decides; once it is committed,
`note` only counts, and `end` decides how it ended. One judge a leg.
"""

from __future__ import annotations

from typing import Protocol

from maitred.core.outcome import FailureKind
from maitred.core.words import Failure, Usage
from maitred.wire import answers
from maitred.wire.answers import Says
from maitred.wire.sse import Scanner, Tail

USAGE_TAIL_BYTES = 4096


class Judge(Protocol):
    """What a relay asks. `begun`: content has come; `reasoning`: so far only the model's thinking."""

    begun: bool
    reasoning: bool
    streamed: bool

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """The next bytes of a held answer; a Failure when it must not be passed on."""

    def begin(self, held: bytes) -> None:
        """The answer is committed; these are all bytes looked at so far."""

    def note(self, body: bytes) -> int:
        """The next bytes of a committed answer; the output tokens so far, counted by events."""

    def end(self) -> tuple[Failure | None, Usage | None]:
        """The answer is over: what was wrong with it, and its usage."""


class StreamJudge:
    """A chat or completions stream of server-sent events."""

    __slots__ = ("_scanner", "_sequences", "_tail", "begun", "reasoning", "streamed")

    def __init__(self, sequences: int) -> None:
        self.begun = False
        self.reasoning = False
        self.streamed = True
        self._sequences = sequences
        self._scanner = Scanner()
        self._tail: Tail | None = None

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """See Judge."""
        for event in self._scanner.feed(body):
            said = answers.says(event)
            if said is Says.ERROR:
                return Failure(FailureKind.ERROR_EVENT, detail="the engine sent an error event")
            if said is not Says.NOTHING:
                self.begun = True
                self.reasoning = said is Says.REASONING
                return None
        if complete:
            return Failure(FailureKind.TRUNCATED, detail="the stream ended before any content")
        return None

    def begin(self, held: bytes) -> None:
        """See Judge."""
        self._tail = Tail(held)

    def note(self, body: bytes) -> int:
        """See Judge."""
        if self._tail is None:
            return 0
        self._tail.feed(body)
        if self.reasoning and answers.ANSWER_BEGINS.search(body):
            self.reasoning = False
        return self._tail.events

    def end(self) -> tuple[Failure | None, Usage | None]:
        """See Judge."""
        if self._tail is None:
            return None, None
        end = answers.judge_end(self._tail.last(), self._sequences)
        usage = end.usage or Usage(output_tokens=self._tail.events, exact=False)
        if end.whole:
            return None, usage
        if end.error:
            return Failure(FailureKind.ERROR_EVENT, detail="the engine sent an error event"), usage
        return Failure(FailureKind.TRUNCATED, detail="the stream ended without its end"), usage


class WholeJudge:
    """A JSON answer in one piece. `refused`: the engine answered 4xx, so an error object is expected."""

    __slots__ = ("_refused", "_tail", "_usage", "begun", "reasoning", "streamed")

    def __init__(self, *, refused: bool) -> None:
        self.begun = False
        self.reasoning = False
        self.streamed = False
        self._refused = refused
        self._usage: Usage | None = None
        self._tail = b""

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """See Judge; `body` is everything so far, since a JSON answer is judged when it is whole."""
        if complete:
            is_error, self._usage = answers.read_whole(body)
            if is_error and not self._refused:
                return Failure(FailureKind.ERROR_EVENT, detail="the engine answered 200 with an error")
            self.begun = True
        return None

    def begin(self, held: bytes) -> None:
        """See Judge."""
        self._tail = held[-USAGE_TAIL_BYTES:]

    def note(self, body: bytes) -> int:
        """See Judge: nothing is counted."""
        self._tail = (self._tail + body)[-USAGE_TAIL_BYTES:]
        return 0

    def end(self) -> tuple[Failure | None, Usage | None]:
        """See Judge."""
        return None, self._usage or answers.usage_near_end(self._tail)
