"""From bytes at the door to an order: what is asked, of which model, and what goes to the engine.

Everything that can be known to be wrong is refused here, before a ticket exists.
"""

from __future__ import annotations

from msgspec import Struct

from maitred.control.models import Models, Route
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity, Request
from maitred.net.exchange import RequestHead
from maitred.wire import edit, requests

APIS = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/v1/embeddings": Api.EMBEDDINGS,
}
"""The paths that go to engines; everything else is answered here or not at all."""


ANYBODY = Identity()
JSON = b"application/json"
FORWARDED = (b"traceparent", b"tracestate")
"""What of a client's head goes on to the engine; all else steers, identifies or frames, and stays here."""


class Order(Struct):
    """One request, read.

    `parts` is the body for the engine, `forwarded` the header lines that go with it. `hides_usage`: the
    client did not ask for the usage that the engine is asked for.
    """

    request: Request
    identity: Identity
    route: Route
    path: str
    parts: list[bytes | memoryview]
    forwarded: bytes
    hides_usage: bool


def read(head: RequestHead, body: bytes, request_id: str, models: Models) -> Order:
    """Read one request. Raises Refusal: broken, or of a model that is not served."""
    path = head.path
    api = APIS[path]
    asked = requests.decode(api, body)
    route = models.find(asked.model)
    if route is None:
        if not models.known:
            raise Refusal(Outcome.NO_ENDPOINT, "no engine has told its models yet", retry_after_s=1.0)
        message = "the model does not exist here; GET /v1/models lists those that do"
        raise Refusal(Outcome.MODEL_NOT_FOUND, message, param="model")
    hides_usage = asked.stream and not asked.wants_usage
    request = Request(request_id, api, route.name, route.pool, asked.stream, len(body), asked.sequences)
    fields, forwarded = head.fields, b""
    for name in FORWARDED:
        if name in fields and name not in fields.get(b"connection", b"").lower():
            forwarded += b"%b: %b\r\n" % (name, fields[name])
    parts: list[bytes | memoryview] = [body]
    if hides_usage or route.served_as is not None:
        parts = edit.apply(body, edit.Edits(model=route.served_as, include_usage=hides_usage))
    return Order(request, ANYBODY, route, path, parts, forwarded, hides_usage)


def check_media(fields: dict[bytes, bytes]) -> None:
    """Raise Refusal unless the body is said to be plain JSON (or nothing is said)."""
    media = fields.get(b"content-type", JSON).partition(b";")[0].strip().lower()
    if media != JSON and not media.endswith(b"+json"):
        raise Refusal(Outcome.MEDIA_TYPE, "send the body as content-type: application/json")
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(Outcome.MEDIA_TYPE, "send the body without content-encoding")
