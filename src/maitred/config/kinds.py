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
from urllib.parse import urlsplit

from msgspec import Struct

from maitred.config.units import (
    COUNT,
    DIGITS_MAX,
    DURATION_MS,
    SIZE_BYTES,
    parse_count,
    parse_duration,
    parse_percent,
    parse_size,
    parse_usd,
    print_duration,
    print_percent,
    print_size,
    print_usd,
    quote,
)

PORTS = {"http": 80, "https": 443}
ENGINE = "http://127.0.0.1:8001"
DNS_NAME = "http://qwen3.example.com:8000"
ORIGIN_NAME = "https://chat.example.com"

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
# A last label that is a number makes an address of it, in whatever notation.
_NUMERIC = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)$")
_ratio = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?").fullmatch
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,127}")
_HIDDEN = "it is not repeated in case it is a secret"


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


def parse_endpoint(text: str, example: str = ENGINE) -> str:
    """A server's URL, normalised: lower case, no trailing slash, no port where it is the scheme's own."""
    scheme, separator, rest = text.partition("://")
    # Credentials may hide in a wrong URL, and error messages end up in logs.
    masked = f"{scheme}://…" if separator else "…"
    shown = quote(masked if re.search("[@?#]", text) else text)
    scheme, (place, _, path) = scheme.lower(), rest.partition("/")
    if not separator:
        raise ValueError(f"{shown}: scheme must be http or https; write such as {example}")
    if scheme not in PORTS:
        raise ValueError(f"{shown}: scheme must be http or https")
    if re.search("[@?#]", rest):
        raise ValueError(f"{shown}: must be host and port only, without user, query or fragment")
    if path:
        raise ValueError(f"{shown}: must have no path; write {scheme}://{place}")
    try:
        address = parse_address(place if re.search(":[0-9]+$", place) else f"{place}:{PORTS[scheme]}")
    except ValueError as error:
        raise ValueError(f"{shown}: host or port is wrong; write such as {example}") from error
    if not address.port:
        raise ValueError(f"{shown}: port must be 1 to 65535")
    port = "" if address.port == PORTS[scheme] else f":{address.port}"
    return f"{scheme}://{_bracketed(address.host.lower())}{port}"


def parse_dns(text: str) -> str:
    """The URL of servers whose addresses DNS tells: http, and a name."""
    url = parse_endpoint(text, DNS_NAME)
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise ValueError(
            f"{quote(url)}: scheme must be http, because certificates name hosts and DNS gives addresses; "
            "list https endpoints by name"
        )
    if ":" in (host := parts.hostname or "") or _NUMERIC.search(host):
        raise ValueError(f"{quote(url)}: must be a name; write a list of addresses instead")
    return url


def parse_origin(text: str) -> str:
    """A web page's origin as browsers send it: scheme, host, and the port unless it is the scheme's own."""
    if text == "*":
        raise ValueError(f"'*' would let every web page in; write each origin, such as {ORIGIN_NAME}")
    return parse_endpoint(text, ORIGIN_NAME)


def parse_host(text: str) -> str:
    """A host's name in lower case, without port or wildcard; an address is none."""
    name = text.lower()
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError(f"{quote(text)} is no host name; write one such as cdn.example.com")
    if _NUMERIC.search(name):
        raise ValueError(f"{quote(text)} is an address; write a host name such as cdn.example.com")
    return name


def choice(*words: str) -> Kind:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{quote(text)} is not known; write {' or '.join(words)}")
        return text

    return Kind(parse, str, {"type": "string", "enum": list(words)}, words[0])


def number_or(word: str) -> Kind:
    """A number above zero, or a word that stands for 0."""

    def parse(text: str) -> int:
        if text == word:
            return 0
        try:
            return int(NUMBER.parse(text))
        except ValueError as error:
            raise ValueError(f"{error}, or {word}") from None

    schema = {"anyOf": [_COUNT, {"type": "string", "enum": [word]}]}
    return Kind(parse, lambda value: value or word, schema, NUMBER.example)


def between(least: int, most: int) -> Kind:
    """A number from `least` to `most`."""

    def parse(text: str) -> int:
        if (
            not text.isascii()
            or not text.isdecimal()
            or len(text) > DIGITS_MAX
            or not least <= int(text) <= most
        ):
            raise ValueError(f"{quote(text)} is no number from {least} to {most}")
        return int(text)

    return Kind(parse, int, {"type": "integer", "minimum": least, "maximum": most}, str(least))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_host(host: str) -> bool:
    return bool(_HOST.fullmatch(host)) and (not host.startswith("[") or _is_ip(host[1:-1]))


def _is_ip(host: str) -> bool:
    try:
        return bool(ip_address(host))
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


def _parse_variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"what is written here is no name of a variable (letters, digits and _); {_HIDDEN}")
    return text


def _parse_hidden_file(text: str) -> Path:
    try:
        return Path(_parse_text(text))
    except ValueError:
        raise ValueError(f"what is written here is no path of a file; {_HIDDEN}") from None


def _parse_ratio(text: str) -> float:
    if not _ratio(text):
        raise ValueError(f"{quote(text)} is no number; write one such as 2 or 0.8")
    return float(text)


def _print_ratio(number: float) -> Any:
    return int(number) if number == int(number) else number


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


_DURATION = {"type": "string", "pattern": _unit_pattern(DURATION_MS)}
_SIZE = {"type": "string", "pattern": _unit_pattern(SIZE_BYTES)}
_COUNT = {"type": ["integer", "string"], "minimum": 1, "pattern": _unit_pattern(COUNT)}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}
_USD = {"type": ["number", "string"], "minimum": 0, "pattern": r"^[0-9]{1,9}(\.[0-9]{1,6})?$"}
_BUDGET = {key: rule for key, rule in _USD.items() if key != "minimum"} | {"exclusiveMinimum": 0}
_PERCENT = {"type": "string", "pattern": "^(100|[0-9]{1,2})%$"}

TIMEOUT = Kind(_positive(parse_duration), print_duration, _DURATION, "30s")
GRACE = Kind(parse_duration, print_duration, _DURATION, "30s")  # zero: not at all
SIZE = Kind(_positive(parse_size), print_size, _SIZE, "64MiB")
AMOUNT = Kind(parse_count, int, {**_COUNT, "minimum": 0}, "256")  # may be zero
RATIO = Kind(_parse_ratio, _print_ratio, {"type": "number", "minimum": 0}, "0.8")
NUMBER = Kind(_positive(parse_count), int, _COUNT, "256")
USD = Kind(parse_usd, print_usd, _USD, "2000")
BUDGET = Kind(_positive(parse_usd), print_usd, _BUDGET, "2000")
PERCENT = Kind(parse_percent, print_percent, _PERCENT, "10%")
PORT = between(1, 65535)
TEXT = Kind(_parse_text, str, _TEXT, "qwen3-32b")
FILE = Kind(lambda text: Path(_parse_text(text)), str, _TEXT, "maitred.journal")
HIDDEN_FILE = Kind(_parse_hidden_file, str, _TEXT, "/run/secrets/maitred")
SWITCH = Kind(_parse_switch, bool, {"type": "boolean"}, "true")
VERSION = Kind(_parse_version, int, {"type": "integer", "enum": [1]}, "1")
ADDRESS = Kind(parse_address, str, {"type": "string", "pattern": ":[0-9]{1,5}$"}, "127.0.0.1:8000")
DNS = Kind(parse_dns, str, {"type": "string", "format": "uri", "pattern": "^http://"}, DNS_NAME)
ORIGIN = Kind(parse_origin, str, {"type": "string", "pattern": "^https?://"}, ORIGIN_NAME)
HOST = Kind(parse_host, str, {"type": "string", "pattern": f"^({_NAME.pattern})$"}, "cdn.example.com")
VARIABLE = Kind(
    _parse_variable, str, {"type": "string", "pattern": f"^{_VARIABLE.pattern}$"}, "MAITRED_ADMIN_TOKEN"
)
ENDPOINT = Kind(parse_endpoint, str, {"type": "string", "format": "uri", "pattern": "^https?://"}, ENGINE)
