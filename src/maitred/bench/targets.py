"""The server that is measured: how it is addressed, and what is asked of it before anything is sent.

What would spoil a whole run (nobody there, a key refused, another model, no stream) is told in one line. Two
small requests also show how many bytes of our text are a token to this server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from maitred.bench.forms import CHAT, Form, told
from maitred.bench.text import BYTES_PER_TOKEN, Texts
from maitred.core.outcome import FailureKind
from maitred.engines.errors import words
from maitred.net.client import Patience
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool
from maitred.net.seams import Network, Sockets
from maitred.net.sweep import Sweep
from maitred.sim.arrival import Arrival
from maitred.wire.answers import UNREADABLE
from maitred.wire.sse import Scanner

ANSWER_S = 60.0
"""A server that takes longer for one small request is not up yet."""
PROBE_TOKENS = (32, 288)
"""Lengths of the two probes; what a chat template adds falls out of their difference."""
BYTES_PER_TOKEN_MAX = 16.0
MODELS_SHOWN = 10
WORDS_MAX = 300
"""Characters of what a server says, in one line of ours."""

_UNREACHED = {
    FailureKind.CONNECT: "nobody listens there (connection refused); start the server, or correct the URL",
    FailureKind.UNREACHABLE: "the machine does not answer; correct the URL, or see to the network",
    FailureKind.UNRESOLVED: "the name has no address; correct the URL",
    FailureKind.TLS: "no agreement on TLS ({}); write http:// where there is none",
}


class TargetError(Exception):
    """It cannot be measured as was asked; says what to do, in one line."""


class Target(Struct, frozen=True):
    """Where requests go, and how they are written.

    `url` is "http://host:port", `prefix` what its paths begin with before "/v1". `model` is asked for instead
    of the workload's, but not of its adapters. `key` is sent as a bearer token. `ignore_eos`: answers are to
    have exactly the planned length (vLLM, SGLang and llama.cpp obey, others may refuse it). `extra` are more
    members of each request.
    """

    url: str
    prefix: str = ""
    form: Form = CHAT
    model: str = ""
    key: str = ""
    ignore_eos: bool = True
    extra: dict[str, object] = {}

    @property
    def name(self) -> str:
        """As people write it."""
        return self.url + self.prefix

    @property
    def key_line(self) -> bytes:
        """The line of a head with the key, where there is one."""
        return b"authorization: Bearer %b\r\n" % self.key.encode() if self.key else b""

    @property
    def more(self) -> bytes:
        """Members that all requests have."""
        members: dict[str, object] = {}
        if self.ignore_eos and self.form.stream:
            members["ignore_eos"] = True
        encode = msgspec.json.encode
        return b"".join(
            b",%b:%b" % (encode(name), encode(value)) for name, value in (members | self.extra).items()
        )

    def head(self) -> bytes:
        """The head of each request, up to the digits of its length."""
        path, host = (self.prefix + self.form.path).encode(), urlsplit(self.url).netloc.encode()
        lines = b"content-type: application/json\r\n%bcontent-length: " % self.key_line
        return b"POST %b HTTP/1.1\r\nhost: %b\r\n%b" % (path, host, lines)

    def body(self, texts: Texts, arrival: Arrival, more: bytes) -> bytes:
        """The body of one request; `more` is what its name says."""
        model = msgspec.json.encode(arrival.adapter or self.model or arrival.model)
        stream = self.form.stream if arrival.stream else b""
        return b'{"model":%b,%b%b%b}' % (model, self.form.body(texts, arrival), more, stream)


class Facts(Struct, frozen=True):
    """What a server said of itself: its models, and bytes of our text that are a token to it."""

    models: tuple[str, ...]
    model: str
    bytes_per_token: float


class _Card(Struct):
    id: str


class _Models(Struct):
    data: list[_Card]


def parse(text: str) -> tuple[str, str]:
    """URL and prefix of a server from what people write. Raises TargetError."""
    if "@" in text:  # and so perhaps a password, which is not to be said again
        raise TargetError("a server's URL holds no user or password; write http://host:port, and --key-env")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise TargetError(f"{text!r}: {error}; write http://host:port") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise TargetError(f"{text!r} is no server; write http://host:port")
    if parts.query or parts.fragment:
        raise TargetError(f"{text!r} says more than a server and a path; write http://host:port")
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/").removesuffix("/v1")


async def preflight(
    target: Target,
    model: str = "",
    network: Network | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Facts:
    """Ask what has to be known before a run.

    `model` is what the workload asks for, "" for the only one there is. Raises TargetError where the server
    cannot be measured; one that is only busy now can be.
    """
    sweep = Sweep(clock)
    pool = Pool(network or Sockets(), sweep, Patience(first_byte_s=ANSWER_S, idle_s=ANSWER_S), connect_s=5.0)
    sweep.start()
    try:
        models = await _models(pool, target)
        name = _choose(target, target.model or model, models)
        return Facts(models, name, await _bytes_per_token(pool, target, name))
    finally:
        sweep.stop()
        pool.close()


async def _ask(pool: Pool, target: Target, path: str, json: bytes | None = None) -> tuple[int, bytes]:
    """Status and body; raises TargetError where nobody answers, or wants another key."""
    try:
        status, body = await fetch(pool, target.url, target.prefix + path, ANSWER_S, json, target.key_line)
    except ConnectFailed as error:
        why = _UNREACHED.get(error.kind, "{}").format(error.detail)
        raise TargetError(f"{target.name}: {why}") from error
    if status in {401, 403}:
        wants = "does not take this key" if target.key else "wants a key"
        raise TargetError(f"{target.name} {wants} (status {status}); name its variable with --key-env")
    return status, body


async def _models(pool: Pool, target: Target) -> tuple[str, ...]:
    """The models a server lists; none where it has no list."""
    status, body = await _ask(pool, target, "/v1/models")
    if status != 200:
        return ()
    try:
        return tuple(card.id for card in msgspec.json.decode(body, type=_Models).data)
    except UNREADABLE:
        raise TargetError(f"{target.name} does not speak OpenAI's API: its /v1/models is no list") from None


def _choose(target: Target, model: str, models: tuple[str, ...]) -> str:
    listed = ", ".join(models[:MODELS_SHOWN])[:WORDS_MAX]
    if len(models) > MODELS_SHOWN:
        listed += f" and {len(models) - MODELS_SHOWN:,} more"
    if not model:
        if len(models) == 1:
            return models[0]
        raise TargetError(
            f"{target.name} serves {listed or 'models it does not list'}; name one with --model"
        )
    if models and model not in models:
        raise TargetError(f"{target.name} serves {listed}, not {model}; name one of them with --model")
    return model


async def _bytes_per_token(pool: Pool, target: Target, model: str) -> float:
    """Two small requests of different length; what they must show, and what their usage tells."""
    texts = Texts(salt=int.from_bytes(os.urandom(8)))
    prompts: list[int] = []
    for number, tokens in enumerate(PROBE_TOKENS, 1):
        arrival = Arrival(number, 0.0, model, ((number, tokens),), tokens, 1, 0)
        body = target.body(texts, arrival, target.more)
        status, answer = await _ask(pool, target, target.form.path, body)
        if status == 200:
            prompts.append(_prompt_tokens(target, answer))
        elif status < 500 and status != 429:
            raise TargetError(_refused(target, model, status, answer))
    if len(prompts) < 2 or not 0 < prompts[0] < prompts[1]:
        return BYTES_PER_TOKEN
    short, long = PROBE_TOKENS
    return min((long - short) * BYTES_PER_TOKEN / (prompts[1] - prompts[0]), BYTES_PER_TOKEN_MAX)


def _prompt_tokens(target: Target, answer: bytes) -> int:
    """What a server counted; raises TargetError where it did not answer as the API does."""
    streamed = answer.startswith((b"data:", b"event:", b":"))
    if target.form.stream and not streamed:
        raise TargetError(
            f"{target.name} answers JSON where a stream was asked for; measure it with stream: false"
        )
    if not streamed:
        said = told(answer)
        return said.prompt_tokens if said else 0
    events = (told(event.data) for event in Scanner().feed(answer))
    return max((said.prompt_tokens for said in events if said), default=0)


def _refused(target: Target, model: str, status: int, answer: bytes) -> str:
    said = " ".join(words(answer).split())[:WORDS_MAX]
    if status in {404, 405}:
        what = f"has no {target.form.path} for {model}"
        return f"{target.name} {what} (status {status}): {said}; choose another API with --api"
    hint = "; try --any-length" if target.ignore_eos and "ignore_eos" in said else ""
    return f"{target.name} refuses a small request (status {status}): {said}{hint}"
