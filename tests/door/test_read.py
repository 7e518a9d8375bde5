"""Reading at the door: which paths there are, which model is meant, and what goes to the engine."""

from __future__ import annotations

import json
from collections.abc import Container

import pytest

from maitred.control.models import Models, Route, TokenLimits
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity
from maitred.door.identify import ANYBODY
from maitred.door.read import APIS, Order, read
from maitred.net.exchange import RequestHead
from maitred.wire.requests import STRICT, Rules
from maitred.wire.salt import Salter

SAME, RENAMED = Route("m", "m"), Route("alias", "m", "served")
NAMELESS = [path for path, api in APIS.items() if Api.RERANK <= api <= Api.DETOKENIZE]


def order(
    path: str,
    body: object,
    *routes: Route,
    rules: Rules = STRICT,
    identity: Identity = ANYBODY,
    fields: dict[bytes, bytes] | None = None,
    tenants: Container[str] = (),
) -> Order:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = RequestHead("POST", path, fields or {}, True, len(raw))
    return read(head, raw, "req-1", Models(routes or (SAME,)), rules, identity, tenants)


def refusal(path: str, body: object, *routes: Route, identity: Identity = ANYBODY) -> Refusal:
    with pytest.raises(Refusal) as caught:
        order(path, body, *routes, identity=identity)
    return caught.value


def sent(order: Order) -> bytes:
    return b"".join(order.parts)


def test_the_paths() -> None:
    assert {
        "/v1/messages": Api.MESSAGES,
        "/v1/messages/count_tokens": Api.COUNT_TOKENS,
        "/tokenize": Api.TOKENIZE,
        "/detokenize": Api.DETOKENIZE,
    }.items() <= APIS.items()
    for name in ("rerank", "score", "classify", "pooling"):
        assert APIS[f"/{name}"] is APIS[f"/v1/{name}"] is Api[name.upper()]
    assert APIS["/v2/rerank"] is Api.RERANK
    assert set(APIS.values()) == set(Api)


@pytest.mark.parametrize("path", APIS)
def test_the_engine_gets_the_same_path_and_body(path: str) -> None:
    body = b'{ "model" : "m", "messages": [], "x": [1.0, 1e5] }'
    told = order(path, body)
    assert (told.path, told.request.api, told.request.model) == (path, APIS[path], "m")
    assert sent(told) == body


@pytest.mark.parametrize("path", APIS)
def test_an_alias_becomes_the_name_the_engine_knows(path: str) -> None:
    told = order(path, b'{"model":"alias","messages":[]}', RENAMED)
    assert sent(told) == b'{"model":"served","messages":[]}'
    assert told.route is RENAMED


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("model", ["other", "served"])
def test_a_model_that_is_not_served_is_not_found(path: str, model: str) -> None:
    assert refusal(path, {"model": model, "messages": []}, RENAMED).outcome is Outcome.MODEL_NOT_FOUND


@pytest.mark.parametrize("path", NAMELESS)
@pytest.mark.parametrize("route", [SAME, RENAMED])
def test_of_the_only_model_the_name_may_be_left_out(path: str, route: Route) -> None:
    body = b'{"content": "Hello"}'
    told = order(path, body, route, Route("other", "m"))
    assert (told.request.model, told.request.pool) == (route.name, "m")
    assert sent(told) == body
    assert sent(order(path, {"model": ""}, route)) == json.dumps({"model": route.served_as or ""}).encode()


@pytest.mark.parametrize("path", APIS)
def test_of_several_models_one_must_be_named(path: str) -> None:
    told = refusal(path, {"content": "Hello"}, SAME, Route("n", "n"))
    assert (told.outcome, told.param) == (Outcome.BAD_REQUEST, "model")


@pytest.mark.parametrize("path", [path for path in APIS if path not in NAMELESS])
def test_where_models_are_always_named_it_must_be_named(path: str) -> None:
    told = refusal(path, {"messages": []})
    assert (told.outcome, told.param) == (Outcome.BAD_REQUEST, "model")


def test_before_any_engine_has_told_its_models_none_is_missing() -> None:
    for body in ({"model": "m"}, {}):
        with pytest.raises(Refusal) as caught:
            read(RequestHead("POST", "/tokenize", {}, True, 2), json.dumps(body).encode(), "req-1", Models())
        assert caught.value.outcome is Outcome.NO_ENDPOINT


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", True),
        ("/v1/completions", True),
        ("/v1/messages", False),
        ("/v1/embeddings", False),
    ],
)
def test_usage_is_asked_for_where_it_would_not_be_told(path: str, asked: bool) -> None:
    told = order(path, {"model": "m", "messages": [], "stream": True})
    assert told.hides_usage is asked
    assert (b"stream_options" in sent(told)) is asked
    assert told.request.stream is (path != "/v1/embeddings")


def test_the_rules_of_the_house_hold() -> None:
    body = {"model": "m", "priority": 1, "messages": [{"content": [{"image_url": "http://a.example.com/"}]}]}
    path = "/v1/chat/completions"
    assert refusal(path, body).param == "priority"
    rules = Rules(fields=("priority",))
    with pytest.raises(Refusal, match=r"messages\[0\]\.content\[0\]\.image_url"):
        order(path, body, rules=rules)
    told = order(path, body, rules=Rules(fields=("priority",), domains=("example.com",)))
    assert json.loads(sent(told)) == body


# -- how long -----------------------------------------------------------------------------------------

CHAT = "/v1/chat/completions"
SHORT = Route("m", "m", limits=TokenLimits(context=1000, output=40, output_default=10))


@pytest.mark.parametrize(
    ("path", "said", "got"),
    [
        (CHAT, {}, {"max_completion_tokens": 10}),
        (CHAT, {"max_tokens": 50}, {"max_tokens": 40}),
        (CHAT, {"max_tokens": 30}, {"max_tokens": 30}),
        ("/v1/messages", {"max_tokens": 50}, {"max_tokens": 40}),
        ("/v1/completions", {}, {"max_tokens": 10}),
        ("/v1/embeddings", {}, {}),
        (
            CHAT,
            {"max_completion_tokens": 30, "max_tokens": 9999},
            {"max_completion_tokens": 30, "max_tokens": 30},
        ),
        (
            CHAT,
            {"max_completion_tokens": 90, "max_tokens": 5},
            {"max_completion_tokens": 40, "max_tokens": 5},
        ),
        (CHAT, {"max_tokens": 30, "n_predict": -1}, {"max_tokens": 30, "n_predict": 30}),
        (CHAT, {"n_predict": 50}, {"max_completion_tokens": 40, "n_predict": 40}),
        (CHAT, {"n_predict": 20}, {"max_completion_tokens": 20, "n_predict": 20}),
        ("/v1/completions", {"n_predict": -2}, {"max_tokens": 40, "n_predict": 40}),
        ("/v1/completions", {"max_tokens": 7, "n_predict": 6}, {"max_tokens": 7, "n_predict": 6}),
    ],
)
def test_an_answer_is_as_long_as_the_model_allows(
    path: str, said: dict[str, int], got: dict[str, int]
) -> None:
    body = {"model": "m", "messages": []}
    told = order(path, {**body, **said}, SHORT)
    assert json.loads(sent(told)) == {**body, **got}
    assert told.request.output_tokens_max == next(iter(got.values()), 0)


def test_where_no_answer_is_limited_each_member_stays() -> None:
    body = {"model": "m", "messages": [], "max_completion_tokens": 30, "max_tokens": 9999, "n_predict": -1}
    for limits in (TokenLimits(context=1000), TokenLimits(context=1000, output_default=10)):
        told = order(CHAT, body, Route("m", "m", limits=limits))
        assert (json.loads(sent(told)), told.request.output_tokens_max) == (body, 30)


def test_where_no_context_is_known_nothing_is_too_long() -> None:
    route = Route("m", "m", limits=TokenLimits(output=40))
    told = order("/v1/completions", {"model": "m", "prompt": [1] * 5000, "max_tokens": 90}, route)
    assert json.loads(sent(told))["max_tokens"] == 40


def test_a_client_that_wants_no_answer_gets_none() -> None:
    assert (
        json.loads(sent(order("/v1/completions", {"model": "m", "max_tokens": 0}, SHORT)))["max_tokens"] == 0
    )


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_only_what_generates_must_fit_with_its_answer(path: str) -> None:
    body = {"model": "m", "prompt": [1] * 991, "input": [1] * 2000}
    if path == "/v1/embeddings":
        assert order(path, body, SHORT).request.prompt_tokens == 2000
    else:
        assert refusal(path, body, SHORT).outcome is Outcome.CONTEXT_TOO_LONG
        body["prompt"].pop()  # type: ignore[attr-defined]
        told = order(path, body, SHORT).request
        assert (told.prompt_tokens, told.prompt_exact, told.output_tokens_max) == (990, True, 10)


# -- who asks -----------------------------------------------------------------------------------------

SAID = {
    b"x-stainless-retry-count": b"2",
    b"x-stainless-read-timeout": b"600",
    b"x-maitred-tenant": b"canary-tenant",
    b"x-maitred-band": b"batch",
    b"x-llm-d-slo-ttft-ms": b"1500",
    b"authorization": b"Bearer canary-key",
}


def test_everybody_is_heard_on_patience_and_nobody_unasked_on_rank() -> None:
    told = order(CHAT, {"model": "m", "messages": []}, fields=SAID)
    request = told.request
    assert (request.retry, request.deadline_s) == (2, 600.0)
    assert (told.identity, request.band, request.ttft_s) == (ANYBODY, "", None)


def test_those_who_may_say_for_whom_and_how_soon() -> None:
    trusted = Identity("team", "k1", bands=("chat", "batch"), may_set=("tenant", "band", "slo"))
    body = {"model": "m", "messages": []}
    told = order(CHAT, body, fields=SAID, identity=trusted, tenants={"canary-tenant"})
    assert (told.identity.tenant, told.identity.key) == ("canary-tenant", "k1")
    assert order(CHAT, body, fields=SAID, identity=trusted, tenants={"team"}).identity is trusted
    assert (told.request.band, told.request.ttft_s) == ("batch", 1.5)


def test_nothing_said_of_oneself_goes_to_the_engine() -> None:
    told = order(CHAT, {"model": "m", "messages": []}, fields={**SAID, b"traceparent": b"00-1"})
    assert told.forwarded == b"traceparent: 00-1\r\n"


@pytest.mark.parametrize(
    ("names", "route", "open_to"),
    [
        ((), RENAMED, True),
        (("x", "alias"), RENAMED, True),
        (("m",), RENAMED, True),
        (("served",), RENAMED, False),
        (("m",), Route("alias", "m", adapter="alias"), False),
    ],
)
def test_a_model_that_one_may_not_use_is_not_there(
    names: tuple[str, ...], route: Route, open_to: bool
) -> None:
    identity, body = Identity(models=names), {"model": "alias", "messages": []}
    if open_to:
        assert order(CHAT, body, route, identity=identity).identity is identity
    else:
        assert refusal(CHAT, body, route, identity=identity).outcome is Outcome.MODEL_NOT_FOUND
        assert refusal("/tokenize", {}, route, identity=identity).outcome is Outcome.BAD_REQUEST


# -- what a prompt is known by --------------------------------------------------------------------

TALK = {"model": "m", "messages": [{"role": "user", "content": "Well, " * 200}]}
APART = Route("m", "m", salter=Salter(b"secret"))


def test_a_prompt_is_known_by_keys_where_they_are_used() -> None:
    request = order("/v1/chat/completions", TALK).request
    assert len(request.prefix) == 2
    assert order("/v1/chat/completions", TALK, Route("m", "m", keyed=False)).request.prefix == ()
    assert order("/v1/embeddings", TALK | {"input": "Well, " * 200}).request.prefix == ()


def test_models_and_adapters_have_keys_of_their_own() -> None:
    routes = [SAME, Route("m", "n"), Route("m", "m", adapter="a"), Route("m", "m", adapter="b"), APART]
    keys = [order("/v1/chat/completions", TALK, route).request.prefix for route in routes]
    assert len({key for some in keys for key in some}) == sum(map(len, keys)) == 10
    assert order("/v1/chat/completions", TALK, Route("m", "m", "served")).request.prefix == keys[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_tenants_kept_apart_share_neither_salt_nor_keys(path: str) -> None:
    body = TALK | {"prompt": "Well, " * 200}
    own = Rules(fields=("cache_salt",))
    told = [
        order(path, body, APART, identity=Identity("a")),
        order(path, body, APART, identity=Identity("b")),
        order(path, body | {"cache_salt": "mine"}, APART, rules=own, identity=Identity("a")),
    ]
    salts = [json.loads(sent(one))["cache_salt"] for one in told]
    assert salts == [one.salt for one in told]
    assert len(set(salts)) == 3
    assert "mine" not in salts
    assert len({key for one in told for key in one.request.prefix}) == 6
    again = order(path, body, APART, identity=Identity("a"))
    assert (again.salt, again.request.prefix) == (salts[0], told[0].request.prefix)


def test_who_asks_in_the_name_of_a_tenant_has_that_ones_cache() -> None:
    trusted = Identity("front", may_set=("tenant",))
    fields = {b"x-maitred-tenant": b"a"}
    told = order("/v1/messages", TALK, APART, identity=trusted, fields=fields, tenants={"a"})
    assert told.salt == Salter(b"secret").salt("a")


def test_a_salt_of_the_clients_own_goes_on_and_divides_the_keys() -> None:
    rules = Rules(fields=("cache_salt",))
    told = order("/v1/chat/completions", TALK | {"cache_salt": "mine"}, rules=rules)
    assert (told.salt, json.loads(sent(told))["cache_salt"]) == ("mine", "mine")
    assert told.request.prefix != order("/v1/chat/completions", TALK).request.prefix
    for odd in (None, 7, ["x"], ""):
        assert order("/v1/chat/completions", TALK | {"cache_salt": odd}, rules=rules).salt == ""


def test_what_keeps_no_cache_gets_no_salt() -> None:
    told = order("/v1/embeddings", {"model": "m", "input": "x"}, APART)
    assert (told.salt, sent(told)) == ("", b'{"model": "m", "input": "x"}')


def test_a_session_is_what_header_or_body_say() -> None:
    by_header, other = (
        order("/v1/chat/completions", TALK, fields={b"x-session-id": said}).request.session
        for said in (b"one", b"two")
    )
    by_body = order("/v1/chat/completions", TALK | {"prompt_cache_key": "three"}).request.session
    assert len({by_header, other, by_body, ""}) == 4
    both = order("/v1/messages", TALK | {"prompt_cache_key": "x"}, fields={b"x-session-id": b"one"})
    assert both.request.session == by_header
    for odd in (None, "", 7, ["x"]):
        assert order("/v1/messages", TALK | {"user": "me", "prompt_cache_key": odd}).request.session == ""
    assert order("/v1/chat/completions", TALK, fields={b"x-session-id": b"x" * 129}).request.session == ""
