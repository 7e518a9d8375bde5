"""Judging an answer while it passes: has content begun, has it failed, how did it end.

Sans I/O: fed with body bytes, cut anywhere. While an answer is held, `look` decides; once it is committed,
`note` counts (and still waits for content, if it was committed before any), and `end` decides how it ended.
One judge a leg.
"""

from __future__ import annotations

from typing import Protocol

from maitred.core.outcome import FailureKind
from maitred.core.words import Failure, Usage
from maitred.wire import answers
from maitred.wire.answers import Says
from maitred.wire.sse import Scanner, Tail

USAGE_TAIL_BYTES = 4096

_ERROR = Failure(FailureKind.ERROR_EVENT, detail="the engine sent an error event")
_CUT = Failure(FailureKind.TRUNCATED, detail="the connection closed before the end of the answer")


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
        """The next bytes of a committed answer; the output tokens so far, counted by events.

        An answer may be committed before its content: it has `begun` after the bytes with the first of it.
        """

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
        if self._listen(body) is Says.ERROR:
            return _ERROR
        if complete and not self.begun:
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
        if not self.begun:
            self._listen(body)  # an error among it is found at the end
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
            return _ERROR, usage
        return Failure(FailureKind.TRUNCATED, detail="the stream ended without its end"), usage

    def _listen(self, body: bytes) -> Says:
        """Read as far as the first event that says something; it decides `begun` and `reasoning`."""
        for event in self._scanner.feed(body):
            said = answers.says(event)
            if said is not Says.NOTHING:
                self.begun = said is not Says.ERROR
                self.reasoning = said is Says.REASONING
                return said
        return Says.NOTHING


class WholeJudge:
    """A JSON answer in one piece.

    `refused`: the engine answered 4xx, so an error object is expected, and any text will do. `until_close`:
    nothing but the connection's close ends the answer, so a cut shows in the JSON alone.
    """

    __slots__ = ("_refused", "_tail", "_until_close", "_usage", "begun", "reasoning", "streamed")

    def __init__(self, *, refused: bool, until_close: bool = False) -> None:
        self.begun = False
        self.reasoning = False
        self.streamed = False
        self._refused = refused
        self._until_close = until_close and not refused
        self._usage: Usage | None = None
        self._tail = b""

    def look(self, body: bytes, *, complete: bool) -> Failure | None:
        """See Judge; `body` is everything so far, since a JSON answer is judged when it is whole."""
        if complete:
            if self._until_close and not answers.is_json(body):
                return _CUT
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
        """See Judge. Of an answer too large to be kept, its last byte has to tell whether it was cut."""
        whole = self.begun or not self._until_close or self._tail.rstrip().endswith(b"}")
        return None if whole else _CUT, self._usage or answers.usage_near_end(self._tail)
