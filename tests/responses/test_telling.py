"""What a client hears of a stream: nothing before its id may be known, and no faster than it listens."""

from __future__ import annotations

from typing import Any

from maitred.responses.telling import Telling


class Client:
    """An exchange that only notes."""

    def __init__(self) -> None:
        self.gone = False
        self.flow: Any = None
        self.told: list[object] = []

    def start(self, status: int, headers: bytes, length: int | None, body: bytes) -> None:
        self.told += [status, headers, length, body]

    def write(self, body: bytes) -> None:
        self.told.append(body)

    def end(self) -> None:
        self.told.append("end")


class Engine:
    """A flow that only notes."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def drop(self) -> None:
        self.told.append("drop")


def telling() -> tuple[Telling, Client]:
    client: Any = Client()
    return Telling(client), client


def test_what_comes_before_the_id_may_be_known_is_held() -> None:
    told, client = telling()
    told.begin(b"h")
    told.say(b"1")
    told.say(b"2")
    assert (told.said, client.told) == (False, [])
    told.open()
    assert (told.said, client.told) == (True, [200, b"h", None, b"12"])
    told.say(b"3")
    told.end(b"4")
    assert client.told[4:] == [b"3", b"4", "end"]


def test_nothing_is_said_to_who_has_left() -> None:
    told, client = telling()
    told.open()
    client.gone = True
    told.say(b"1")
    assert not told.said
    client.gone = False
    told.say(b"2")
    client.gone = True
    told.say(b"3")
    told.end(b"4")
    assert client.told == [200, b"", None, b"2"]


def test_a_slow_client_slows_the_engine_that_answers_now() -> None:
    told, client = telling()
    told.open()
    told.say(b"1")
    client.flow.pause()  # nobody feeds it at the moment
    engine = Engine()
    told.source = engine
    client.flow.pause()
    client.flow.resume()
    client.flow.pause()
    client.flow.drop()  # it is not waited for any more
    assert engine.told == ["pause", "resume", "pause", "resume"]
