"""A background response being made: a turn like any other, with the store for its audience.

What a job keeps of its request is what any gateway needs to make it; the key it came with is not among it.
Who asked is who he was then: to revoke a key later does not stop its jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder, encode

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Identity
from maitred.net.exchange import HttpExchange, RequestHead
from maitred.responses.asked import Asked
from maitred.responses.call import BAND, SESSION
from maitred.responses.model import EngineRefused
from maitred.responses.recording import Recording
from maitred.responses.site import Site
from maitred.responses.turn import NO_ANSWER, Turn
from maitred.store.rows import StoreError
from maitred.store.state_rows import JobRow, Lost
from maitred.wire.responses import response
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.create import Create, decode
from maitred.wire.responses.events import Events
from maitred.wire.responses.response import IN_PROGRESS, Response, Status

if TYPE_CHECKING:
    from maitred.store.state import StateStore

log = logging.getLogger("maitred.responses")

KEPT = (SESSION, b"traceparent", b"tracestate")
"""Headers that still mean something when nobody waits."""
THEIR_OWN = ("tenant", "key")
"""Whose limits keep all jobs of a tenant from being taken: those of one key could fill every place."""
DOUBLED_MAX = 5
"""How often the seconds between two attempts are doubled where there is no endpoint."""
QUEUED: Status = "queued"
BEGUN = ("created", "queued")
"""The events that tell of a response that waits; whoever makes it records the same again."""


class Kept(Struct, frozen=True):
    """A request as its job keeps it."""

    body: Raw
    identity: Identity
    fields: dict[str, str]


_kept = Decoder(Kept).decode


def keep(asked: Asked) -> bytes:
    """What is kept of a request."""
    fields = asked.exchange.head.fields
    said = {name.decode(): fields[name].decode("latin-1") for name in KEPT if name in fields}
    return encode(Kept(Raw(asked.exchange.body), asked.identity, said))


def told_at_once(made: Response, numbers: Events) -> bytes:
    """The first events of a stream, before anybody makes it."""
    return b"".join([numbers.response(kind, made) for kind in BEGUN])


def waiting(snapshot: bytes) -> Response:
    """A response as it was when it was queued."""
    made = response.restore(snapshot, ())
    made.status, made.completed_at, made.usage, made.error = QUEUED, None, None, None
    made.incomplete_details = None
    return made


async def make(site: Site, store: StateStore, job: JobRow) -> None:
    """Make one response, unless it is not wanted any more; whatever comes of it is in the store then."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    journeys, id_ = site.service.journeys, job.response.id
    journeys[task.get_name()] = task
    site.running[id_] = task.cancel
    try:
        asked = _asked(site, task, store, job)
        create = decode(asked.exchange.body)
        numbers = Events()
        recording = Recording(asked, id_, numbers, task.cancel)
        made = waiting(job.response.snapshot)
        try:
            if create.said.stream:
                recording.say(told_at_once(made, numbers))
                made.status = IN_PROGRESS
                recording.say(numbers.response(IN_PROGRESS, made))
            await _answered(asked, create, made, numbers, recording, job)
        finally:
            recording.drop()
    except Lost:
        pass  # cancelled, deleted, or another makes it
    except StoreError as error:
        log.warning("response %s could not be kept: %s", id_, error)
    except Exception:
        log.exception("a bug of ours ended response %s", id_)
    finally:
        del journeys[task.get_name()]
        if site.running.get(id_) == task.cancel:
            del site.running[id_]
        site.news.tell(id_)


async def _answered(
    asked: Asked, create: Create, made: Response, numbers: Events, recording: Recording, job: JobRow
) -> None:
    """Ask until the model has answered, or nothing can come of it any more."""
    site = asked.site
    missed = 0
    while True:
        this = Turn(asked, create, made, numbers, recording)
        this.record.adopt()
        async with site.places:
            answer, refusal = await _asked_once(this)
        ends = refusal is not None and not asked.service.house.gateway.settings.accepting
        if this.model.stopped or ends:
            return  # it was cancelled, or we end: then another makes it
        if refusal is None or refusal.wait_s is None or site.now_ms() > job.expires_ms:
            break
        await _rest(asked, refusal, missed)
        missed += refusal.outcome is Outcome.NO_ENDPOINT
        asked.request_id = asked.service.house.mint_id()
    await recording.close()
    await (this.keep(answer) if refusal is None else this.fail(refusal))
    failed = Outcome.FAILED_UPSTREAM if answer.error else Outcome.COMPLETED
    site.figures.end(failed if refusal is None else refusal.outcome)


async def _rest(asked: Asked, refused: Refusal, missed: int) -> None:
    """Wait until it may be asked again; for limits of its tenant's own, outside, so that others may pass.

    `missed`: how often there was no endpoint.
    """
    site, wait_s = asked.site, refused.wait_s or 0.0
    if refused.outcome is Outcome.NO_ENDPOINT:
        wait_s = max(wait_s, 2.0 ** min(missed, DOUBLED_MAX))
    if refused.whose not in THEIR_OWN:
        await asyncio.sleep(wait_s)
        return
    if asked.tenant not in site.limited:
        site.jobs.set()
    own = Counter((asked.tenant,))
    site.limited += own
    try:
        await asyncio.sleep(wait_s)
    finally:
        site.limited -= own


async def _asked_once(this: Turn) -> tuple[Answer, Refusal | None]:
    """What the model answers, or why it does not."""
    try:
        await this.remember()
        return await this.ask(), None
    except EngineRefused as refused:
        return NO_ANSWER, Refusal(Outcome.ENGINE_REFUSED, refused.message)
    except Refusal as refused:
        return NO_ANSWER, refused


def _asked(site: Site, task: asyncio.Task[None], store: StateStore, job: JobRow) -> Asked:
    """The request again, of a client that has left already."""
    kept = _kept(job.request)
    identity = structs.replace(kept.identity, may_set=("band",))
    service = structs.replace(site.service, identify=lambda _fields: identity)
    fields = {name.encode(): value.encode("latin-1") for name, value in kept.fields.items()}
    head = RequestHead("POST", "", fields | {BAND: job.band.encode()}, http11=True, length=None)
    nobody = cast("Any", None)
    exchange = HttpExchange(nobody, nobody, "", head, bytes(kept.body), gone=True)
    return Asked(site, task, exchange, service.house.mint_id(), service, identity, store, [])
