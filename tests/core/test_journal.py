"""Journals: what is recorded replays to the same answers, and what was tampered with is found."""

from __future__ import annotations

import json

import msgspec
import pytest

from maitred.core.journal import FORMAT, Head, Mismatch, RecordingGateway, replay
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Abilities, Facts, PoolSettings, Probed, Settings, Usage
from tests.core.hall import Hall


def evening() -> Hall:
    """One evening in which every verb is said and every effect but Drop happens."""
    hall = Hall(Settings(default=PoolSettings(cap=1, queue_requests_max=1, queue_wait_s=5.0)))
    hall.open(p="ab")
    hall.gateway.update(Probed("p/b:1", True, Facts("vllm", "m", 2048)), hall.now)
    first, second = hall.seat(), hall.seat()
    hall.gateway.sent(first, hall.now)
    hall.gateway.sent(second, hall.now + 0.1, "p/b:1")
    waiting = hall.accept()
    hall.release()
    with pytest.raises(Refusal):
        hall.accept()
    hall.now += 1 / 3
    assert hall.fail(first, FailureKind.STATUS_5XX)
    assert hall.seated() == [waiting]
    hall.gateway.answered(second, hall.now)
    hall.gateway.progress(second, 16, hall.now)
    hall.gateway.leave(second, Usage(5, 0, 20), hall.now)
    hall.gateway.finish(second.ticket, Outcome.COMPLETED, Usage(5, 0, 20), hall.now)
    assert hall.seated() == [first.ticket]
    late = hall.accept()
    hall.release()
    hall.now = late.queue_deadline
    hall.release()
    hall.set(Settings(accepting=False))
    with pytest.raises(Refusal):
        hall.accept()
    hall.address(p="a")
    return hall


def entries(hall: Hall) -> list[list[object]]:
    return [json.loads(line) for line in hall.lines[1:]]


def test_an_evening_replays_to_the_same_answers() -> None:
    hall = evening()
    verbs = {entry[0] for entry in entries(hall)}
    assert verbs == {
        "accept", "release", "sent", "answered", "progress", "leave", "fail", "finish", "update"
    }  # fmt: skip
    assert replay(hall.lines) == len(hall.lines) - 1


def test_a_recording_gateway_decides_as_any_other() -> None:
    """The journal is of one seed and replays with it: the waits it tells are drawn from there."""
    assert evening().lines == evening().lines
    other = Hall(Settings(default=PoolSettings(cap=1, queue_requests_max=0)), seed=8)
    other.open(p="a")
    other.seat()
    with pytest.raises(Refusal):
        other.accept()
    assert replay(other.lines) == len(other.lines) - 1
    head = msgspec.json.decode(other.lines[0], type=Head)
    other.lines[0] = msgspec.json.encode(msgspec.structs.replace(head, seed=9))
    with pytest.raises(Mismatch, match="accept"):
        replay(other.lines)


def test_refusals_are_on_record() -> None:
    told = [entry[3] for entry in entries(evening()) if entry[0] == "accept" and entry[3] is not None]
    assert [answer[0] for answer in told if isinstance(answer, list)] == ["queue_full", "draining"]


def test_effects_name_tickets_by_id_and_legs_by_number() -> None:
    effects = [entry[3] for entry in entries(evening()) if entry[0] == "release"]
    assert effects[0] == [["go", "r1", [[1, "p/a:1", 0]]]]
    assert [entry[:3] for entry in entries(evening()) if entry[0] == "sent"] == [
        ["sent", 100.0, [1, None]],
        ["sent", 100.1, [2, "p/b:1"]],
    ]


def test_calls_without_an_effect_are_not_recorded() -> None:
    hall = Hall()
    hall.open(p="a")
    before = len(hall.lines)
    assert hall.release() == []
    assert len(hall.lines) == before


def test_a_journal_holds_all_a_replay_depends_on() -> None:
    """A release that answered nothing may still have started a blocked head's patience."""
    hall = Hall(Settings(default=PoolSettings(cap=2)))
    hall.open(p="ab", q="c")
    legs = [hall.seat() for _ in range(4)]
    assert hall.fail(legs[0])
    assert hall.release() == []  # the other endpoint is full
    hall.now += 2.5
    hall.accept()
    hall.release()
    hall.seat("q")
    assert replay(hall.lines) == len(hall.lines) - 1


TAMPERED = {
    "the leg's endpoint": ("release", [["go", "r1", [[1, "p/b:1", 0]]]]),
    "an effect too many": ("release", []),
    "a retry denied": ("fail", False),
    "another outcome": ("finish", "client_gone"),
    "a refusal forgotten": ("accept", ["queue_full", 1.0]),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_line_is_named(name: str) -> None:
    verb, result = TAMPERED[name]
    lines = evening().lines
    number = next(i for i, line in enumerate(lines[1:], 1) if json.loads(line)[0] == verb)
    entry = json.loads(lines[number])
    lines[number] = json.dumps([*entry[:3], result]).encode()
    with pytest.raises(Mismatch, match=f"line {number + 1}: {verb}: recorded") as caught:
        replay(lines)
    assert caught.value.line == number + 1


@pytest.mark.parametrize("left_out", ["accept", "fail", "update"])
def test_a_missing_line_is_noticed(left_out: str) -> None:
    lines = evening().lines
    number = next(i for i, line in enumerate(lines) if i and json.loads(line)[0] == left_out)
    del lines[number]
    with pytest.raises((Mismatch, KeyError)):
        replay(lines)


def test_another_format_is_refused() -> None:
    lines = evening().lines
    head = json.loads(lines[0])
    lines[0] = json.dumps(head | {"format": FORMAT + 1}).encode()
    with pytest.raises(ValueError, match=f"journal format {FORMAT + 1}, this version reads {FORMAT}"):
        replay(lines)


@pytest.mark.parametrize("line", [b'["dance",1.0,[],null]', b'["release",1.0,[1],null]'])
def test_an_unknown_verb_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="no verb"):
        replay([*evening().lines, line])


@pytest.mark.parametrize("lines", [[], [b""], [b"{}"], [b'["accept",1.0,[],null]']])
def test_what_is_no_journal_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(ValueError):
        replay(lines)


def test_the_head_comes_back_as_it_went() -> None:
    settings = Settings(3, {"p": PoolSettings(1, 2, 3, 4.5)}, PoolSettings(cap=9), 5, accepting=False)
    lines: list[bytes] = []
    RecordingGateway(settings, Abilities(retry=False), 42, lambda _: None, lines.append)
    assert lines[0].endswith(b"\n")
    head = msgspec.json.decode(lines[0], type=Head)
    assert head == Head(FORMAT, 42, settings, Abilities(retry=False))
    assert replay(lines) == 0
