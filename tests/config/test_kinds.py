"""Addresses, engine URLs and the small kinds: what is taken, how it is normalised, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from maitred.config.kinds import (
    FILE,
    GRACE,
    NUMBER,
    PORT,
    SWITCH,
    TEXT,
    TIMEOUT,
    VERSION,
    Address,
    Kind,
    between,
    choice,
    parse_address,
    parse_endpoint,
)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000, True),
        ("127.9.9.9:0", "127.9.9.9", 0, True),
        ("[::1]:8000", "::1", 8000, True),
        ("localhost:65535", "localhost", 65535, True),
        ("0.0.0.0:8000", "0.0.0.0", 8000, False),
        ("[::]:8000", "::", 8000, False),
        ("gateway.example.com:80", "gateway.example.com", 80, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert str(address) == text
    assert address.is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8001", "'8001' is not an address; write host:port, such as 127.0.0.1:8001"),
        (":8000", "':8000' is not an address; write host:port, such as 127.0.0.1:8000"),
        ("localhost", "'localhost' is not an address; write host:port, such as 127.0.0.1:8000"),
        ("::1:8000", "'::1:8000': '::1' is no host; write host:port or [IPv6]:port"),
        ("[1.2]:8000", "'[1.2]:8000': '[1.2]' is no host; write host:port or [IPv6]:port"),
        ("a b:1", "'a b:1': 'a b' is no host; write host:port or [IPv6]:port"),
        ("localhost:65536", "'localhost:65536': port must be 0 to 65535"),
        ("localhost:http", "'localhost:http': port must be 0 to 65535"),
    ],
)
def test_what_is_no_address(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8001"),
        ("HTTP://GPU-1.Example.com:80", "http://gpu-1.example.com"),
        ("https://gpu_1:443/", "https://gpu_1"),
        ("https://gpu:80", "https://gpu:80"),
        ("http://[::1]", "http://[::1]"),
        ("http://[FE80::1]:8001", "http://[fe80::1]:8001"),
    ],
)
def test_endpoints_are_normalised(text: str, url: str) -> None:
    assert parse_endpoint(text) == url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("htp://127.0.0.1:8001", "'htp://127.0.0.1:8001': scheme must be http or https"),
        ("gpu:8001", "'gpu:8001': scheme must be http or https; write such as http://127.0.0.1:8001"),
        ("http://gpu:8001/v1", "'http://gpu:8001/v1': must have no path; write http://gpu:8001"),
        ("http://gpu?key=x", "'http://…': must be host and port only, without user, query or fragment"),
        ("http://gpu#x", "'http://…': must be host and port only, without user, query or fragment"),
        ("http://me:secret@gpu", "'http://…': must be host and port only, without user, query or fragment"),
        ("me:secret@gpu", "'…': scheme must be http or https; write such as http://127.0.0.1:8001"),
        ("http://", "'http://': host or port is wrong; write such as http://127.0.0.1:8001"),
        ("http://gpu:", "'http://gpu:': host or port is wrong; write such as http://127.0.0.1:8001"),
        (
            "http://gpu:99999",
            "'http://gpu:99999': host or port is wrong; write such as http://127.0.0.1:8001",
        ),
        ("http://::1", "'http://::1': host or port is wrong; write such as http://127.0.0.1:8001"),
        ("http://g pu", "'http://g pu': host or port is wrong; write such as http://127.0.0.1:8001"),
    ],
)
def test_what_is_no_endpoint(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_endpoint(text)
    assert str(caught.value) == message


def test_an_endpoint_needs_a_port_to_connect_to() -> None:
    with pytest.raises(ValueError, match="'http://gpu:0': port must be 1 to 65535"):
        parse_endpoint("http://gpu:0")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SWITCH, "true", True),
        (SWITCH, "false", False),
        (VERSION, "1", 1),
        (GRACE, "0s", 0.0),
        (TEXT, "Qwen/Qwen3 32B", "Qwen/Qwen3 32B"),
        (FILE, "/tmp/j", Path("/tmp/j")),
        (choice("a", "b"), "b", "b"),
        (between(1, 64), "64", 64),
        (PORT, "65535", 65535),
    ],
)
def test_small_kinds(kind: Kind, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (SWITCH, "yes", "'yes' is not known; write true or false"),
        (VERSION, "2", "'2' is not a version this program reads; write 1"),
        (TIMEOUT, "0s", "0s is too small; write more than zero"),
        (NUMBER, "0", "0 is too small; write more than zero"),
        (TEXT, "", "'' must be 1 to 256 printable characters without spaces around them"),
        (TEXT, " a", "' a' must be 1 to 256 printable characters without spaces around them"),
        (TEXT, "a\tb", "'a\\tb' must be 1 to 256 printable characters without spaces around them"),
        (PORT, "0", "'0' is no number from 1 to 65535"),
        (between(1, 64), "65", "'65' is no number from 1 to 64"),
        (between(1, 64), "+1", "'+1' is no number from 1 to 64"),
        (between(1, 64), "٣", "'٣' is no number from 1 to 64"),
        (choice("a", "b", "c"), "d", "'d' is not known; write a or b or c"),
    ],
)
def test_what_small_kinds_refuse(kind: Kind, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(text)
    assert str(caught.value) == message
