"""What is in a body stays as it is; what is wrong with one is said before anything else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.cases.place import on_sockets, serving, unhurried
from tests.cases.upstream import stream
from tests.net.http import post
from tests.proxy.faults import spoken
from tests.proxy.place import ASKS_USAGE, CHAT, STREAM, chat
from tests.proxy.upstream import DONE, FINISH, ROLE, USAGE, event, whole, word

SAY: Any = [{"role": "user", "content": "hi"}]
LITERALS = (
    b'"seed":9007199254740993,"big":12345678901234567890123,"money":2.10,"small":1e-7,"zero":-0,"e":1E+2,'
    b'"text":"\\u00e9 \\/ \\ud83d\\ude00 \xc3\xa9 \xf0\x9f\x98\x80", "spaced" : [ 1 , 2 ],\t"z":1,"a":2'
)
"""Members whose spelling is lost by whoever reads and writes them again."""


class TestSpelling:
    """B50: earendil-works/pi#8943, vllm-project/router#161.

    Numbers beyond 53 bits were rounded, 2.10 became 2.1, escapes and the order of keys changed.
    """

    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("alias", ["m", "alias"])
    @on_sockets
    async def test_a_request_keeps_every_byte_but_what_must_change(self, streamed: bool, alias: str) -> None:
        own = b'"stream":true,"stream_options":{"include_usage":true},' if streamed else b""
        body = b'{"model": "%b",%b%b,"messages":[]}' % (alias.encode(), own, LITERALS)
        async with serving(
            stream() if streamed else [whole(b"{}")], model={"name": alias, "served_as": "m"}
        ) as place:
            assert (await place.ask(post(CHAT, body))).status == 200
            assert place.script.asked[0].body == body.replace(b'"alias"', b'"m"')

    @on_sockets
    async def test_a_stream_asked_for_usage_keeps_every_other_byte(self) -> None:
        body = b'{"model":"m", "stream": true ,%b,"messages":[]}' % LITERALS
        async with serving(stream()) as place:
            await place.ask(post(CHAT, body))
            sent = place.script.asked[0].body
            added = b'"stream_options":{"include_usage":true},'
            assert sent.count(added) == 1
            assert sent.replace(added, b"") == body

    @pytest.mark.parametrize("alias", ["m", "alias"])
    @on_sockets
    async def test_an_answer_keeps_them_too(self, alias: str) -> None:
        answer = b'{ "id":"x","model":"m",%b,"choices":[] }\n' % LITERALS
        async with serving([whole(answer)], model={"name": alias, "served_as": "m"}) as place:
            body = (await place.ask(post(CHAT, chat(model=alias)))).body
            assert body == answer.replace(b'"m"', b'"%b"' % alias.encode())

    @on_sockets
    async def test_and_so_does_a_stream(self) -> None:
        odd = b'data: {"model":"m",%b,"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' % LITERALS
        async with serving(stream(odd, FINISH, USAGE, DONE)) as place:
            assert (await place.ask(STREAM)).body == odd + FINISH + DONE


def call(index: int, arguments: str, *, opens: bool = False) -> str:
    """One piece of one tool call, as the JSON of a delta's list."""
    named = f'"id":"call_{index}","type":"function",' if opens else ""
    name = f'"name":"tool_{index}",' if opens else ""
    return f'{{"index":{index},{named}"function":{{{name}"arguments":{json.dumps(arguments)}}}}}'


def calls(*pieces: str) -> bytes:
    """An event with pieces of tool calls."""
    return event(f'{{"index":0,"delta":{{"tool_calls":[{",".join(pieces)}]}},"finish_reason":null}}')


class TestParallelToolCalls:
    """B52: BerriAI/litellm#33678, BerriAI/litellm#39796, BerriAI/litellm#21331, ai-dynamo/dynamo#4723,
    ollama/ollama#9632.

    Pieces of several calls were merged into one: index, id and name of each have to survive.
    """

    @on_sockets
    async def test_the_official_client_puts_each_together(self) -> None:
        finish = event('{"index":0,"delta":{},"finish_reason":"tool_calls"}')
        events = [
            ROLE,
            calls(call(0, "", opens=True)),
            calls(call(1, '{"b"', opens=True), call(0, '{"a":')),
            calls(call(2, '{"whole": [1, 2]}', opens=True)),
            calls(call(1, ": 2"), call(0, " 1")),
            calls(call(0, "}")),
            calls(call(1, "}")),
            finish,
        ]
        async with serving(stream(*events, USAGE, DONE)) as place:
            async with (
                place.openai() as client,
                client.chat.completions.stream(model="m", messages=SAY) as answer,
            ):
                completion = await answer.get_final_completion()
            (choice,) = completion.choices
            assert choice.finish_reason == "tool_calls"
            made = [
                (c.id, c.function.name, json.loads(c.function.arguments))
                for c in choice.message.tool_calls or []
            ]
            assert made == [
                ("call_0", "tool_0", {"a": 1}),
                ("call_1", "tool_1", {"b": 2}),
                ("call_2", "tool_2", {"whole": [1, 2]}),
            ]
            assert (await place.ask(STREAM)).body == b"".join((*events, DONE))
            assert place.outcomes == ["completed"] * 2


class TestUsageOfStreams:
    """B53: BerriAI/litellm#28735, BerriAI/litellm#8450, BerriAI/litellm#38926.

    The engine is always asked for usage; a client sees the event for it exactly when it asked itself.
    """

    @pytest.mark.parametrize(
        ("options", "sees"),
        [
            ({}, False),
            ({"stream_options": {"include_usage": False}}, False),
            ({"stream_options": None}, False),
            ({"stream_options": {}}, False),
            ({"stream_options": {"include_usage": True}}, True),
        ],
        ids=["absent", "false", "null", "empty", "true"],
    )
    @on_sockets
    async def test_it_is_seen_when_asked_for(self, options: dict[str, Any], sees: bool) -> None:
        events = [ROLE, calls(call(0, "{}", opens=True)), word("Hello"), FINISH]
        async with serving(stream(*events, USAGE, DONE)) as place:
            answer = await place.ask(post(CHAT, chat(stream=True, **options)))
            assert answer.body == b"".join((*events, *((USAGE,) if sees else ()), DONE))
            assert json.loads(place.script.asked[0].body)["stream_options"]["include_usage"] is True
            (line,) = place.lines
            assert (line["prompt_tokens"], line["output_tokens"]) == (5, 2)

    @on_sockets
    async def test_usage_beside_content_is_content(self) -> None:
        """Engines that count on every event: only the event that says nothing else is taken out."""
        running = '{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}'
        both = event('{"index":0,"delta":{"content":"Hello"},"finish_reason":null}', running)
        async with serving(stream(ROLE, both, FINISH, USAGE, DONE)) as place:
            assert (await place.ask(STREAM)).body == ROLE + both + FINISH + DONE

    @on_sockets
    async def test_the_official_client_gets_it_last_and_alone(self) -> None:
        async with serving(stream()) as place, place.openai() as client:
            answer: Any = await client.chat.completions.create(
                model="m", messages=SAY, stream=True, stream_options={"include_usage": True}
            )
            *others, last = [one async for one in answer]
            assert (last.choices, last.usage.completion_tokens) == ([], 2)
            assert all(one.choices and one.usage is None for one in others)


def choice(index: int, text: str | None, finish: str | None = None) -> bytes:
    """An event of one of several choices, with log probabilities."""
    delta = json.dumps({"content": text} if text is not None else {})
    logprobs = (
        '{"content":[{"token":"x","logprob":-0.10,"bytes":null,"top_logprobs":[]}]}' if text else "null"
    )
    reason = json.dumps(finish)
    return event(f'{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{reason}}}')


class TestSeveralChoices:
    """B54: BerriAI/litellm#10686, sgl-project/sglang#26782, sgl-project/sglang#10766.

    With n > 1 a stream is not over at the first finish reason, and none of them may get lost.
    """

    EVENTS = (
        choice(0, "a"),
        choice(1, "b"),
        choice(2, "c"),
        choice(1, None, "stop"),
        choice(0, "a"),
        choice(2, None, "length"),
        choice(0, None, "stop"),
    )

    @on_sockets
    async def test_all_of_them_come_to_their_ends(self) -> None:
        async with serving(stream(*self.EVENTS, USAGE, DONE)) as place:
            answer = await place.ask(post(CHAT, chat(stream=True, n=3, logprobs=True)))
            assert answer.body == b"".join((*self.EVENTS, DONE))
            ends = {
                c["index"]: c["finish_reason"]
                for e in spoken(answer)[:-1]
                for c in e["choices"]
                if c["finish_reason"]
            }
            assert ends == {1: "stop", 2: "length", 0: "stop"}
            assert place.outcomes == ["completed"]

    @on_sockets
    async def test_the_first_end_of_three_is_not_the_end(self) -> None:
        """The engine dies after one choice has ended: the stream is not whole."""
        async with serving(stream(*self.EVENTS[:5])) as place:
            answer = await place.ask(post(CHAT, chat(stream=True, n=3)))
            assert "error" in spoken(answer)[-1]
            assert place.outcomes == ["failed_truncated"]

    @on_sockets
    async def test_the_end_of_the_only_choice_is(self) -> None:
        async with serving(stream(choice(0, "a"), choice(0, None, "stop"))) as place:
            await place.ask(STREAM)
            assert place.outcomes == ["completed"]


NOT_TEXT = {
    "lone high surrogate": b'"x \\ud83d"',
    "lone low surrogate": b'"x \\ude00"',
    "swapped surrogates": b'"\\ude00\\ud83d"',
    "bad utf-8": b'"\xff\xfe"',
    "overlong": b'"\xc0\xaf"',
    "surrogate in utf-8": b'"\xed\xa0\xbd"',
    "cut utf-8": b'"\xe2\x82"',
}


class TestTextThatIsNone:
    """B56: JustVugg/colibri#1589, raullenchai/Rapid-MLX#730, MadSkittles/Router-Maestro#37.

    Half a surrogate pair is taken by readers and fails where it is written: a 500, which clients repeat. It
    is 400 at the door, before anything is admitted.
    """

    @pytest.mark.parametrize("name", NOT_TEXT)
    @pytest.mark.parametrize("streamed", [b"false", b"true"])
    @on_sockets
    async def test_it_is_a_bad_request(self, name: str, streamed: bytes) -> None:
        text = NOT_TEXT[name]
        body = b'{"model":"m","stream":%b,"messages":[{"role":"user","content":%b}]}' % (streamed, text)
        async with serving(stream()) as place:
            answer = await place.ask(post(CHAT, body))
            assert (answer.status, answer.outcome) == (400, "bad_request")
            assert answer.value(b"x-should-retry") == b"false"
            assert place.script.asked == []

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
    @on_sockets
    async def test_so_is_a_body_in_another_encoding(self, encoding: str) -> None:
        async with serving() as place:
            answer = await place.ask(post(CHAT, chat().decode().encode(encoding)))
            assert (answer.status, answer.outcome) == (400, "bad_request")
            assert place.script.asked == []

    @pytest.mark.parametrize(
        "text", [b'"\\ud83d\\ude00"', b'"\\\\ud83d"', '"\U0001f600 \ufffe \u0000x"'.encode()]
    )
    @on_sockets
    async def test_what_only_looks_like_it_passes(self, text: bytes) -> None:
        text = text.replace(b"\x00", b"\\u0000")
        body = b'{"model":"m","messages":[{"role":"user","content":%b}]}' % text
        async with serving() as place:
            assert (await place.ask(post(CHAT, body))).status == 200
            assert place.script.asked[0].body == body


def schema(depth: int) -> str:
    """A JSON schema so deep."""
    return '{"type":"object","properties":{"x":' * depth + '{"type":"string"}' + "}}" * depth


HUGE: dict[str, Callable[[], str]] = {
    "nested lists": lambda: f'"x":{"[" * 100_000}{"]" * 100_000}',
    "nested lists left open": lambda: f'"x":{"[" * 100_000}',
    "nested objects": lambda: f'"x":{chr(123) + chr(34) + "a" + chr(34) + ":"}' * 50_000,
}
HARMLESS: dict[str, Callable[[], str]] = {
    "many keys": lambda: ",".join(f'"key{number}":{number}' for number in range(50_000)),
    "a long key": lambda: f'"{"k" * 1_000_000}":1',
}


class TestDepthAndWidth:
    """B58: raullenchai/Rapid-MLX#798, antirez/ds4#43, vllm-project/vllm#15949.

    Deep nesting ended in a RecursionError, a crash or seconds of work on the loop. It is 400, and quick.
    """

    @pytest.mark.parametrize("name", HUGE)
    @on_sockets
    async def test_too_deep_is_a_bad_request(self, name: str) -> None:
        async with serving() as place:
            request = post(CHAT, f'{{"model":"m",{HUGE[name]()}}}'.encode())
            async with unhurried():
                answer = await place.ask(request)
            assert (answer.status, answer.outcome) == (400, "bad_request")
            assert len(answer.body) < 4096
            assert place.script.asked == []
            assert (await place.ask()).status == 200

    @pytest.mark.parametrize("streamed", ["true", "false"])
    @pytest.mark.parametrize("name", HARMLESS)
    @on_sockets
    async def test_wide_is_quick_and_refused_only_where_it_is_edited(self, name: str, streamed: str) -> None:
        body = f'{{"model":"m","stream":{streamed},"messages":[],{HARMLESS[name]()}}}'.encode()
        async with serving(stream() if streamed == "true" else [whole(b"{}")]) as place:
            async with unhurried():
                answer = await place.ask(post(CHAT, body))
            assert answer.status in ((200, 400) if streamed == "true" else (200,))

    @on_sockets
    async def test_a_deep_schema_of_a_tool_is_answered_one_way_or_the_other(self) -> None:
        """Where it is read or skipped decides; what matters is that it is quick and never our own failure."""
        tools = f'[{{"type":"function","function":{{"name":"f","parameters":{schema(1000)}}}}}]'
        async with serving() as place:
            answer = await place.ask(post(CHAT, f'{{"model":"m","messages":[],"tools":{tools}}}'.encode()))
            assert answer.status in (200, 400)
            assert place.outcomes == ["completed" if answer.status == 200 else "bad_request"]


class TestErrorsAreSmall:
    """B59: vllm-project/vllm#49239.

    12,047 errors that each repeated the whole input made 114 MB of a small request. No error of ours grows
    with what it is about, or repeats it.
    """

    @pytest.mark.parametrize(
        "body",
        [
            b'{"model":"' + b"secret" * 100_000 + b'"}',
            b'{"model":"m","n":"' + b"secret" * 100_000 + b'"}',
            b'{"model":"m","stream":[' + b'"secret",' * 12_000 + b"1]}",
            b'{"model":"m","stream_options":{"include_usage":[' + b'"secret",' * 12_000 + b"1]}}",
            b'{"model":"m" ' + b"secret" * 100_000,
            b"secret" * 100_000,
        ],
    )
    @on_sockets
    async def test_nothing_is_repeated(self, body: bytes) -> None:
        async with serving() as place:
            answer = await place.ask(post(CHAT, body))
            assert 400 <= answer.status < 500
            assert len(answer.body) < 1024
            assert b"secret" not in bytes(place.clients[0].received)

    @on_sockets
    async def test_what_an_engine_says_of_its_failure_is_not_passed_on(self) -> None:
        errors = json.dumps({"error": {"message": "echo of the prompt " * 50_000}}).encode()
        async with serving([whole(errors, status=500)]) as place, place.openai() as client:
            with pytest.raises(openai.InternalServerError) as failed:
                await client.chat.completions.create(model="m", messages=SAY)
            assert len(failed.value.response.content) < 1024
            assert b"echo" not in failed.value.response.content


class TestKeysThatComeTwice:
    """B60: the JSON minefield, nst/JSONTestSuite.

    A check that reads the first of two keys and an engine that reads the last disagree about the request.
    Where a body has to be edited such keys are refused; elsewhere ours is the engines' reading, the last.
    """

    @pytest.mark.parametrize(
        "twice",
        [
            b'"model":"alias","model":"dear"',
            b'"model":"alias","\\u006dodel":"dear"',
            b'"\\u006dodel":"alias","model":"dear"',
            b'"model":"dear","mode\\u006c":"alias"',
            b'"model":"alias","model":"alias"',
        ],
    )
    @on_sockets
    async def test_the_engine_never_gets_another_model_than_was_checked(self, twice: bytes) -> None:
        async with serving(model={"name": "alias", "served_as": "m"}) as place:
            answer = await place.ask(post(CHAT, b'{%b,"messages":[]}' % twice))
            assert answer.status in (400, 404)
            assert place.script.asked == []

    @pytest.mark.parametrize(
        "twice",
        [
            b'"stream":true,"stream":false,"stream":true',
            b'"stream":true,"\\u0073tream":true',
            b'"stream":true,"stream_options":{},"stream_options":{}',
        ],
    )
    @on_sockets
    async def test_nor_is_a_stream_edited_in_one_of_two_places(self, twice: bytes) -> None:
        async with serving(stream()) as place:
            answer = await place.ask(post(CHAT, b'{"model":"m",%b,"messages":[]}' % twice))
            assert (answer.status, answer.outcome) == (400, "bad_request")
            assert place.script.asked == []

    @on_sockets
    async def test_the_last_one_counts_where_nothing_is_edited(self) -> None:
        async with serving() as place:
            other = b'{"model":"m","model":"other","messages":[]}'
            assert (await place.ask(post(CHAT, other))).status == 404
            own = b'{"model":"other","model":"m","messages":[]}'
            assert (await place.ask(post(CHAT, own))).status in (200, 400)
            assert all(json.loads(asked.body)["model"] == "m" for asked in place.script.asked)

    @on_sockets
    async def test_keys_that_nobody_reads_may_come_twice(self) -> None:
        """The engine's business, and passed on as it came."""
        body = b'{"model":"m","user":"a","user":"b","messages":[]}'
        async with serving(stream()) as place:
            assert (await place.ask(post(CHAT, body))).status in (200, 502)
            assert place.script.asked[0].body == body
            assert (await place.ask(ASKS_USAGE)).status == 200
