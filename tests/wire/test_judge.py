"""Judging answers as a relay does: held until content, then counted, then judged at their end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.outcome import FailureKind
from maitred.core.words import Api, Failure, Usage
from maitred.wire import anthropic, native, openai
from maitred.wire.judge import Judge, StreamJudge, WholeJudge, grammar_of
from maitred.wire.sse import Event
from tests.wire.streams import CUTS, STREAMS, captured, cut, reference, sse

ROLE = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
TOKEN = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
THOUGHT = b'{"choices":[{"index":0,"delta":{"reasoning":"\\"content\\":\\"x\\""}}]}'
STOP = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
STOP_1 = b'{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}'
COUNTS = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
FAULT = b'{"error":{"message":"out of memory","code":500}}'
DONE = b"[DONE]"
USAGE = Usage(9, 0, 4)
OPENAI, ANTHROPIC, NATIVE = openai.GRAMMAR, anthropic.GRAMMAR, native.GRAMMAR
Verdict = tuple[FailureKind | None, Usage | None]


def judged(judge: Judge, pieces: list[bytes]) -> tuple[bool, Verdict]:
    """Whether the answer was committed, and how it ended; asked as the relay asks."""
    held, committed = b"", False
    for number, piece in enumerate(pieces, 1):
        if committed:
            judge.note(piece)
            continue
        held += piece
        failure = judge.look(piece if judge.streamed else held, complete=number == len(pieces))
        if failure is not None:
            return False, (failure.kind, None)
        if judge.begun:
            judge.begin(held)
            committed = True
    failure, usage = judge.end()
    return committed, (failure.kind if failure else None, usage)


def stream(*payloads: bytes, sequences: int = 1, places: tuple[int, ...] = ()) -> tuple[bool, Verdict]:
    return judged(StreamJudge(OPENAI, sequences), cut(sse(*payloads), places) or [b""])


# -- streams ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("vllm_chat_stream", Usage(34, 32, 12)),
        ("vllm_chat_stream_continuous_usage", Usage(34, 32, 6)),
        ("vllm_completions_stream", Usage(5, 0, 8)),
        ("llamacpp_chat_stream", Usage(34, 33, 16)),
        ("llamacpp_completions_stream", Usage(5, 4, 8)),
    ],
)
def test_real_streams_end_well_wherever_they_are_cut(name: str, usage: Usage) -> None:
    body = captured(name)
    for at in range(len(body)):
        assert judged(StreamJudge(OPENAI, 1), cut(body, [at])) == (True, (None, usage))
    assert judged(StreamJudge(OPENAI, 1), [body[at : at + 1] for at in range(len(body))]) == (
        True,
        (None, usage),
    )


@pytest.mark.parametrize("name", STREAMS)
def test_real_streams_broken_off_are_never_passed_off_as_whole(name: str) -> None:
    body = captured(name)
    finish = b'"finish_reason":"'
    for at in range(1, len(body)):
        events = reference(body[:at])
        whole = any(event.data == DONE or finish in event.data for event in events)
        committed, (failure, _) = judged(StreamJudge(OPENAI, 1), cut(body[:at], [at // 2]))
        assert failure is (None if whole else FailureKind.TRUNCATED)
        assert committed is any(has_content(event) for event in events)


def has_content(event: Event) -> bool:
    data = event.data
    return any(mark in data for mark in (b'"content":', b'"text":')) and not any(
        nothing in data for nothing in (b'"content":""', b'"content":null')
    )


@pytest.mark.parametrize(
    ("payloads", "verdict"),
    [
        ((ROLE, TOKEN, STOP, DONE), (None, Usage(output_tokens=3, exact=False))),
        ((ROLE, TOKEN, STOP, COUNTS, DONE), (None, USAGE)),
        ((ROLE, TOKEN, STOP, COUNTS), (None, USAGE)),
        ((TOKEN, DONE), (None, Usage(output_tokens=1, exact=False))),
        ((ROLE, TOKEN), (FailureKind.TRUNCATED, Usage(output_tokens=1, exact=False))),
        ((ROLE, TOKEN, COUNTS), (FailureKind.TRUNCATED, USAGE)),
        ((ROLE, TOKEN, FAULT), (FailureKind.ERROR_EVENT, Usage(output_tokens=2, exact=False))),
        ((ROLE, TOKEN, FAULT, DONE), (FailureKind.ERROR_EVENT, Usage(output_tokens=3, exact=False))),
        ((ROLE, TOKEN, FAULT, COUNTS, DONE), (FailureKind.ERROR_EVENT, USAGE)),
        ((ROLE, b"{not json}", TOKEN, STOP, DONE), (None, Usage(output_tokens=4, exact=False))),
    ],
)
@given(places=CUTS)
def test_how_committed_streams_end(payloads: tuple[bytes, ...], verdict: Verdict, places: list[int]) -> None:
    assert stream(*payloads, places=tuple(places)) == (True, verdict)


@pytest.mark.parametrize(
    ("payloads", "kind"),
    [
        ((), FailureKind.TRUNCATED),
        ((ROLE,), FailureKind.TRUNCATED),
        ((ROLE, COUNTS), FailureKind.TRUNCATED),
        ((FAULT,), FailureKind.ERROR_EVENT),
        ((ROLE, FAULT), FailureKind.ERROR_EVENT),
        ((ROLE, FAULT, TOKEN, STOP, DONE), FailureKind.ERROR_EVENT),
    ],
)
@given(places=CUTS)
def test_what_fails_before_content_is_never_committed(
    payloads: tuple[bytes, ...], kind: FailureKind, places: list[int]
) -> None:
    assert stream(*payloads, places=tuple(places)) == (False, (kind, None))


def test_an_error_event_by_name() -> None:
    body = sse(ROLE) + b"event: error\n" + sse(b'{"type":"overloaded"}')
    assert judged(StreamJudge(OPENAI, 1), [body]) == (False, (FailureKind.ERROR_EVENT, None))
    body = sse(ROLE, TOKEN) + b"event: error\n" + sse(b'{"type":"overloaded"}')
    assert judged(StreamJudge(OPENAI, 1), cut(body, [len(sse(ROLE, TOKEN))]))[1][0] is FailureKind.ERROR_EVENT


@pytest.mark.parametrize("sequences", [2, 5])
def test_of_several_answers_one_may_finish_before_the_others(sequences: int) -> None:
    for payloads, kind in (
        ((TOKEN, STOP), FailureKind.TRUNCATED),
        ((TOKEN, STOP, STOP_1), FailureKind.TRUNCATED),
        ((TOKEN, STOP, COUNTS), FailureKind.TRUNCATED),
        ((TOKEN, STOP, STOP_1, DONE), None),
    ):
        committed, (failure, _) = stream(*payloads, sequences=sequences)
        assert (committed, failure) == (True, kind)


def test_nothing_is_held_longer_than_to_the_first_content() -> None:
    judge = StreamJudge(OPENAI, 1)
    for payload, begun in ((ROLE, False), (ROLE, False), (TOKEN, True)):
        assert judge.look(sse(payload), complete=False) is None
        assert judge.begun is begun
    assert (judge.streamed, judge.reasoning) == (True, False)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_tokens_are_counted_by_events(newline: bytes) -> None:
    judge = StreamJudge(OPENAI, 1)
    assert judge.note(b"too early") == 0
    judge.begin(sse(ROLE, TOKEN, newline=newline))
    told = [judge.note(piece) for piece in cut(sse(*[TOKEN] * 40, newline=newline), range(0, 3000, 17))]
    assert told == sorted(told)
    assert told[-1] == 41


def test_an_answer_never_committed_has_no_end() -> None:
    judge = StreamJudge(OPENAI, 1)
    judge.look(sse(ROLE), complete=False)
    assert judge.end() == (None, None)


@pytest.mark.parametrize("answer", [TOKEN, b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}'])
def test_a_stream_that_begins_with_thinking_comes_to_its_answer(answer: bytes) -> None:
    judge = StreamJudge(OPENAI, 1)
    assert judge.look(sse(ROLE, THOUGHT), complete=False) is None
    assert (judge.begun, judge.reasoning) == (True, True)
    judge.begin(sse(ROLE, THOUGHT))
    for payload, reasoning in ((THOUGHT, True), (ROLE, True), (answer, False), (THOUGHT, False)):
        judge.note(sse(payload))
        assert judge.reasoning is reasoning


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_after_done_there_is_nothing_left_to_fail(newline: bytes) -> None:
    """Whatever becomes of the connection: the answer is whole."""
    judge = StreamJudge(OPENAI, 2)
    judge.look(sse(TOKEN, newline=newline), complete=False)
    judge.begin(sse(TOKEN, newline=newline))
    judge.note(sse(COUNTS, newline=newline))
    assert judge.end() == (Failure(FailureKind.TRUNCATED, detail="the stream ended without its end"), USAGE)
    judge.note(sse(DONE, newline=newline))
    assert judge.end() == (None, USAGE)
    judge.note(b": ping" + 2 * newline + b"data: unfini")
    assert judge.end() == (None, USAGE)


# -- streams committed before their content ---------------------------------------------------------


def committed(held: bytes) -> StreamJudge:
    """The judge of a stream that was passed on because nothing had come for too long."""
    judge = StreamJudge(OPENAI, 1)
    assert judge.look(held, complete=False) is None
    assert not judge.begun
    judge.begin(held)
    return judge


@pytest.mark.parametrize("held_bytes", [0, 1, 20, len(sse(ROLE)), len(sse(ROLE)) + 1])
@pytest.mark.parametrize("content", [TOKEN, STOP, DONE, b"{not json}"])
@given(places=CUTS)
def test_content_is_noticed_after_an_early_commit(held_bytes: int, content: bytes, places: list[int]) -> None:
    stream = sse(ROLE, ROLE, content)
    judge = committed(stream[:held_bytes])
    seen = stream[:held_bytes]
    for piece in cut(stream[held_bytes:] + sse(COUNTS, DONE), places):
        judge.note(piece)
        seen += piece
        assert judge.begun is seen.startswith(stream)
        assert not judge.reasoning


def test_thinking_and_the_answer_are_told_apart_after_an_early_commit() -> None:
    judge = committed(sse(ROLE))
    for payloads, told in (
        ((ROLE,), (False, False)),
        ((THOUGHT,), (True, True)),
        ((THOUGHT, ROLE), (True, True)),
        ((TOKEN,), (True, False)),
        ((THOUGHT,), (True, False)),
    ):
        judge.note(sse(*payloads))
        assert (judge.begun, judge.reasoning) == told


def test_thinking_and_the_answer_in_one_read() -> None:
    judge = committed(sse(ROLE))
    judge.note(sse(THOUGHT, TOKEN))
    assert (judge.begun, judge.reasoning) == (True, False)


def test_an_error_after_an_early_commit_is_no_content() -> None:
    judge = committed(sse(ROLE))
    judge.note(sse(FAULT))
    assert not judge.begun
    assert judge.end()[0] == Failure(FailureKind.ERROR_EVENT, detail="the engine sent an error event")


def test_nothing_is_read_once_content_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = committed(sse(ROLE))
    judge.note(sse(TOKEN))
    monkeypatch.delattr(judge, "_scanner")
    judge.note(sse(TOKEN))


# -- Anthropic's streams ----------------------------------------------------------------------------

MESSAGES = [("vllm_messages_stream", Usage(34, 32, 8)), ("llamacpp_messages_stream", Usage(34, 33, 8))]


def messages(*events: dict[str, object]) -> bytes:
    """A stream of these events."""
    return b"".join(b"event: %b\n" % str(e["type"]).encode() + sse(json.dumps(e).encode()) for e in events)


def block_delta(**delta: str) -> dict[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


START: dict[str, object] = {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}
TEXT, THINKING = block_delta(text="x"), block_delta(thinking='"text":"x"')
END: dict[str, object] = {"type": "message_stop"}


@pytest.mark.parametrize(("name", "usage"), MESSAGES)
def test_real_messages_end_well_wherever_they_are_cut(name: str, usage: Usage) -> None:
    body = captured(name)
    for at in range(len(body)):
        assert judged(StreamJudge(ANTHROPIC, 1), cut(body, [at])) == (True, (None, usage))
    pieces = [body[at : at + 1] for at in range(len(body))]
    assert judged(StreamJudge(ANTHROPIC, 1), pieces) == (True, (None, usage))


@pytest.mark.parametrize("name", [name for name, _ in MESSAGES])
def test_real_messages_broken_off_are_never_passed_off_as_whole(name: str) -> None:
    body = captured(name)
    for at in range(1, len(body)):
        names = [event.name for event in reference(body[:at])]
        committed, (failure, _) = judged(StreamJudge(ANTHROPIC, 1), cut(body[:at], [at // 2]))
        assert failure is (None if b"message_stop" in names else FailureKind.TRUNCATED)
        assert committed is (b"content_block_delta" in names)


def test_messages_are_counted_by_what_brings_output() -> None:
    body = captured("vllm_messages_stream")
    judge = StreamJudge(ANTHROPIC, 1)
    judge.begin(body[:300])
    told = [judge.note(piece) for piece in cut(body[300:], range(0, 3000, 17))]
    assert told == sorted(told)
    assert told[-1] == 8


def test_a_message_broken_off_tells_its_prompt_and_what_was_counted() -> None:
    pieces = [messages(START, TEXT), messages(TEXT, TEXT)]
    verdict = (FailureKind.TRUNCATED, Usage(9, 0, 3, exact=False))
    assert judged(StreamJudge(ANTHROPIC, 1), pieces) == (True, verdict)


def test_an_error_event_ends_a_message() -> None:
    fault: dict[str, object] = {"type": "error", "error": {"type": "overloaded_error"}}
    assert judged(StreamJudge(ANTHROPIC, 1), [messages(START, fault)]) == (
        False,
        (FailureKind.ERROR_EVENT, None),
    )
    late = judged(StreamJudge(ANTHROPIC, 1), [messages(START, TEXT), messages(fault)])
    assert late == (True, (FailureKind.ERROR_EVENT, Usage(9, 0, 1, exact=False)))


def test_a_message_committed_early_still_tells_its_prompt() -> None:
    judge = StreamJudge(ANTHROPIC, 1)
    judge.begin(b"")
    for told, begun, reasoning in (
        (messages(START), False, False),
        (messages(THINKING), True, True),
        (messages(THINKING, THINKING), True, True),
        (messages(TEXT, END), True, False),
    ):
        judge.note(told)
        assert (judge.begun, judge.reasoning) == (begun, reasoning)
    assert judge.end() == (None, Usage(9, 0, 4, exact=False))


def test_each_api_has_its_grammar() -> None:
    for api in Api:
        own = {Api.RESPONSES: NATIVE}.get(api, OPENAI)
        assert grammar_of(api) is (ANTHROPIC if api.anthropic else own)


# -- an engine's own Responses ----------------------------------------------------------------------


def said(kind: str, **members: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


WORD = said("response.output_text.delta", delta="x")
FINAL = {"output": [{"text": "x" * 100_000}], "usage": {"input_tokens": 9, "output_tokens": 4}}


def native_stream(*parts: bytes, places: list[int] | None = None) -> tuple[bool, Verdict]:
    return judged(StreamJudge(NATIVE, 1), cut(b"".join(parts), tuple(places or ())) or [b""])


@pytest.mark.parametrize(
    ("name", "usage"),
    [("vllm_responses_stream", Usage(32, 0, 8)), ("llamacpp_responses_stream", Usage(32, 31, 8))],
)
@given(places=CUTS)
def test_real_native_streams(name: str, usage: Usage, places: list[int]) -> None:
    assert native_stream(captured(name), places=places) == (True, (None, usage))


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
@given(places=CUTS)
def test_the_last_event_may_be_of_any_size(kind: str, places: list[int]) -> None:
    assert native_stream(WORD, said(kind, response=FINAL), places=places) == (True, (None, USAGE))


@pytest.mark.parametrize(
    "last",
    [
        said("response.failed", response=FINAL),
        said("error", message="no memory"),
        said("error", message="x" * 100_000),
    ],
)
def test_a_native_stream_that_fails(last: bytes) -> None:
    assert native_stream(WORD, last)[1][0] is FailureKind.ERROR_EVENT
    assert native_stream(last) == (False, (FailureKind.ERROR_EVENT, None))


def test_a_native_stream_that_is_cut() -> None:
    quoted = said("response.output_text.delta", delta="\nevent: response.completed\n")
    assert native_stream(WORD, quoted)[1][0] is FailureKind.TRUNCATED
    assert native_stream(said("response.created"))[1][0] is FailureKind.TRUNCATED


# -- whole answers ----------------------------------------------------------------------------------

ANSWERS = [("vllm_chat_n2", Usage(34, 32, 8)), ("llamacpp_chat_n2", Usage(34, 33, 4))]
REFUSALS = ["vllm_err_unknown_model", "llamacpp_err_bad_type"]


@pytest.mark.parametrize(("name", "usage"), ANSWERS)
@given(places=CUTS)
def test_real_answers(name: str, usage: Usage, places: list[int]) -> None:
    assert judged(WholeJudge(OPENAI, refused=False), cut(captured(name), places)) == (True, (None, usage))


@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_object_is_a_failure_unless_one_was_announced(name: str) -> None:
    body = captured(name)
    assert judged(WholeJudge(OPENAI, refused=False), [body]) == (False, (FailureKind.ERROR_EVENT, None))
    assert judged(WholeJudge(OPENAI, refused=True), [body]) == (True, (None, None))


@pytest.mark.parametrize("body", [b"", b"null", b"<html>", b'{"choices":['])
def test_what_cannot_be_read_is_passed_on(body: bytes) -> None:
    assert judged(WholeJudge(OPENAI, refused=False), [body]) == (True, (None, None))


def test_a_plain_answer_is_not_judged_before_it_is_whole() -> None:
    judge = WholeJudge(OPENAI, refused=False)
    assert judge.look(b'{"error":', complete=False) is None
    assert (judge.begun, judge.reasoning, judge.streamed) == (False, False, False)


@pytest.mark.parametrize(("name", "usage"), ANSWERS)
@given(held_bytes=st.integers(0, 1200), places=CUTS)
def test_of_an_answer_too_large_to_hold_usage_is_found_at_the_end(
    name: str, usage: Usage, held_bytes: int, places: list[int]
) -> None:
    body = captured(name)
    judge = WholeJudge(OPENAI, refused=False)
    judge.begin(b" " * 100_000 + body[:held_bytes])
    assert [judge.note(piece) for piece in cut(body[held_bytes:], places)][:1] in ([], [0])
    assert judge.end() == (None, usage)


# -- answers that only the connection's close ends --------------------------------------------------


@pytest.mark.parametrize(("name", "usage"), ANSWERS)
def test_an_answer_cut_by_the_close_is_not_whole(name: str, usage: Usage) -> None:
    body = captured(name).rstrip()
    for at in range(len(body)):
        verdict = judged(WholeJudge(OPENAI, refused=False, until_close=True), [body[:at]])
        assert verdict == (False, (FailureKind.TRUNCATED, None))
    judge = WholeJudge(OPENAI, refused=False, until_close=True)
    assert judge.look(body + b"\n", complete=True) is None
    assert judge.end() == (None, usage)


@pytest.mark.parametrize(("name", "usage"), ANSWERS)
@pytest.mark.parametrize("ending", [b"", b"\r\n"])
def test_the_end_of_a_large_answer_tells_whether_the_close_cut_it(
    name: str, usage: Usage, ending: bytes
) -> None:
    body = captured(name).rstrip() + ending
    for kept in (len(body), body.rindex(b"}", 0, -len(ending) - 1), body.rindex(b'"')):
        judge = WholeJudge(OPENAI, refused=False, until_close=True)
        judge.begin(b" " * 100_000 + body[:300])
        judge.note(body[300:kept])
        failure, told = judge.end()
        assert told in (usage, None)
        assert (failure.kind if failure else None) is (None if kept == len(body) else FailureKind.TRUNCATED)


@pytest.mark.parametrize("body", [b"", b"not found", b'{"error":'])
def test_a_refusal_may_be_any_text(body: bytes) -> None:
    assert judged(WholeJudge(OPENAI, refused=True, until_close=True), [body]) == (True, (None, None))


@pytest.mark.parametrize("end", [b"}", b"]\n"])
def test_a_large_answer_may_be_an_object_or_a_list(end: bytes) -> None:
    judge = WholeJudge(OPENAI, refused=False, until_close=True)
    judge.begin(b"[" + b" " * 100_000)
    judge.note(end)
    assert judge.end() == (None, None)
