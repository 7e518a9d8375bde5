"""A model call is an exchange to its journey, and to its turn what came of it."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import RequestHead
from maitred.responses.call import CHAT, ModelCall, inner_head


def head(**fields: bytes) -> RequestHead:
    named = {name.replace("_", "-").encode(): value for name, value in fields.items()}
    return RequestHead("POST", "/v1/responses", named, http11=True, length=3)


def call(*, streamed: bool = False) -> tuple[ModelCall, list[bytes]]:
    heard: list[bytes] = []
    return ModelCall(head(), b"{}", heard.append, lambda _flow: None, streamed=streamed), heard


def test_what_the_client_said_of_its_own_body_is_not_said_of_another() -> None:
    inner = inner_head(head(content_encoding=b"gzip", authorization=b"Bearer k"), "resp_1", "")
    assert (inner.path, inner.fields) == (CHAT, {b"authorization": b"Bearer k", b"x-session-id": b"resp_1"})


def test_a_clients_own_name_of_the_session_stays() -> None:
    inner = inner_head(head(x_session_id=b"mine", x_maitred_band=b"other"), "resp_1", "batch")
    assert inner.fields == {b"x-session-id": b"mine", b"x-maitred-band": b"batch"}


def test_a_stream_is_heard_as_it_comes() -> None:
    made, heard = call(streamed=True)
    made.start(200, b"h", None, b"1")
    made.write(b"2")
    assert not made.whole
    made.end(b"3")
    assert (heard, made.answer, made.whole, made.over) == ([b"1", b"2", b"3"], b"", True, True)


def test_an_answer_that_is_no_stream_is_kept() -> None:
    made, heard = call()
    made.start(200, b"h", 2, b"1")
    made.end(b"2")
    assert (made.status, made.headers, made.answer, heard) == (200, b"h", b"12", [])


def test_a_refusal_by_the_engine_is_no_stream() -> None:
    made, heard = call(streamed=True)
    made.start(400, b"h", 2, b"no")
    made.end()
    assert (made.status, made.answer, heard) == (400, b"no", [])


def test_what_was_stopped_is_not_over() -> None:
    made, _ = call(streamed=True)
    left: list[str] = []
    made.leave()  # before anybody can hear of it
    made.watch(lambda: left.append("left"))
    made.start(200, b"h", None, b"1")
    made.leave()
    assert (left, made.whole, made.over) == (["left"], False, False)
    made.abort()
    assert (made.whole, made.over) == (False, True)


def test_a_refusal_counts_only_before_an_answer() -> None:
    refusal = Refusal(Outcome.QUEUE_FULL, "full")
    made, _ = call()
    made.refuse(refusal, "req-1")
    assert (made.refusal, made.over) == (refusal, True)
    begun, _ = call(streamed=True)
    begun.start(200, b"h", None, b"1")
    begun.fail(refusal, "req-1")
    assert (begun.refusal, begun.over) == (None, True)
