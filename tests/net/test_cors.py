"""What pages of other origins are told."""

from __future__ import annotations

import pytest

from maitred.net import cors

PAGE = "https://chat.example.com"
ORIGINS = frozenset({PAGE, "http://localhost:3000"})
METHOD = {b"access-control-request-method": b"POST"}
STRANGERS = [
    b"",
    b"null",
    b"*",
    b"https://evil.example",
    b"http://chat.example.com",
    b"https://chat.example.com:8443",
    b"https://chat.example.com.evil.example",
    b"https://chat.example.com/",
    b"https://CHAT.example.com",
    b"\xff\xfe",
]


def test_a_listed_origin_may_read_every_header_that_matters() -> None:
    lines = cors.lines(ORIGINS, {b"origin": PAGE.encode()}).split(b"\r\n")
    assert lines[0] == b"access-control-allow-origin: https://chat.example.com"
    exposed = lines[1].removeprefix(b"access-control-expose-headers: ").split(b", ")
    assert {b"x-request-id", b"retry-after", b"retry-after-ms", b"x-should-retry"} < set(exposed)
    assert {b"x-maitred-outcome", b"x-ratelimit-remaining-tokens"} < set(exposed)
    assert lines[2:] == [b"vary: origin", b""]


@pytest.mark.parametrize("origin", STRANGERS)
def test_others_get_nothing_but_caches_are_told(origin: bytes) -> None:
    fields = {b"origin": origin, **METHOD}
    assert cors.lines(ORIGINS, fields) == b"vary: origin\r\n"
    assert not cors.is_preflight(ORIGINS, "OPTIONS", fields)
    assert cors.lines(ORIGINS, {}) == b"vary: origin\r\n"


def test_a_preflight_asks_for_a_method_from_a_listed_origin() -> None:
    listed = {b"origin": PAGE.encode()}
    assert cors.is_preflight(ORIGINS, "OPTIONS", listed | METHOD)
    assert not cors.is_preflight(ORIGINS, "GET", listed | METHOD)
    assert not cors.is_preflight(ORIGINS, "OPTIONS", listed)
    assert not cors.is_preflight(frozenset(), "OPTIONS", listed | METHOD)


@pytest.mark.parametrize("asked", [b"authorization", b"Authorization,content-type , x-stainless-os"])
def test_a_page_may_send_the_headers_it_asked_for(asked: bytes) -> None:
    lines = cors.permission(("POST",), {b"access-control-request-headers": asked})
    assert lines == (
        b"access-control-allow-methods: POST\r\naccess-control-max-age: 600\r\n"
        b"access-control-allow-headers: %b\r\n" % asked
    )


@pytest.mark.parametrize(
    "asked", [b"", b",", b"a,,b", b"a b", b"a,", b"a:b", b"a\x0bb", b"\xe4", b"a," * 600 + b"a"]
)
def test_no_header_is_allowed_where_the_question_is_malformed_or_long(asked: bytes) -> None:
    lines = cors.permission(("GET", "HEAD"), {b"access-control-request-headers": asked})
    assert lines == b"access-control-allow-methods: GET, HEAD\r\naccess-control-max-age: 600\r\n"
