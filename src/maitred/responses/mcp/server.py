"""One MCP server as it is asked, and what goes wrong there."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

HIDDEN = b"[hidden]"
SECRET_CHARS_MIN = 8
"""What is shorter is no secret, and would be found everywhere."""
CLIENTS = "(client's)"
"""What metrics call all servers that clients bring; their labels are anybody's."""


class Failed(Exception):  # noqa: N818 - names what happened
    """A call came to nothing. `outcome` is for metrics, `error` for the client: the item's `error`."""

    def __init__(self, outcome: str, error: dict[str, Any]) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.error = error

    @property
    def message(self) -> str:
        """What went wrong, in words."""
        return str(self.error["message"])


def http_failed(outcome: str, code: int, message: str) -> Failed:
    """The server was not reached, or its answer is none."""
    return Failed(outcome, {"type": "http_error", "code": code, "message": message})


def protocol_failed(outcome: str, code: int, message: str) -> Failed:
    """The server refuses, or what it says is not MCP."""
    return Failed(outcome, {"type": "mcp_protocol_error", "code": code, "message": message})


class Server(Struct, frozen=True, eq=False):
    """Where a server is, what it is sent, and how long and how much it may answer.

    `lines` are more lines of each request's head, `secrets` what of them nobody else may know; neither shows.
    `clients`: a client brought it. `list_ttl_s`: how long its list of tools is good for.
    """

    label: str
    origin: str
    path: str
    lines: bytes
    secrets: tuple[bytes, ...]
    timeout_s: float
    answer_bytes_max: int
    list_ttl_s: float = 0.0
    clients: bool = False

    def __repr__(self) -> str:
        return f"Server({self.label!r})"

    @property
    def series(self) -> str:
        """What metrics call it."""
        return CLIENTS if self.clients else self.label

    def hide(self, answer: bytes) -> bytes:
        """An answer without our secrets, should the server repeat them."""
        for secret in self.secrets:
            answer = answer.replace(secret, HIDDEN)
        return answer


def place(url: str) -> tuple[str, str]:
    """The origin and the path, with its query, of a URL."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.lower()}", (parts.path or "/") + query


def head_lines(authorization: str | None, headers: dict[str, str]) -> tuple[bytes, tuple[bytes, ...]]:
    """The lines that say these, and what is secret in them."""
    lines = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers.items())
    if authorization is not None:
        lines += b"authorization: Bearer %b\r\n" % authorization.encode()
    said = [*headers.values(), *(() if authorization is None else (authorization,))]
    words = {word for value in said for word in (value, value.rpartition(" ")[2])}
    longest = sorted(
        (word.encode() for word in words if len(word) >= SECRET_CHARS_MIN), key=len, reverse=True
    )
    return lines, tuple(longest)
