"""The server that is measured: how it is addressed, and what is asked of it before anything is sent.

What would spoil a whole run (nobody there, a key refused, another model, no stream) is told in one line.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from maitred.bench.forms import CHAT, Form
from maitred.bench.text import Texts
from maitred.sim.arrival import Arrival


class TargetError(Exception):
    """It cannot be measured as it was asked for; says what to do."""


class Target(Struct, frozen=True):
    """Where requests go, and how they are written.

    `url` is "http://host:port", `prefix` what its paths begin with before "/v1". `model` is asked for instead
    of the workload's. `key` is sent as a bearer token. `ignore_eos`: answers are to have exactly the planned
    length (vLLM, SGLang and llama.cpp obey, others may refuse it). `extra` are more members of each request.
    """

    url: str
    prefix: str = ""
    form: Form = CHAT
    model: str = ""
    key: str = ""
    ignore_eos: bool = True
    extra: dict[str, object] = {}

    def head(self) -> bytes:
        """The head of each request, up to the digits of its length."""
        lines = [f"POST {self.prefix}{self.form.path} HTTP/1.1", f"host: {urlsplit(self.url).netloc}"]
        lines += ["content-type: application/json", *self.key_lines, "content-length: "]
        return "\r\n".join(lines).encode()

    @property
    def key_lines(self) -> list[str]:
        """The header line with the key, where there is one."""
        return [f"authorization: Bearer {self.key}"] if self.key else []

    def body(self, texts: Texts, arrival: Arrival) -> bytes:
        """The body of one request."""
        model = msgspec.json.encode(self.model or arrival.adapter or arrival.model)
        stream = self.form.stream if arrival.stream else b""
        return b'{"model":%b,%b%b%b}' % (model, self.form.body(texts, arrival), self.more, stream)

    @property
    def more(self) -> bytes:
        """Members that all requests have."""
        members: dict[str, object] = {}
        if self.ignore_eos and self.form.stream:
            members["ignore_eos"] = True
        return b"".join(
            b",%b:%b" % (msgspec.json.encode(name), msgspec.json.encode(value))
            for name, value in (members | self.extra).items()
        )


def parse(text: str) -> tuple[str, str]:
    """URL and prefix of a server from what people write. Raises TargetError."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise TargetError(f"{text!r} is no server; write http://host:port")
    if parts.query or parts.username:
        raise TargetError(f"{text!r} has more than a server and a path; write http://host:port")
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}", prefix
