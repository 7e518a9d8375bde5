"""From bytes at the door to an order: what is asked, of which model, and what goes to the engine.

Everything that can be known to be wrong is refused here, before a ticket exists.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from maitred.control.models import Models, Route
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity, Request
from maitred.door import headers, length
from maitred.door.identify import ANYBODY
from maitred.door.inflate import GZIP
from maitred.net.exchange import RequestHead
from maitred.wire import edit, requests
from maitred.wire import prefix as keys
from maitred.wire.fingerprint import fingerprint
from maitred.wire.media import NOTHING
from maitred.wire.requests import STRICT, Body, Rules

APIS = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/v1/embeddings": Api.EMBEDDINGS,
    "/v1/messages": Api.MESSAGES,
    "/v1/messages/count_tokens": Api.COUNT_TOKENS,
    "/rerank": Api.RERANK,
    "/v1/rerank": Api.RERANK,
    "/v2/rerank": Api.RERANK,
    "/score": Api.SCORE,
    "/v1/score": Api.SCORE,
    "/classify": Api.CLASSIFY,
    "/v1/classify": Api.CLASSIFY,
    "/pooling": Api.POOLING,
    "/v1/pooling": Api.POOLING,
    "/tokenize": Api.TOKENIZE,
    "/detokenize": Api.DETOKENIZE,
    "/v1/responses": Api.RESPONSES,
}
"""The paths that go to engines; everything else is answered here or not at all."""

OURS = frozenset({"/v1/responses"})
"""Those by which the gateway asks engines for its clients; at the same paths it answers clients itself."""

THEIRS = {path: api for path, api in APIS.items() if path not in OURS}
"""Those that clients ask engines by."""

JSON = b"application/json"
NO_KEYS: tuple[int, ...] = ()

OfHead = tuple[Api, bool, bool, headers.Said]
"""What a head says, kept with it: the API, whether its answers are generated and prompts may be marked, and
what is read of fields.
"""


class Order(Struct, gc=False):
    """One request, read.

    `parts` is the body for the engine, of `size` bytes in all, `forwarded` the header lines that go with it,
    and `id_line` the one that tells its id.
    `hides_usage`: the client did not ask for the usage that the engine is asked for. `salt`: what the engine
    keeps the cache apart by. `shows_receipt`: the answer tells why it came from where it came from.
    """

    request: Request
    identity: Identity
    route: Route
    path: str
    parts: list[bytes | memoryview]
    size: int
    id_line: bytes
    forwarded: bytes
    hides_usage: bool
    salt: str = ""
    shows_receipt: bool = False


def read(
    head: RequestHead,
    body: bytes,
    request_id: str,
    models: Models,
    rules: Rules = STRICT,
    identity: Identity = ANYBODY,
    tenants: Container[str] = (),
    sampled: bool = False,
) -> Order:
    """Read one request. Raises Refusal: broken, against the rules, too long, or of a model not served.

    `tenants` are those that the settings name; `sampled`: its decision is to be kept.
    """
    of_head: OfHead | None = head.said
    if of_head is None:
        of_head = head.said = _of_head(head)
    api, generates, marked, said = of_head
    asked, find = requests.decode(api, body, rules), models.find
    route = find(asked.model)
    if route is None or (identity.models and not route.open_to(identity.models)):
        route = _only(asked.model, models, identity)
    band, ttft_s, shows_receipt = "", None, False
    if identity.may_set:
        band, ttft_s, shows_receipt, identity = _steered(head.fields, identity, tenants)
    output, bound, size = asked.output_tokens_max, 0, len(body)
    salt, prefix = "", NO_KEYS
    if generates:
        limits = route.limits
        if limits.bounds:
            output, bound = length.bounded(api, asked, limits)
        context = limits.context
        if context and asked.prompt_tokens + output > context:
            length.check_fits(api, asked, output, context, body)
        if route.keyed or route.salter is not None:
            own = asked.cache_salt() if rules.salted else ""
            salt, prefix = _known_by(asked, route, identity, own, size, marked)
    session = said.session
    if not session and asked.said.prompt_cache_key is not NOTHING:
        session = asked.session()
    request = Request(
        request_id,
        api,
        route.name,
        route.pool,
        asked.stream,
        size,
        asked.sequences,
        route.adapter,
        fingerprint(body),
        asked.prompt_tokens,
        asked.prompt_exact,
        output,
        band,
        said.patience_s,
        ttft_s,
        said.retry,
        prefix,
        NO_KEYS,
        0,
        keys.session(session, identity.tenant) if session else "",
        sampled or shows_receipt,
    )
    parts: list[bytes | memoryview] = [body]
    hides_usage = asked.stream and not asked.wants_usage
    if hides_usage or bound or route.edits:
        edits = _edits(route, api, bound, salt, hides_usage) if bound or route.edits else edit.USAGE
        parts = edit.apply(body, edits)
        size = sum(map(len, parts))
    id_line, onward = f"x-request-id: {request_id}\r\n".encode(), said.forwarded
    path = head.path
    return Order(
        request, identity, route, path, parts, size, id_line, onward, hides_usage, salt, shows_receipt
    )


def _of_head(head: RequestHead) -> OfHead:
    api = APIS[head.path]
    return api, api.generates, api.anthropic, headers.said(head.fields)


def _steered(
    fields: dict[bytes, bytes], identity: Identity, tenants: Container[str]
) -> tuple[str, float | None, bool, Identity]:
    """What one may say who may set something: band and goal, whether he wants a receipt, for whom he asks."""
    return (
        headers.band(fields, identity),
        headers.ttft_s(fields, identity),
        headers.wants_receipt(fields, identity),
        headers.on_behalf(fields, identity, tenants),
    )


def _known_by(
    asked: Body, route: Route, identity: Identity, salt: str, size: int, marked: bool
) -> tuple[str, tuple[int, ...]]:
    """The salt of its cache, of the one that it says itself, and the keys of its prompt."""
    if route.salter is not None:
        salt = route.salter.salt(identity.tenant, salt)
    if not route.keyed:
        return salt, NO_KEYS
    root = keys.root(route.pool, route.adapter, salt) if salt else route.root
    return salt, keys.byte_keys(root, asked.rendered(), size, marked)


def _edits(route: Route, api: Api, bound: int, salt: str, hides_usage: bool) -> edit.Edits:
    """What has to be written into the body for this route."""
    bounds = (length.LIMITED_KEYS if route.limits.output else length.KEYS)[api] if bound else ()
    return edit.Edits(route.served_as, hides_usage, bound, bounds, salt if route.salter is not None else "")


def _only(name: str, models: Models, identity: Identity) -> Route:
    """The one route there is, where none is named; else what was asked for is not to be had."""
    route = models.only if not name else None
    if route is not None and route.open_to(identity.models):
        return route
    if not models.known:
        raise Refusal(Outcome.NO_ENDPOINT, "no engine has told its models yet", retry_after_s=1.0)
    if not name:
        raise Refusal(Outcome.BAD_REQUEST, requests.MODEL_MISSING, param="model")
    message = "the model does not exist here; GET /v1/models lists those that do"
    raise Refusal(Outcome.MODEL_NOT_FOUND, message, param="model")


def check_media(fields: dict[bytes, bytes]) -> None:
    """Raise Refusal unless the body is said to be JSON, plain or gzip (or nothing is said)."""
    media = fields.get(b"content-type", JSON).partition(b";")[0].strip().lower()
    if media != JSON and not media.endswith(b"+json"):
        raise Refusal(Outcome.MEDIA_TYPE, "send the body as content-type: application/json")
    if fields.get(b"content-encoding", b"identity").lower() not in (b"identity", *GZIP):
        message = "send the body plain, or with content-encoding: gzip"
        raise Refusal(Outcome.MEDIA_TYPE, message, headers=(("accept-encoding", "gzip"),))
