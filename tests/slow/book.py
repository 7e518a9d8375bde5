"""What became of every request, as its client saw it: judged at once, and kept for the audit at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from maitred.core.outcome import Outcome
from tests.net.http import Answer
from tests.slow.wishes import EMBEDDINGS, MESSAGES, Wish, is_whole

COMPLETED, REFUSED, GONE = (
    outcome.label for outcome in (Outcome.COMPLETED, Outcome.ENGINE_REFUSED, Outcome.CLIENT_GONE)
)
BROKEN = frozenset({Outcome.FAILED_UPSTREAM.label, Outcome.FAILED_TRUNCATED.label})
UNSERVED = frozenset(
    outcome.label
    for outcome in (
        Outcome.QUEUE_FULL, Outcome.QUEUE_DEADLINE, Outcome.DEADLINE_UNMEETABLE, Outcome.NO_ENDPOINT,
        Outcome.FAILED_UPSTREAM,
    )
)  # fmt: skip
"""How a request may end that no engine has seen whole."""
RESTING = {Outcome.ENGINE_OVERLOADED, Outcome.DEADLINE_UNMEETABLE, Outcome.QUEUE_FULL, Outcome.QUEUE_DEADLINE}
"""What may come of it when engines ask to be left alone."""
FAILED = UNSERVED | BROKEN | {Outcome.FAILED_DEADLINE.label, Outcome.ENGINE_OVERLOADED.label}
LABELS = {outcome.code: outcome.label for outcome in Outcome if outcome.code != "server_overloaded"}
BY_LABEL = {outcome.label: outcome for outcome in Outcome}
ENGINE_ERROR = "the engine is on fire"

Seen = tuple[int, frozenset[str]]
"""Status, and the outcomes that what the client saw may mean."""


class Attempt(Struct):
    """The last answer that an engine began for a request. `meant`: the outcome if it arrives, else ""."""

    meant: str
    spoiled: bool = False


class Book:
    """All requests by their tags; those whose head nobody can read are only counted, in `nameless`.

    A request in `expected` has exactly one line in the access log; None: the client left, so any outcome is
    right. One in `unsure` was perhaps never read.
    """

    def __init__(self) -> None:
        self.expected: dict[str, Seen | None] = {}
        self.unsure: set[str] = set()
        self.nameless: Counter[str] = Counter()
        self.attempts: dict[str, Attempt] = {}
        self.seen: Counter[str] = Counter()
        self._tags = 0

    def tag(self) -> str:
        """A name for the next request."""
        self._tags += 1
        return f"soak-{self._tags}"

    def attempt(self, tag: str, meant: str) -> Attempt:
        """An engine begins to answer."""
        attempt = self.attempts[tag] = Attempt(meant)
        return attempt

    # -- what clients saw -------------------------------------------------------------------------

    def answered(self, wish: Wish, answer: Answer) -> None:
        """A whole answer, perhaps one that says that it is not: it fits to what the engines did."""
        outcomes = outcomes_of(wish, answer)
        attempt = self.attempts.pop(wish.tag, None)
        if attempt is None:
            assert outcomes & UNSERVED, (wish, outcomes)
        elif attempt.spoiled or not attempt.meant:
            assert outcomes & (FAILED | {COMPLETED}), (wish, outcomes)
        else:
            assert attempt.meant in outcomes, (wish, attempt, outcomes)
        self._note(wish.tag, answer.status, outcomes)

    def refused(self, wish: Wish, answer: Answer, outcome: Outcome) -> None:
        """The answer to a request that no engine may see."""
        assert outcomes_of(wish, answer) == {outcome.label}, (wish, outcome, answer.headers)
        assert wish.tag not in self.attempts
        self._note(wish.tag, answer.status, frozenset({outcome.label}))

    def told(self, wish: Wish, answer: Answer) -> None:
        """An answer of the gateway's own that is no refusal."""
        assert answer.status == 200, (wish, answer.status)
        self._note(wish.tag, 200, frozenset({COMPLETED}))

    def broken(self, wish: Wish, answer: Answer | None) -> None:
        """The connection broke within an answer; only those that are no streams may end so."""
        assert answer is not None, f"{wish} got no answer"
        assert (answer.status, wish.stream) == (200, False), (wish, answer.status)
        attempt = self.attempts.pop(wish.tag)
        assert attempt.spoiled or not attempt.meant, (wish, attempt)
        self._note(wish.tag, 200, BROKEN)

    def left(self, wish: Wish, *, sure: bool = True) -> None:
        """The client left; not `sure`: perhaps before the gateway had read its head."""
        self.attempts.pop(wish.tag, None)
        if sure:
            self.expected[wish.tag] = None
        else:
            self.unsure.add(wish.tag)
        self.seen["(left)"] += 1

    def unread(self, answer: Answer, outcome: Outcome) -> None:
        """The answer to what is no request."""
        assert answer.outcome == outcome.label, (outcome, answer.headers)
        assert answer.status == outcome.status
        self.nameless[outcome.label] += 1
        self.seen[outcome.label] += 1

    def _note(self, tag: str, status: int, outcomes: frozenset[str]) -> None:
        assert tag not in self.expected
        self.expected[tag] = status, outcomes
        self.seen["|".join(sorted(outcomes))] += 1

    # -- the audit --------------------------------------------------------------------------------

    def audit(self, lines: Iterable[dict[str, Any]]) -> int:
        """Compare with the access log: a line a request, with what its client saw; the number of lines."""
        told: dict[str, Seen] = {}
        nameless: Counter[str] = Counter()
        for line in lines:
            tag, outcome = line.get("client_request_id"), line["outcome"]
            assert outcome != Outcome.FAILED_INTERNAL.label, line
            if tag is None:
                nameless[outcome] += 1
            else:
                assert tag not in told, f"{tag} has two lines"
                told[tag] = line["status"], frozenset({outcome})
        assert nameless == self.nameless
        missing, strange = (
            self.expected.keys() - told.keys(),
            told.keys() - self.expected.keys() - self.unsure,
        )
        assert not missing, f"{len(missing)} requests have no line, such as {sorted(missing)[:5]}"
        assert not strange, f"{len(strange)} lines are of no request, such as {sorted(strange)[:5]}"
        for tag, seen in self.expected.items():
            status, outcomes = told[tag]
            assert seen is None or (status == seen[0] and outcomes <= seen[1]), (tag, seen, told[tag])
        return len(told) + nameless.total()


def outcomes_of(wish: Wish, answer: Answer) -> frozenset[str]:
    """What an answer says of its own end. AssertionError when it is not well-formed."""
    if answer.outcome:
        _check_refusal(wish, answer, BY_LABEL[answer.outcome])
        return frozenset({answer.outcome})
    if answer.status != 200:
        assert answer.status in (400, 501), (wish, answer.status)
        assert answer.json["error"]["message"] == wish.tag
        return frozenset({REFUSED})
    if not wish.stream:
        _check_whole(wish, answer.json)
        return frozenset({COMPLETED})
    assert answer.value(b"content-type").startswith(b"text/event-stream")
    return _end_of(wish, answer.body)


def _check_refusal(wish: Wish, answer: Answer, outcome: Outcome) -> None:
    anthropic = wish.path == MESSAGES
    assert answer.status == (outcome.anthropic_status if anthropic else outcome.status), (wish, answer.status)
    retry = answer.value(b"x-should-retry") == b"true"
    too_long = outcome in RESTING  # the wait that engines ask for may be
    assert retry is bool(outcome.retry) or (too_long and not retry), (wish, answer.headers)
    wait = answer.value(b"retry-after")
    assert 1 <= int(wait) <= 60 if retry else not wait, (wish, answer.headers)
    if answer.body:
        error = answer.json["error"]
        assert error["type"] == (outcome.anthropic_kind if anthropic else outcome.kind)
        assert anthropic or error["code"] == outcome.code


def _check_whole(wish: Wish, said: dict[str, Any]) -> None:
    assert (said["id"], said["model"]) == (wish.tag, wish.model)
    if wish.anthropic:
        text = said["content"][0]["text"]
    elif wish.path == EMBEDDINGS:
        text = said["data"][0]["embedding"]
    else:
        (choice,) = said["choices"]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    assert is_whole(wish, [text]), wish


def _end_of(wish: Wish, body: bytes) -> frozenset[str]:
    """How a stream ends that has been closed as if it were whole: by its own end, or by an error event.

    What is left of an event that was cut off behind the stream's own end is dropped, as clients do.
    """
    *blocks, rest = body.split(b"\n\n")
    said, ended, error = list[str](), False, None
    for block in blocks:
        _, begun, data = block.rpartition(b"data: ")
        assert begun, (wish, block)
        if data == b"[DONE]":
            ended = True
            continue
        event = json.loads(data)
        if event.get("error"):
            error = event["error"]
            continue
        assert error is None, (wish, "content after an error")
        said += _words_of(wish, event)
        ended = ended or _ends(event)
        assert wish.usage or wish.anthropic or not event["usage"], (wish, "usage that nobody asked for")
    whole = is_whole(wish, said)
    if error is None:
        assert ended, (wish, "a stream closed without its end", blocks[-1:], rest)
        assert whole, (wish, "a stream with its end and not all words")
        return frozenset({COMPLETED})
    if error.get("message") == ENGINE_ERROR or wish.anthropic:
        return BROKEN
    assert rest == b"", (wish, "half an event", rest)
    return frozenset({LABELS[error["code"]]})


def _words_of(wish: Wish, event: dict[str, Any]) -> list[str]:
    named = event.get("message", event) if wish.anthropic else event
    if "id" in named or not wish.anthropic:
        assert (named["id"], named["model"]) == (wish.tag, wish.model)
    if wish.anthropic:
        return [event.get("delta", {}).get("text", "")]
    return [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in event["choices"]]


def _ends(event: dict[str, Any]) -> bool:
    if event.get("type") == "message_stop":
        return True
    return any(choice.get("finish_reason") for choice in event.get("choices", ()))
