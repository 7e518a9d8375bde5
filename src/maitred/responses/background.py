"""Responses that nobody waits for: queued in the store, taken by any gateway, a few at a time.

Those that wait, wait in the store, and so survive us; only a few of them are in the core's queues at once.
The lease of who makes one is renewed with those of all turns; when it lapses another is given the job.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from maitred.core.outcome import Outcome
from maitred.door.read import read
from maitred.responses.asked import Asked
from maitred.responses.call import inner_head
from maitred.responses.follow import follow
from maitred.responses.ids import RESPONSE, mint
from maitred.responses.job import QUEUED, keep, make, told_at_once
from maitred.responses.model import dialect_of, written
from maitred.responses.repeat import repeat, see_same
from maitred.responses.site import Site
from maitred.responses.telling import Telling
from maitred.responses.turn import Turn
from maitred.store.rows import StoreError
from maitred.store.state_rows import NewJob, Repeated, ResponseRow
from maitred.wire.responses import response
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events


async def submit(asked: Asked, create: Create) -> Outcome:
    """Queue a turn. What can be known to be wrong with it is said now. Raises Refusal, StateConflict."""
    site, numbers = asked.site, Events()
    made = response.begin(create, mint(RESPONSE), int(site.wall()), status=QUEUED)
    this = Turn(asked, create, made, numbers, Telling(asked.exchange))
    this.record.adopt()  # it takes its turn with its place in the queue
    await this.remember()
    now_ms = site.now_ms()
    expires_ms = now_ms + int(site.settings.background.expires_s * 1000)
    band = await _band(asked, create, this)
    if asked.exchange.gone:  # and its body with it
        return Outcome.CLIENT_GONE
    job = NewJob(band, keep(asked), expires_ms)
    most, own_most = site.settings.background.waiting_max, site.kept(asked.tenant).waiting_max
    await site.queue.count(asked.store, asked.service.house.clock())
    try:
        with site.queue.place(asked.tenant, most, own_most):
            await asked.store.submit(this.record.new(now_ms), job, now_ms)
    except Repeated as before:
        return await _repeat(asked, create, before.row)
    site.jobs.set()
    if create.said.stream:
        began = told_at_once(made, numbers)
        return await follow(asked, made.id, numbers.sequence - 1, began)
    asked.respond(made.encode())
    return Outcome.COMPLETED


async def _repeat(asked: Asked, create: Create, row: ResponseRow) -> Outcome:
    """Answer who comes again with the same idempotency key."""
    if not create.said.stream:
        return await repeat(asked, create, row)
    see_same(asked, row)
    return await follow(asked, row.id, -1)


async def _band(asked: Asked, create: Create, this: Turn) -> str:
    """The band it waits in. The door judges it as if it came now, so that what it refuses is refused now."""
    service, said = asked.service, asked.site.bands.get(create.said.service_tier or "", "")
    dialect = dialect_of(asked, create)
    head = inner_head(asked.exchange.head, this.session(), said, dialect.path)
    body = await written(asked, dialect, create, this.said())
    who = asked.service_in(said).identify(head.fields)
    order = read(head, body, asked.request_id, service.models, service.rules, who, service.tenants)
    return service.house.gateway.band_of(order.request, order.identity).name


class Background:
    """Takes jobs, and has them made. `run` until cancelled."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._making: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take jobs, as many as may be made at once."""
        while True:
            self._site.jobs.clear()
            try:
                await self._take()
            except StoreError as error:
                self._site.memory.failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._site.settings.background.period_s):
                    await self._site.jobs.wait()

    async def _take(self) -> None:
        site, gateway = self._site, self._site.service.house.gateway
        store = site.memory.opened
        if store is None:
            return
        await store.check()  # what cannot be kept is not made
        await site.queue.count(store, site.service.house.clock())
        site.figures.waiting = site.queue.waiting
        most = site.settings.background.running_max
        for band in gateway.settings.bands:
            waiting = min(site.limited.total(), most)
            room = most + waiting - len(self._making)
            if room <= 0 or not gateway.settings.accepting:
                return
            now_ms = site.now_ms()
            limited = list(site.limited)
            jobs = await store.take(band.name, room, now_ms, now_ms + site.lease_ms, limited)
            site.memory.worked()
            site.queue.left(job.response.tenant for job in jobs)
            for job in jobs:
                site.stop(job.response.id)  # an earlier run of ours, that was out for longer than its lease
                task = asyncio.create_task(make(site, store, job))
                self._making.add(task)
                task.add_done_callback(self._made)
                site.figures.making = len(self._making)

    def _made(self, task: asyncio.Task[None]) -> None:
        self._making.discard(task)
        self._site.figures.making = len(self._making)
        self._site.jobs.set()
