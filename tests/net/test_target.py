"""Which path a target means, in each of the forms a request may write it."""

from __future__ import annotations

import pytest

from maitred.net.target import is_host, path_of

SAME = {
    b"/v1/models": "/v1/models",
    b"/": "/",
    b"/v1/models?api-version=1&x=%zz": "/v1/models",
    b"/v1/%6dodels": "/v1/models",
    b"/%76%31/m%6Fdels%2Dx%7e": "/v1/models-x~",
    b"http://gateway/v1/models": "/v1/models",
    b"HTTPS://gateway.example:8000/v1/%6Dodels?x": "/v1/models",
    b"http://[::1]:8000/v1/models": "/v1/models",
    b"http://10.0.0.1:/v1/models": "/v1/models",
    b"http://gateway": "/",
    b"http://gateway?x": "/",
    b"http://gateway//v1/models": "//v1/models",
}
OTHER = {
    b"/v1%2Fmodels": "/v1%2Fmodels",
    b"/v1%2fmodels": "/v1%2fmodels",
    b"/v1/models%00": "/v1/models%00",
    b"/v1/models/a%252Fb": "/v1/models/a%252Fb",
    b"/v1/models%3F": "/v1/models%3F",
    b"/v1/models/": "/v1/models/",
    b"//v1/models": "//v1/models",
    b"/v1//models": "/v1//models",
    b"/./v1/models": "/./v1/models",
    b"/v1/x/../models": "/v1/x/../models",
    b"/v1/x/%2E%2e/models": "/v1/x/../models",
    b"/v1/models;a=b": "/v1/models;a=b",
    b"/v1\\models": "/v1\\models",
}
MALFORMED = [
    b"",
    b"*",
    b"*x",
    b"?x",
    b"v1/models",
    b"gateway:80",
    b"/v1/models#part",
    b"/v1/models?x#part",
    b"/v1/models%",
    b"/v1/models%6",
    b"/v1/%6g",
    b"/v1/%%36d",
    b"/v1/%u006d",
    b"http:///v1/models",
    b"http://user@gateway/v1/models",
    b"http://gateway:8x/v1/models",
    b"http://gateway:80:80/v1/models",
    b"http://[::1/v1/models",
    b"http://::1/v1/models",
    b"http://a b/v1/models",
    b"http://a,b/v1/models",
    b"http://gate%77ay/v1/models",
    b"http://gateway\\/v1/models",
    b"http:/v1/models",
    b"ftp://gateway/v1/models",
    b"http://gateway/v1/%zz",
]


@pytest.mark.parametrize("target", SAME | OTHER)
def test_only_unreserved_escapes_hosts_and_queries_make_no_difference(target: bytes) -> None:
    assert path_of(target, "POST") == (SAME | OTHER)[target]


@pytest.mark.parametrize("target", MALFORMED)
def test_what_is_no_target_has_no_path(target: bytes) -> None:
    assert path_of(target, "POST") == ""


def test_some_targets_are_about_no_path() -> None:
    assert path_of(b"*", "OPTIONS") == "*"
    assert path_of(b"engine:80", "CONNECT") == "*"
    for target in (b"/v1/models", b"http://engine/", b"user@engine:80", b"*"):
        assert path_of(target, "CONNECT") == ""


@pytest.mark.parametrize("host", [b"a", b"a.b-c:80", b"127.0.0.1:8000", b"[::1]:80", b"under_score", b"a:"])
def test_a_host_is_a_name_or_an_address(host: bytes) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    [b"", b" ", b":80", b"a b", b"a,b", b"a/b", b"u@a", b"a:b", b"[::1", b"[x]", b"a\t", b"a?", b"\xff"],
)
def test_anything_else_is_not(host: bytes) -> None:
    assert not is_host(host)
