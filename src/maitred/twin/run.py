"""Running a twin in this process: loop, signals, what it says of itself, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import time
from collections.abc import Callable

import uvloop
import zmq
from msgspec import Struct

from maitred.net.seams import Sockets
from maitred.sim.profile import Profile
from maitred.twin.kv_events import Form, KvEvents
from maitred.twin.twin import Options, Twin

CRASHED = 70
"""Exit code after a crash that was asked for."""


class Publish(Struct, frozen=True):
    """Where KV events go; see KvEvents."""

    endpoint: str
    replay: str | None = None
    topic: str = ""
    form: Form = "map"


class Place(Struct, frozen=True):
    """Where a twin listens and publishes. `exit_on_crash`: a crash ends the process, with CRASHED."""

    host: str
    port: int
    publish: Publish | None = None
    exit_on_crash: bool = False


def run(profile: Profile, place: Place, options: Options, say: Callable[[str], None]) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. Raises OSError where it cannot listen or publish."""
    return uvloop.run(_serve(profile, place, options, say))


async def _serve(profile: Profile, place: Place, options: Options, say: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    ends: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ends.put_nowait, 0)
    died = (lambda: ends.put_nowait(CRASHED)) if place.exit_on_crash else None
    twin = Twin(profile, Sockets(), time.monotonic, options, _publisher(profile, place.publish), died)
    try:
        host, port = await _start(twin, place)
        base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        say(_greeting(profile.name, twin.service.model, base))
        gc.freeze()
        return await ends.get()
    finally:
        twin.stop()


async def _start(twin: Twin, place: Place) -> tuple[str, int]:
    try:
        return await twin.start(place.host, place.port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(
            f"cannot listen at {place.host}:{place.port}: {why}; choose another with --port"
        ) from error


def _publisher(profile: Profile, publish: Publish | None) -> KvEvents | None:
    if publish is None:
        return None
    try:
        return KvEvents(
            publish.endpoint, profile.block_tokens, time.time, publish.replay, publish.topic, publish.form
        )
    except zmq.ZMQError as error:
        where = " or ".join(filter(None, (publish.endpoint, publish.replay)))
        raise OSError(f"cannot publish KV events at {where}: {error}; choose another") from error


def _greeting(profile: str, model: str, base: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Name three colours."}], "stream": True}
    return (
        f"a twin of {profile} serves {model} at {base}; try\n\n"
        f"  curl -N {base}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"    -d '{json.dumps(body)}'\n"
    )
