"""The APIs that can be measured: where a request goes, how it is written, and what an answer to it says.

An event that brings a token is known by a search; only the few others are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct, structs

from maitred.bench.text import Message, Texts
from maitred.core.outcome import FailureKind
from maitred.sim.arrival import Arrival
from maitred.wire import openai
from maitred.wire.answers import UNREADABLE, Says, is_json
from maitred.wire.sse import Event

CHAT_TOKEN = re.compile(
    rb'"(?:content|text|refusal)" ?: ?"[^"]|"tool_calls" ?: ?\[ ?[^\] ]'
    rb'|("reasoning(?:_content)?" ?: ?"[^"])'
)
"""What only an event with a token has; the group, if it is of the thinking. Quotes in a text are escaped."""
RESPONSES_TOKEN = re.compile(
    rb'"type" ?: ?"response\.(?:output_text|refusal|function_call_arguments|(reasoning\w*))\.delta"'
)


class Told(Struct, frozen=True):
    """What a server tells of a request: tokens, seconds in its queue and over its prompt; None is unsaid."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    queue_s: float | None
    prefill_s: float | None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Metrics(Struct):
    """vLLM's, with `--enable-per-request-metrics`."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None


class _Timings(Struct):
    """llama.cpp's."""

    prompt_ms: float | None = None


class _Part(Struct):
    text: str | None = None


class _Message(Struct):
    content: str | list[_Part] | None = None


class _Choice(Struct):
    text: str | None = None
    delta: _Message | None = None
    message: _Message | None = None


class _Response(Struct):
    usage: _Usage | None = None
    output: list[_Message] = []


class _Answer(Struct):
    """What any of these APIs say, in an event or in a whole answer."""

    usage: _Usage | None = None
    choices: list[_Choice] | None = None
    output: list[_Message] | None = None
    delta: str | None = None
    response: _Response | None = None
    metrics: _Metrics | None = None
    timings: _Timings | None = None


_answer = msgspec.json.Decoder(_Answer).decode


class Form(Struct, frozen=True):
    """One API.

    `stream`: members that ask for a stream, b"" where there is none. `token` finds what brings a token;
    `says` judges all other events, and `ended` whether one with a token was the last, where nothing follows
    it. `body` writes the members of a request that are particular to the API.
    """

    name: str
    path: str
    stream: bytes
    token: re.Pattern[bytes]
    says: Callable[[Event], Says]
    ended: Callable[[bytes], bool]
    body: Callable[[Texts, Arrival], bytes]


def told(data: bytes) -> Told | None:
    """What an event or a whole answer tells beside the text; None where it has no usage."""
    try:
        answer = _answer(data)
    except UNREADABLE:
        return None
    usage = answer.usage or (answer.response.usage if answer.response else None)
    if usage is None:
        return None
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    if prompt is None and output is None:
        prompt, output = usage.input_tokens, usage.output_tokens
    if prompt is None and output is None:
        return None
    details = usage.prompt_tokens_details or usage.input_tokens_details
    metrics = answer.metrics or _Metrics()
    prefill_ms = answer.timings.prompt_ms if answer.timings else metrics.time_to_first_token_ms
    return Told(
        prompt_tokens=prompt or 0,
        output_tokens=output or 0,
        cached_tokens=details.cached_tokens if details else None,
        queue_s=_seconds(metrics.queue_time_ms),
        prefill_s=_seconds(prefill_ms),
    )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def judge_whole(body: bytes) -> str:
    """Of a whole answer with status 200: what is wrong with it, "" where nothing is."""
    if not is_json(body):
        return FailureKind.TRUNCATED.label
    is_error, _ = openai.read_whole(body)
    return FailureKind.ERROR_EVENT.label if is_error else ""


def text_of(data: bytes) -> str:
    """The answer's text in an event that brought a token, or in a whole answer; what was thought is none."""
    try:
        answer = _answer(data)
    except UNREADABLE:
        return ""
    if answer.choices:
        choice = answer.choices[0]
        message = choice.delta or choice.message
        return choice.text or (_text(message) if message else "")
    if answer.output:
        return "".join(map(_text, answer.output))
    return answer.delta or ""


def _text(message: _Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _responses_says(event: Event) -> Says:
    """Judge one event of a response's stream by its name."""
    name = event.name.removeprefix(b"response.")
    if name in {b"completed", b"incomplete"}:
        return Says.DONE
    return Says.ERROR if name in {b"failed", b"error", b"cancelled"} else Says.NOTHING


def _has_finish_reason(data: bytes) -> bool:
    """Whether an event of a chat or completions stream is its last."""
    return openai.judge_end([Event(b"", data)], 1).whole


def _never(_: bytes) -> bool:
    return False


def _chat(texts: Texts, arrival: Arrival) -> bytes:
    return b'"messages":[%b],"max_tokens":%d' % (_messages(texts.messages(arrival)), arrival.output_tokens)


def _completions(texts: Texts, arrival: Arrival) -> bytes:
    return b'"prompt":"%b","max_tokens":%d' % (texts.prompt(arrival), arrival.output_tokens)


def _responses(texts: Texts, arrival: Arrival) -> bytes:
    said = _messages(texts.messages(arrival))
    return b'"input":[%b],"store":false,"max_output_tokens":%d' % (said, arrival.output_tokens)


def _embeddings(texts: Texts, arrival: Arrival) -> bytes:
    return b'"input":"%b"' % texts.prompt(arrival)


def _messages(said: list[Message]) -> bytes:
    return b",".join([b'{"role":"%b","content":"%b"}' % message for message in said])


_STREAM = b',"stream":true,"stream_options":{"include_usage":true}'
CHAT = Form("chat", "/v1/chat/completions", _STREAM, CHAT_TOKEN, openai.says, _has_finish_reason, _chat)
FORMS = {
    form.name: form
    for form in (
        CHAT,
        structs.replace(CHAT, name="completions", path="/v1/completions", body=_completions),
        Form(
            "responses",
            "/v1/responses",
            b',"stream":true',
            RESPONSES_TOKEN,
            _responses_says,
            _never,
            _responses,
        ),
        structs.replace(CHAT, name="embeddings", path="/v1/embeddings", stream=b"", body=_embeddings),
    )
}
