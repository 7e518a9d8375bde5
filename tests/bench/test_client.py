"""One request and its answer: what is stamped when, and how each kind of end is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.bench import client
from maitred.bench.client import Call
from maitred.bench.forms import FORMS
from maitred.bench.shot import Ending, Shot
from maitred.core.outcome import FailureKind
from maitred.net.client import AnswerHead
from maitred.sim.arrival import Arrival
from tests.bench.place import ENGINES, TWIN, arrival, captured, event, usage

CHAT = ENGINES / "vllm_chat_stream.txt"
DONE = b"data: [DONE]\n\n"


class Heard:
    """A call that is told an answer; `reads` come a second apart, the head at second 0."""

    def __init__(self, form: str = "chat", *, trace: bool = True, **more: Any) -> None:
        asked = arrival(**more)
        self.now = 0.0
        self.over = 0
        self.stale = 0
        self.call = Call(
            asked, _shot(asked), FORMS[form], lambda: self.now, self._over, self._stale, trace=trace
        )

    def _over(self, _: Call) -> None:
        self.over += 1

    def _stale(self, _: Call) -> None:
        self.stale += 1

    @property
    def shot(self) -> Shot:
        return self.call.shot

    def answer(
        self, *reads: bytes, status: int = 200, media: bytes = b"text/event-stream; charset=utf-8"
    ) -> Shot:
        """The whole answer."""
        self.call.begin(AnswerHead(status, [(b"content-type", media)], None), b"", False)
        for read in reads:
            assert not self.over
            self.now += 1.0
            self.call.read(read, False)
        self.call.read(b"", True)
        assert self.over == 1
        return self.shot


def _shot(asked: Arrival) -> Shot:
    return Shot(asked.number, "k", "t", 0, asked.at, asked.at, asked.at, Ending.LEFT, counted=True)


# -- streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (CHAT, "chat"),
        (ENGINES / "llamacpp_chat_stream.txt", "chat"),
        (ENGINES / "llamacpp_completions_stream.txt", "completions"),
        (TWIN / "responses_stream.txt", "responses"),
    ],
    ids=lambda it: it.stem if isinstance(it, Path) else it,
)
@given(data=st.data())
def test_however_the_network_cuts_it(path: Path, form: str, data: st.DataObject) -> None:
    body = captured(path)
    at = data.draw(st.lists(st.integers(0, len(body)), max_size=20).map(sorted))
    reads = [body[i:j] for i, j in zip([0, *at], [*at, len(body)], strict=True)]
    whole = Heard(form, conversation=1, turn=1)
    cut = Heard(form, conversation=1, turn=1)
    whole.answer(body)
    shot = cut.answer(*reads)
    assert shot.ending is Ending.COMPLETED
    assert not shot.counted
    assert shot.tokens == whole.shot.tokens > 0
    assert shot.prompt_tokens == whole.shot.prompt_tokens > 0
    assert cut.call.text == whole.call.text != ""
    assert shot.first_at is not None
    assert shot.gaps == len(shot.reads_at) - 1


def test_reads_are_stamped_when_they_bring_a_token() -> None:
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    half = event("c")
    heard = Heard()
    heard.answer(role, event("a"), b": ping\n\n", event("b") + half[:9], half[9:], usage(7, 9), DONE)
    shot = heard.shot
    assert (shot.first_at, shot.answer_at, shot.over_at) == (2.0, 2.0, 7.0)
    assert (shot.gaps, shot.gap_max_s) == (2, 2.0)
    assert shot.reads_at == (2.0, 4.0, 5.0)
    assert (shot.prompt_tokens, shot.tokens, shot.counted) == (7, 9, False)


def test_without_usage_events_are_counted() -> None:
    shot = Heard(trace=False).answer(event("a"), event("b") * 3, DONE)
    assert (shot.tokens, shot.counted, shot.cached_tokens) == (4, True, None)
    assert shot.ending is Ending.COMPLETED
    assert shot.reads_at == ()


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_usage_counts_for_what_came_before_it(reads: int) -> None:
    last = event("c").replace(b'"choices"', b'"usage":{"prompt_tokens":7,"completion_tokens":5},"choices"')
    for events, tokens, counted in (
        ((usage(7, 0), event("a"), event("b"), DONE), 2, True),
        ((usage(7, 0), event("a"), last, DONE), 5, False),
        ((last, event("a"), usage(7, 6), DONE), 6, False),
        ((event("a"), last, event("b"), DONE), 3, True),
    ):
        body = b"".join(events)
        size = -(-len(body) // reads)
        shot = Heard().answer(*(body[i : i + size] for i in range(0, len(body), size)))
        assert (shot.tokens, shot.counted) == (tokens, counted)


def test_thinking_comes_before_the_answer() -> None:
    thought = b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
    heard = Heard(conversation=1, turn=1)
    shot = heard.answer(thought, thought, event("yes"), DONE)
    assert (shot.first_at, shot.answer_at) == (1.0, 3.0)
    assert shot.tokens == 3
    assert heard.call.text == "yes"
    assert Heard().answer(thought, DONE).answer_at is None, "all of it was thinking"


def test_a_last_token_with_everything_on_it_ends_a_stream() -> None:
    last = (
        b'data: {"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n'
    )
    shot = Heard().answer(event("a"), last)
    assert (shot.ending, shot.tokens, shot.prompt_tokens) == (Ending.COMPLETED, 2, 4)


def test_an_answer_without_a_word_is_first_seen_at_its_end() -> None:
    finish = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    shot = Heard().answer(finish, usage(5, 1), DONE)
    assert shot.ending is Ending.COMPLETED
    assert (shot.first_at, shot.answer_at, shot.over_at, shot.gaps) == (3.0, 3.0, 3.0, 0)


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ((), "truncated"),
        ((event("a"), event("b")), "truncated"),
        ((event("a"), DONE[:-1]), "truncated"),
        ((event("a"), b'data: {"error":{"message":"died"}}\n\n', DONE), "error_event"),
        ((b'event: error\ndata: {"message":"died"}\n\n',), "error_event"),
    ],
)
def test_streams_that_went_wrong(reads: tuple[bytes, ...], why: str) -> None:
    shot = Heard().answer(*reads)
    assert (shot.ending, shot.why) == (Ending.FAILED, why)


@pytest.mark.parametrize(
    ("last", "ending"),
    [("completed", Ending.COMPLETED), ("incomplete", Ending.COMPLETED), ("failed", Ending.FAILED)],
)
def test_how_a_response_ends(last: str, ending: Ending) -> None:
    delta = b'event: response.output_text.delta\ndata: {"delta":"a","type":"response.output_text.delta"}\n\n'
    end = b'event: response.%b\ndata: {"response":{"usage":{"input_tokens":3,"output_tokens":8}}}\n\n'
    shot = Heard("responses").answer(delta, end % last.encode())
    assert (shot.ending, shot.tokens, shot.prompt_tokens) == (ending, 8, 3)
    assert Heard("responses").answer(delta).why == "truncated"


# -- answers that are no streams ----------------------------------------------------------------------


def test_a_whole_answer() -> None:
    body = captured(TWIN / "chat.txt")
    heard = Heard(stream=False, conversation=1, turn=1)
    shot = heard.answer(body[:100], body[100:], media=b"application/json")
    assert (shot.ending, shot.tokens, shot.prompt_tokens, shot.cached_tokens) == (Ending.COMPLETED, 32, 34, 0)
    assert shot.first_at is None
    assert heard.call.text.startswith("1. Red")


def test_json_where_a_stream_was_asked_for() -> None:
    body = captured(TWIN / "chat.txt")
    assert Heard().answer(body, media=b"application/json").why == "not_a_stream"
    assert Heard("embeddings").answer(body, media=b"application/json").ending is Ending.COMPLETED


@pytest.mark.parametrize(
    ("body", "why"),
    [(b'{"choices":[', "truncated"), (b'{"error":{"message":"no"}}', "error_event"), (b"", "truncated")],
)
def test_whole_answers_that_went_wrong(body: bytes, why: str) -> None:
    shot = Heard(stream=False).answer(body, media=b"application/json")
    assert (shot.ending, shot.why) == (Ending.FAILED, why)


def test_too_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KEPT_BYTES_MAX", 200)
    assert Heard(stream=False).answer(b"{%200d}" % 0, media=b"application/json").why == "too_large"
    heard = Heard(conversation=1, turn=1)
    assert heard.answer(event("a") * 50, DONE).ending is Ending.COMPLETED
    assert heard.call.text == "", "half an answer is none"


# -- refusals and failures ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (429, Ending.REFUSED),
        (503, Ending.REFUSED),
        (529, Ending.REFUSED),
        (500, Ending.FAILED),
        (400, Ending.FAILED),
    ],
)
def test_statuses(status: int, ending: Ending) -> None:
    shot = Heard().answer(b'{"error":{}}', status=status, media=b"application/json")
    assert (shot.ending, shot.status, shot.why) == (ending, status, f"status_{status}")


def test_a_gateway_says_why() -> None:
    heard = Heard()
    head = AnswerHead(429, [(b"x-maitred-outcome", b"queue_full" + b"x" * 100)], None)
    heard.call.begin(head, b"{}", True)
    assert heard.shot.ending is Ending.REFUSED
    assert heard.shot.why == ("queue_full" + "x" * 100)[: client.OUTCOME_BYTES_MAX]


def test_connections_that_break() -> None:
    heard = Heard()
    heard.call.failed(FailureKind.STALE_CONNECTION, "closed before it was used")
    assert (heard.stale, heard.over) == (1, 0), "to be sent again"
    heard.now = 4.0
    heard.call.failed(FailureKind.RESET, "the engine closed the connection")
    assert (heard.shot.ending, heard.shot.why, heard.shot.over_at) == (Ending.FAILED, "reset", 4.0)
    fresh = Heard()
    fresh.call.fresh = True
    fresh.call.failed(FailureKind.STALE_CONNECTION, "closed before it was used")
    assert (fresh.stale, fresh.shot.ending, fresh.shot.why) == (0, Ending.FAILED, "stale_connection")
