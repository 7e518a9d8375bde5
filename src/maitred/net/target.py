"""The target of a request: which path is meant, in whichever of its forms it was written (RFC 9112, 3.2).

Only what every reader must take for the same is made the same: escapes of unreserved characters. Slashes,
dots and reserved characters stay as they came, so that a path either is one of ours or is none.
"""

from __future__ import annotations

import re
from functools import lru_cache

ANY = "*"
"""The path of a request for none: `OPTIONS *`, which is about the server as a whole, and CONNECT."""

_HOST = rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?"
_host = re.compile(_HOST).fullmatch
_absolute = re.compile(rb"(?i:https?)://%b(/.*|)" % _HOST).fullmatch
_escape = re.compile(rb"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@lru_cache(maxsize=64)  # nearly all requests say the same few hosts and targets
def is_host(host: bytes) -> bool:
    """Whether this is a host, with or without a port, as a Host header has it: a name or an address only."""
    return _host(host) is not None


@lru_cache(maxsize=64)
def path_of(target: bytes, method: str) -> str:
    """The path without its query; "" where the target is malformed.

    The host of an absolute target names nobody here: one gateway, one set of paths.
    """
    path = target.partition(b"?")[0]
    if path[:1] != b"/" or method == "CONNECT":
        path = _unusual(path, method)
    if b"%" in path:
        if len(_escape.findall(path)) != path.count(b"%"):
            return ""
        path = _escape.sub(_plain, path)
    return "" if b"#" in target else path.decode("latin-1")


def _unusual(path: bytes, method: str) -> bytes:
    """The path of a target that does not begin with it."""
    if method == "CONNECT":
        return b"*" if is_host(path) else b""
    if method == "OPTIONS" and path == b"*":
        return path
    absolute = _absolute(path)
    return b"" if absolute is None else absolute[1] or b"/"


def _plain(escape: re.Match[bytes]) -> bytes:
    byte = int(escape[1], 16)
    return bytes((byte,)) if byte in _UNRESERVED else escape[0]
