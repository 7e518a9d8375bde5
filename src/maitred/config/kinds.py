"""The kinds of value a setting can have: how each is read from text, written again and described.

Files, environment and flags all hand over text, so one parser per kind serves them all and an error reads
the same wherever the value came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct

from maitred.config.units import (
    COUNT,
    DIGITS_MAX,
    DURATION_MS,
    SIZE_BYTES,
    parse_count,
    parse_duration,
    parse_size,
    print_duration,
    print_size,
    quote,
)

PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


class Address(Struct, frozen=True):
    """Where a port listens. `host` is bare (`::1`, no brackets); port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        """As written in the file: `127.0.0.1:8000` or `[::1]:8000`."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than `localhost` counts as reachable."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Kind(Struct, frozen=True):
    """One kind of value. `parse` raises ValueError with the value and what to write instead."""

    parse: Callable[[str], Any]
    write: Callable[[Any], str | int | bool]
    schema: dict[str, Any]
    example: str


def parse_address(text: str) -> Address:
    """`host:port` or `[v6]:port`."""
    host, _, port = text.rpartition(":")
    if not host:
        number = port if port.isdecimal() else 8000
        raise ValueError(f"{quote(text)} is not an address; write host:port, such as 127.0.0.1:{number}")
    if not _is_host(host):
        raise ValueError(f"{quote(text)}: {quote(host)} is no host; write host:port or [IPv6]:port")
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{quote(text)}: port must be 0 to 65535")
    return Address(host.strip("[]"), int(port))


def parse_endpoint(text: str) -> str:
    """An engine's URL, normalised: lower case, no trailing slash, no port where it is the scheme's own."""
    scheme, separator, rest = text.partition("://")
    # Credentials may hide in a wrong URL, and error messages end up in logs.
    masked = f"{scheme}://…" if separator else "…"
    shown = quote(masked if re.search("[@?#]", text) else text)
    scheme, (place, _, path) = scheme.lower(), rest.partition("/")
    if not separator:
        raise ValueError(f"{shown}: scheme must be http or https; write such as {ENGINE}")
    if scheme not in PORTS:
        raise ValueError(f"{shown}: scheme must be http or https")
    if re.search("[@?#]", rest):
        raise ValueError(f"{shown}: must be host and port only, without user, query or fragment")
    if path:
        raise ValueError(f"{shown}: must have no path; write {scheme}://{place}")
    try:
        address = parse_address(place if re.search(":[0-9]+$", place) else f"{place}:{PORTS[scheme]}")
    except ValueError as error:
        raise ValueError(f"{shown}: host or port is wrong; write such as {ENGINE}") from error
    if not address.port:
        raise ValueError(f"{shown}: port must be 1 to 65535")
    port = "" if address.port == PORTS[scheme] else f":{address.port}"
    return f"{scheme}://{_bracketed(address.host.lower())}{port}"


def choice(*words: str) -> Kind:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{quote(text)} is not known; write {' or '.join(words)}")
        return text

    return Kind(parse, str, {"type": "string", "enum": list(words)}, words[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_host(host: str) -> bool:
    if not _HOST.fullmatch(host):
        return False
    try:
        return not host.startswith("[") or bool(ip_address(host[1:-1]))
    except ValueError:
        return False


def _positive(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse_positive(text: str) -> Any:
        value = parse(text)
        if not value:
            raise ValueError(f"{text} is too small; write more than zero")
        return value

    return parse_positive


def _parse_text(text: str) -> str:
    if not text or text != text.strip() or not text.isprintable() or len(text) > 256:
        raise ValueError(f"{quote(text)} must be 1 to 256 printable characters without spaces around them")
    return text


def _parse_switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{quote(text)} is not known; write true or false")
    return text == "true"


def _parse_version(text: str) -> int:
    if text != "1":
        raise ValueError(f"{quote(text)} is not a version this program reads; write 1")
    return 1


def _unit_pattern(units: dict[str, int]) -> str:
    return f"^[0-9]{{1,{DIGITS_MAX}}}({'|'.join(unit for unit in units if unit)})$"


ENGINE = "http://127.0.0.1:8001"

_DURATION = {"type": "string", "pattern": _unit_pattern(DURATION_MS)}
_SIZE = {"type": "string", "pattern": _unit_pattern(SIZE_BYTES)}
_COUNT = {"type": ["integer", "string"], "minimum": 1, "pattern": _unit_pattern(COUNT)}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}

TIMEOUT = Kind(_positive(parse_duration), print_duration, _DURATION, "30s")
GRACE = Kind(parse_duration, print_duration, _DURATION, "30s")  # zero: not at all
SIZE = Kind(_positive(parse_size), print_size, _SIZE, "64MiB")
NUMBER = Kind(_positive(parse_count), int, _COUNT, "256")
TEXT = Kind(_parse_text, str, _TEXT, "qwen3-32b")
FILE = Kind(lambda text: Path(_parse_text(text)), str, _TEXT, "maitred.journal")
SWITCH = Kind(_parse_switch, bool, {"type": "boolean"}, "true")
VERSION = Kind(_parse_version, int, {"type": "integer", "enum": [1]}, "1")
ADDRESS = Kind(parse_address, str, {"type": "string", "pattern": ":[0-9]{1,5}$"}, "127.0.0.1:8000")
ENDPOINT = Kind(parse_endpoint, str, {"type": "string", "format": "uri", "pattern": "^https?://"}, ENGINE)
