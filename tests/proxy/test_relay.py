"""What passes through: requests and answers arrive byte for byte, save for the few named edits."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maitred.config.tree import Upstream
from maitred.core.words import Leg
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from maitred.proxy import relay
from maitred.wire.sse import Scanner
from tests.net.http import get, post
from tests.proxy.place import ASKS_USAGE, CHAT, STREAM, chat, in_virtual_time, serving, took
from tests.proxy.upstream import (
    DONE,
    EVENT_STREAM,
    EVENTS,
    FINISH,
    GOOD,
    GOOD_STREAM,
    JSON,
    LAST,
    ROLE,
    SEEN,
    USAGE,
    End,
    Plan,
    chunk,
    event,
    head,
    stream,
    whole,
    word,
)

STRANGE = (
    '{ "model" : "m",\t"messages":[{"role":"user","content":"\\u00e4\\/\\ud83d\\ude00 ä😀"}],"unknown":'
    '{"n":12345678901234567890123,"f":1.50e+10,"deep":[[{"a":null}]]},"seed":-0,"stream" : false }\r\n'
).encode()
RENAMED = {"name": "house", "served_as": "m", "aliases": ("default",)}


# -- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
@in_virtual_time()
async def test_the_body_of_a_request_arrives_as_it_was_sent(path: str) -> None:
    async with serving() as place:
        answer = await place.ask(post(path, STRANGE))
        assert (answer.status, answer.body) == (200, JSON)
        asked = await place.menu.called()
        assert (asked.method, asked.target, asked.version) == ("POST", path, "HTTP/1.1")
        assert asked.body == STRANGE
        assert place.outcomes == ["completed"]


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (
            b'{"model":"m","messages":[],"stream":true}',
            b'{"stream_options":{"include_usage":true},"model":"m","messages":[],"stream":true}',
        ),
        (
            b'{"messages":[],"model":"m","stream":true, "stream_options" : {"x":1}}',
            b'{"messages":[],"model":"m","stream":true, "stream_options" : {"include_usage":true,"x":1}}',
        ),
        (
            b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}',
            b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}',
        ),
    ],
)
@in_virtual_time()
async def test_a_stream_is_asked_for_its_usage(sent: bytes, arrives: bytes) -> None:
    async with serving(GOOD_STREAM) as place:
        await place.ask(post(CHAT, sent))
        assert (await place.menu.called()).body == arrives
        assert place.lines[0]["prompt_tokens"] == 5
        assert place.lines[0]["output_tokens"] == 2


@in_virtual_time()
async def test_a_huge_request_arrives_though_the_engine_reads_late() -> None:
    async with serving() as place:
        place.kitchens[0].reads_after_s = 5.0
        await place.drop_idle()
        body = chat(padding="ä" * 1_000_000)
        assert await took(place.ask(post(CHAT, body))) == 5.0
        assert (await place.menu.called()).body == body


@in_virtual_time()
async def test_only_what_is_named_of_a_clients_head_reaches_the_engine() -> None:
    async with serving() as place:
        request = post(
            CHAT,
            chat(),
            "Authorization: Bearer sk-secret",
            "Cookie: session=1",
            "X-Request-Id: mine",
            "X-Maitred-Priority: 1",
            "X-Data-Parallel-Rank: 3",
            "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "Tracestate: a=b",
            "Connection: x-hop, keep-alive",
            "X-Hop: 1",
            "Accept-Encoding: gzip",
        )
        answer = await place.ask(request)
        asked = await place.menu.called()
        names = [name for name, _ in asked.headers]
        assert sorted(names) == sorted(
            ["host", "content-type", "content-length", "x-request-id", "traceparent", "tracestate"]
        )
        assert asked.values("host") == [f"127.0.0.1:{place.kitchens[0].address[1]}"]
        assert asked.values("traceparent") == ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]
        (minted,) = asked.values("x-request-id")
        assert minted != "mine"
        assert answer.value(b"x-request-id").decode() == minted == place.lines[0]["id"]
        assert place.lines[0]["client_request_id"] == "mine"


@in_virtual_time()
async def test_a_header_that_the_client_names_as_its_connections_own_goes_no_further() -> None:
    async with serving() as place:
        await place.ask(post(CHAT, chat(), "Connection: traceparent", "Traceparent: 00-hop"))
        assert (await place.menu.called()).values("traceparent") == []


# -- answers ------------------------------------------------------------------------------------------


@in_virtual_time()
async def test_headers_of_an_answer_pass_but_for_those_that_are_the_connections_or_ours() -> None:
    lines = (
        "Server: uvicorn",
        "X-Request-Id: theirs",
        "Set-Cookie: a=b",
        "Connection: x-hop, keep-alive",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authenticate: Basic",
        "OpenAI-Processing-Ms: 12",
        "X-Twice: 1",
        "X-Twice: 2",
    )
    async with serving([whole(JSON, *lines)]) as place:
        answer = await place.ask()
        assert answer.body == JSON
        assert sorted(answer.headers) == sorted(
            [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(JSON)).encode()),
                (b"openai-processing-ms", b"12"),
                (b"x-twice", b"1"),
                (b"x-twice", b"2"),
                (b"x-request-id", place.lines[0]["id"].encode()),
            ]
        )


@in_virtual_time()
async def test_a_stream_is_framed_and_marked_as_one() -> None:
    async with serving([head(200, EVENT_STREAM, "cache-control: max-age=60"), SEEN, End.CLOSE]) as place:
        answer = await place.ask(STREAM)
        assert answer.body == SEEN
        assert answer.framing == "chunked"
        assert answer.value(b"content-type") == b"text/event-stream; charset=utf-8"
        assert answer.value(b"cache-control") == b"no-cache, no-transform"
        assert answer.value(b"x-accel-buffering") == b"no"
        assert answer.outcome == ""


@pytest.mark.parametrize(
    "plan",
    [
        GOOD,
        [head(200, "content-type: application/json", "transfer-encoding: chunked"), chunk(JSON), LAST],
        [head(200, "content-type: application/json"), JSON, End.CLOSE],
        [head(100) + head(103, "link: </x>") + GOOD[0]],  # type: ignore[operator]
        [head(100), 0.5, head(102), 0.5, *GOOD],
        [whole(JSON, "connection: close"), End.CLOSE],
        [whole(JSON).replace(b"HTTP/1.1", b"HTTP/1.0"), End.CLOSE],
        [bytes([byte]) for byte in whole(JSON)],
        [head(200, "transfer-encoding: chunked"), chunk(JSON), b"0\r\nx-trailer: 1\r\n\r\n"],
        [head(200, "transfer-encoding: chunked"), b"00%x;ext=1\r\n%b\r\n" % (len(JSON), JSON), LAST],
    ],
    ids=lambda plan: None,
)
@in_virtual_time()
async def test_however_an_answer_is_framed_its_body_passes(plan: Plan) -> None:
    async with serving(plan) as place:
        for _ in range(3):  # whatever became of the connection, the next request is well
            answer = await place.ask()
            assert (answer.status, answer.body) == (200, JSON)
            assert answer.interim == []
            assert answer.values(b"x-trailer") == []
        assert place.outcomes == ["completed"] * 3
        assert place.lines[0]["output_tokens"] == 2


@pytest.mark.parametrize("size", [70_000, 3_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@in_virtual_time()
async def test_a_huge_answer_passes_whole_and_is_still_counted(size: int, framing: str) -> None:
    body = JSON.replace(b'"choices":[]', b'"choices":["%b"]' % (b"x" * size))
    plans: dict[str, Plan] = {
        "length": [whole(body)],
        "chunked": [head(200, "transfer-encoding: chunked"), chunk(body[:100]), chunk(body[100:]), LAST],
        "close": [head(200), body, End.CLOSE],
    }
    async with serving(plans[framing]) as place:
        place.memory.split = lambda data: [data[i : i + 65536] for i in range(0, len(data), 65536)]
        answer = await place.ask()
        assert answer.body == body
        assert place.outcomes == ["completed"]
        assert place.lines[0]["output_tokens"] == 2


@pytest.mark.parametrize("status", [400, 404, 422])
@in_virtual_time()
async def test_a_refusal_by_the_engine_passes_as_it_is(status: int) -> None:
    body = b'{"error":{"message":"no","type":"BadRequestError","code":%d}}' % status
    async with serving([whole(body, status=status)], kitchens=2) as place:
        answer = await place.ask(STREAM)
        assert (answer.status, answer.body) == (status, body)
        assert len(place.menu.asked) == 1
        assert place.outcomes == ["engine_refused"]
        assert place.lines[0]["status"] == status


# -- streams, however they are cut --------------------------------------------------------------------

COMMENT = b": keep-alive\n\n"
LONG = word("ä" * 40_000)
CASES = {
    "usage hidden": (STREAM, EVENTS, SEEN),
    "usage asked for": (ASKS_USAGE, EVENTS, b"".join(EVENTS)),
    "comments": (STREAM, (COMMENT, *EVENTS, COMMENT), COMMENT + SEEN + COMMENT),
    "huge event": (STREAM, (ROLE, LONG, *EVENTS), ROLE + LONG + SEEN),
    "usage within text": (STREAM, (word('"usage" \n\n'), *EVENTS), word('"usage" \n\n') + SEEN),
    "no [DONE]": (STREAM, (ROLE, word("a"), FINISH), ROLE + word("a") + FINISH),
    "crlf": (
        STREAM,
        tuple(e.replace(b"\n", b"\r\n") for e in EVENTS),
        SEEN.replace(b"\n", b"\r\n"),
    ),
}


@pytest.mark.parametrize("case", CASES)
@in_virtual_time()
async def test_a_stream_passes_as_it_is(case: str) -> None:
    request, events, seen = CASES[case]
    async with serving(stream(*events)) as place:
        answer = await place.ask(request)
        assert answer.body == seen
        assert place.outcomes == ["completed"]
        assert place.lines[0]["output_tokens"] == 2


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(CASES)),
    st.lists(st.integers(0, 200), max_size=6),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_a_stream_may_be_cut_anywhere(case: str, chunks: list[int], reads: list[int]) -> None:
    request, events, seen = CASES[case]
    body = b"".join(events)
    cuts = sorted({at * len(body) // 200 for at in chunks} - {0, len(body)})
    parts = [body[a:b] for a, b in zip((0, *cuts), (*cuts, len(body)), strict=True)]

    def split(data: bytes) -> list[bytes]:
        at = sorted({cut * len(data) // 200 for cut in reads})
        return [data[a:b] for a, b in zip((0, *at), (*at, len(data)), strict=True)]

    async def main() -> None:
        async with serving(stream(*parts), network=MemoryNetwork(split=split)) as place:
            assert (await place.ask(request)).body == seen
            assert place.outcomes == ["completed"]

    run(main())


@in_virtual_time()
async def test_each_read_passes_at_once() -> None:
    """The client has each event when it was sent: nothing waits for what comes later."""
    words = [word(str(number)) for number in range(5)]
    plan = [*stream(ROLE, words[0], end=()), *(s for w in words[1:] for s in (1.0, chunk(w)))]
    async with serving([*plan, 1.0, *map(chunk, (FINISH, USAGE, DONE)), LAST]) as place:
        client = await place.client()
        client.send(STREAM)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number, spoken in enumerate(words):
            await client.heard(spoken)
            assert loop.time() == start + number
        await client.answer()
        assert place.lines[0]["ttft_s"] == 0
        assert place.lines[0]["duration_s"] == 5


PARTS = {
    "of an event": (b'data: {"choices":[\n', b'data: {"index":0,"delta":{"content":"b"}}]}\n\n', True),
    "of usage": (b"data: {\nd", b'ata: "choices":[],"usage":{"completion_tokens":2}}\n\n', False),
}


@pytest.mark.parametrize("line", [b"retry: 1\n\n", b"id: 5\n\n"])
@in_virtual_time()
async def test_what_no_client_of_openai_takes_is_left_out_though_it_comes_alone(line: bytes) -> None:
    pieces = [ROLE, word("a"), word("b"), line, word("c"), FINISH, DONE]
    plan = [*stream(ROLE, end=()), *(step for piece in pieces[1:] for step in (1.0, chunk(piece)))]
    async with serving([*plan, 1.0, LAST]) as place:
        assert (await place.ask(STREAM)).body == b"".join(piece for piece in pieces if piece != line)
        assert place.outcomes == ["completed"]


@pytest.mark.parametrize("every", [1, 16])
@pytest.mark.parametrize("part", PARTS)
@in_virtual_time()
async def test_lines_of_one_event_keep_together_though_each_looks_like_an_event(
    part: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "STOCK_READS", every)
    first, then, is_seen = PARTS[part]
    pieces = [ROLE, word("a"), first, then, word("c"), FINISH]
    plan = [*stream(ROLE, end=()), *(step for piece in pieces[1:] for step in (1.0, chunk(piece)))]
    async with serving([*plan, 1.0, *map(chunk, (USAGE, DONE)), LAST]) as place:
        seen = pieces if is_seen else [ROLE, word("a"), word("c"), FINISH]
        assert (await place.ask(STREAM)).body == b"".join(seen) + DONE
        assert place.outcomes == ["completed"]


ENDS = {
    "finish, done": (FINISH, DONE),
    "finish": (FINISH,),
    "done": (DONE,),
    "nothing": (),
    "finish, usage, done": (FINISH, USAGE, DONE),
    "finish and more": (FINISH, event(""), event("")),
}


@settings(max_examples=80)
@example("finish", [1] * 12, True, True, 16)
@example("finish", [2] + [1] * 12, True, False, 16)
@example("finish and more", [1] * 13, True, False, 16)
@example("finish", [3, 1, 1, 2, 1], True, False, 16)
@given(
    st.sampled_from(sorted(ENDS)),
    st.lists(st.sampled_from([1, 1, 1, 1, 1, 2, 3]), max_size=45),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 3, 16]),
)
def test_however_many_events_come_at_once_they_are_counted_and_judged_alike(
    end: str, groups: list[int], by_itself: bool, mixed: bool, every: int
) -> None:
    """One by one, some together or all in one read: the same bytes, tokens, progress and outcome."""
    words = [word(f" {number}") for number in range(1 + sum(groups))]
    reads, at = [words[0]], 1
    for size in groups:
        reads.append(b"".join(words[at : at + size]))
        at += size
    if mixed:
        reads[0] = reads[0].replace(b"\n", b"\r\n")
    reads += ENDS[end] if by_itself else (b"".join(ENDS[end]),)

    async def seen(pieces: list[bytes]) -> tuple[object, ...]:
        plan = [
            *stream(pieces[0], end=()),
            *(step for piece in pieces[1:] if piece for step in (1.0, chunk(piece))),
        ]
        async with serving([*plan, 1.0, LAST]) as place:
            progress: list[int] = []
            told = place.app.house.progress

            def tell(leg: Leg, tokens: int) -> None:
                progress.append(tokens)
                told(leg, tokens)

            place.app.house.progress = tell  # type: ignore[assignment, method-assign]
            body = (await place.ask(STREAM)).body
            return body, place.outcomes, place.lines[0]["output_tokens"], progress

    async def main() -> None:
        assert await seen(reads) == await seen([b"".join(reads)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "STOCK_READS", every)
        run(main())


# -- model names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["house", "default"])
@in_virtual_time()
async def test_names_are_put_in_and_put_back(name: str) -> None:
    async with serving(GOOD, GOOD_STREAM, model=RENAMED) as place:
        place.memory.split = lambda data: [data[i : i + 7] for i in range(0, len(data), 7)]
        body = f'{{"messages":[],"model" : "{name}","x":1}}'.encode()
        answer = await place.ask(post(CHAT, body))
        assert (await place.menu.called()).body == body.replace(name.encode(), b"m")
        assert answer.body == JSON.replace(b'"m"', f'"{name}"'.encode())
        answer = await place.ask(post(CHAT, chat(model=name, stream=True)))
        assert json.loads(place.menu.asked[1].body)["model"] == "m"
        assert answer.body == SEEN.replace(b'"m"', f'"{name}"'.encode())
        assert [line["model"] for line in place.lines] == [name] * 2


@in_virtual_time()
async def test_the_engines_own_name_is_not_served_unless_it_is_listed() -> None:
    async with serving(model=RENAMED) as place:
        answer = await place.ask()
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
        assert place.menu.asked == []
        listing = await place.ask(get("/v1/models"))
        assert [card["id"] for card in listing.json["data"]] == ["default", "house"]
        assert place.outcomes == ["model_not_found", "completed"]


# -- how long a stream's start is held ----------------------------------------------------------------


@in_virtual_time()
async def test_a_start_without_content_is_held_for_a_second() -> None:
    plan = [*stream(ROLE, end=()), 5.0, *stream(*EVENTS[1:])[1:]]
    async with serving(plan) as place:
        client = await place.client()
        client.send(STREAM)
        assert await took(client.heard(b"assistant")) == 1.0
        assert await took(client.heard(b"Hello")) == 4.0
        assert (await client.answer()).body == SEEN
        assert place.outcomes == ["completed"]


@in_virtual_time()
async def test_what_is_held_is_bounded() -> None:
    blank = event('{"index":0,"delta":{"role":"assistant"},"finish_reason":null}')
    held = [blank] * (64 * 1024 // len(blank) + 1)
    async with serving([*stream(*held, end=()), 0.5, *stream(*EVENTS)[1:]]) as place:
        client = await place.client()
        client.send(STREAM)
        assert await took(client.heard(blank)) == 0
        assert (await client.answer()).body == b"".join(held) + SEEN


@in_virtual_time()
async def test_bounds_of_the_hold_are_settings() -> None:
    plan = [*stream(ROLE, end=()), 5.0, *stream(*EVENTS[1:])[1:]]
    async with serving(plan, upstream=Upstream(hold_s=0.25)) as place:
        client = await place.client()
        client.send(STREAM)
        assert await took(client.heard(b"assistant")) == 0.25
        await client.answer()


@in_virtual_time()
async def test_thinking_is_content() -> None:
    thought = event('{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}')
    async with serving([*stream(ROLE, thought, end=()), 5.0, *stream(*EVENTS[1:])[1:]]) as place:
        client = await place.client()
        client.send(STREAM)
        assert await took(client.heard(b"reasoning_content")) == 0
        events = Scanner().feed((await client.answer()).body)
        assert len(events) == 6
