"""Where an engine publishes, and which engine a topic names."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from maitred.config.kinds import PORTS


def events_at(url: str, port: int | None, offset: int | None, rank: int = 0) -> str:
    """ZMQ's address of a rank of the engine at `url`: a port of its host, or so far above its own."""
    parts = urlsplit(url)
    base = port if port is not None else own_port(url) + (offset or 0)
    host = parts.hostname or ""
    return f"tcp://{f'[{host}]' if ':' in host else host}:{base + rank}"


def own_port(url: str) -> int:
    """The port an engine serves at."""
    parts = urlsplit(url)
    return parts.port or PORTS[parts.scheme]


def place_of(url: str) -> str:
    """An engine's host and port, as a topic names them."""
    return events_at(url, own_port(url), None).removeprefix("tcp://")


def topic_place(topic: bytes) -> str:
    """The host and port that a topic names (`kv@HOST:PORT@MODEL`); "" where it names none."""
    kind, _, rest = topic.decode(errors="replace").partition("@")
    place = rest.partition("@")[0]
    return place if kind == "kv" and place.rpartition(":")[2].isdecimal() and ":" in place else ""


def named_by(topic: bytes, urls: Iterable[str]) -> str | None:
    """Which of these engines a topic names; None where it names none or several.

    Its host may be written in another way than ours, so a port is enough where only one engine has it; and
    where there is only one engine, a topic need not name it.
    """
    urls = dict.fromkeys(urls)
    place = topic_place(topic)
    for url in urls:
        if place == place_of(url):
            return url
    port = place.rpartition(":")[2]
    fitting = [url for url in urls if not place or str(own_port(url)) == port]
    return fitting[0] if len(fitting) == 1 else None
