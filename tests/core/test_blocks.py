"""What engines tell of their caches: against a plain model of it, and what is expected beside it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import blocks as module
from maitred.core.blocks import SOON_S, Blocks
from maitred.core.words import Api, Endpoint, EndpointState, KvEvents, Leg, Request
from tests.core.places import endpoint, ticket

KEYS = tuple(range(100, 112))
NUMBERS = itertools.count(1)
A, B = endpoint("p/a"), endpoint("p/b")


def asked(keys: tuple[int, ...] = KEYS) -> Request:
    return Request("r", Api.CHAT, "m", "p", blocks=keys, block_tokens=16)


def leg(where: Endpoint, keys: tuple[int, ...] = KEYS, **more: Any) -> Leg:
    of = ticket(cached=more.pop("cached", None), blocks=keys, block_tokens=16)
    return Leg(next(NUMBERS), of, where, 0, 1, 0.0, **more)


def telling(*places: Endpoint) -> Blocks:
    blocks = Blocks()
    for place in places:
        blocks.hear(place, KvEvents(place.name, cleared=True))
    return blocks


def test_the_unbroken_beginning_counts_and_who_has_most_is_first() -> None:
    blocks = telling(A, B)
    blocks.hear(A, KvEvents(A.name, KEYS[:2] + KEYS[3:]))
    blocks.hear(B, KvEvents(B.name, KEYS[:5]))
    assert list(blocks.match(asked(), 0.0).items()) == [(B.name, 80), (A.name, 32)]
    blocks.hear(A, KvEvents(A.name, (KEYS[2],)))
    assert list(blocks.match(asked(), 0.0).items()) == [(A.name, 192), (B.name, 80)]
    blocks.hear(A, KvEvents(A.name, removed=(KEYS[0],)))
    assert blocks.match(asked(), 0.0) == {B.name: 80}


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 199, 200])
def test_long_prompts_are_counted_as_short_ones(length: int) -> None:
    keys = tuple(range(200))
    blocks = telling(A, B)
    blocks.hear(A, KvEvents(A.name, keys[:length] + keys[length + 1 :]))
    blocks.hear(B, KvEvents(B.name, keys[:100]))
    wanted = {A.name: length * 16, B.name: 1600}
    assert blocks.match(asked(keys), 0.0) == {name: tokens for name, tokens in wanted.items() if tokens}


def test_nothing_is_known_before_everything_was_told_nor_once_it_is_not_gone_by() -> None:
    blocks = Blocks()
    blocks.hear(A, KvEvents(A.name, KEYS))
    assert blocks.match(asked(), 0.0) == {}
    assert not blocks.told
    blocks.hear(A, KvEvents(A.name, KEYS, cleared=True))
    assert blocks.match(asked(), 0.0) == {A.name: 192}
    blocks.hear(A, KvEvents(A.name, cleared=True, lost=True))
    assert not blocks.told
    assert not len(blocks)


def test_what_was_missed_is_remembered_until_all_is_told_anew() -> None:
    blocks = telling(A)
    blocks.hear(A, KvEvents(A.name, KEYS, lost=True))
    assert blocks.told[A.name].lost
    assert blocks.match(asked(), 0.0) == {A.name: 192}
    blocks.hear(A, KvEvents(A.name, cleared=True))
    assert not blocks.told[A.name].lost


def test_another_engine_or_one_that_has_gone_has_nothing() -> None:
    here = endpoint("p/here")
    blocks = telling(here, B)
    blocks.hear(here, KvEvents(here.name, KEYS))
    blocks.renew(here)
    assert blocks.match(asked(), 0.0) == {here.name: 192}
    here.incarnation += 1
    blocks.renew(here)
    assert list(blocks.told) == [B.name]
    blocks.keep({A.name})
    assert not blocks.told
    assert not len(blocks)


def test_what_was_sent_is_expected_for_a_while() -> None:
    blocks = telling(A, B)
    blocks.hear(A, KvEvents(A.name, KEYS[:3]))
    blocks.sent(leg(A, cached={A.name: 48}), 10.0)
    assert blocks.match(asked(), 10.0) == {A.name: 192}
    assert blocks.match(asked(), 10.0 + SOON_S) == {A.name: 48}
    assert len(blocks) == 3


def test_what_is_read_late_is_expected_longer() -> None:
    blocks = telling(A)
    blocks.sent(leg(A, read_at=14.0), 10.0)
    assert blocks.match(asked(), 10.0 + SOON_S) == {A.name: 192}
    assert blocks.match(asked(), 14.0 + SOON_S) == {}


def test_what_is_told_of_stays_and_what_is_expected_twice_as_long_as_the_later() -> None:
    blocks = telling(A)
    blocks.sent(leg(A), 10.0)
    blocks.hear(A, KvEvents(A.name, KEYS[:4]))
    blocks.sent(leg(A, KEYS[:6]), 11.0)
    assert blocks.match(asked(), 10.0 + SOON_S) == {A.name: 96}
    assert blocks.match(asked(), 11.0 + SOON_S) == {A.name: 64}


def test_a_block_that_went_while_it_is_expected_is_still_expected() -> None:
    blocks = telling(A)
    blocks.hear(A, KvEvents(A.name, KEYS))
    blocks.sent(leg(A), 10.0)
    blocks.hear(A, KvEvents(A.name, removed=KEYS))
    assert blocks.match(asked(), 10.0) == {A.name: 192}
    assert blocks.match(asked(), 10.0 + SOON_S) == {}
    assert not len(blocks)


def test_nothing_is_expected_of_who_does_not_tell() -> None:
    blocks = telling(A)
    blocks.sent(leg(B), 10.0)
    assert blocks.match(asked(), 10.0) == {}


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS_MAX", 8)
    monkeypatch.setattr(module, "SOON_MAX", 6)
    blocks = telling(A)
    blocks.hear(A, KvEvents(A.name, KEYS))
    assert blocks.match(asked(), 0.0) == {A.name: 128}
    for first in range(0, 90, 3):
        blocks.sent(leg(A, tuple(range(first, first + 3))), 0.0)
    assert len(blocks) == 8 + 9
    blocks.hear(A, KvEvents(A.name, removed=KEYS[:1]))
    blocks.hear(A, KvEvents(A.name, stored=KEYS[:1]))
    assert blocks.match(asked(), 0.0) == {A.name: 128}


steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "remove", "clear", "lose", "send", "send", "wait"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(steps)
def test_as_a_plain_model_has_it(acts: list[tuple[str, int, int, int]]) -> None:
    places = [Endpoint(f"p/{n}", "p", "", state=EndpointState.READY) for n in range(4)]
    chains = [tuple(range(10 * n, 10 * n + 6)) for n in range(4)]
    blocks = Blocks()
    told: dict[str, set[int]] = {}
    soon: dict[str, dict[int, float]] = {}
    now = 0.0
    for act, who, which, count in acts:
        place, sent = places[who], chains[which][:count]
        name = place.name
        match act:
            case "store":
                blocks.hear(place, KvEvents(name, sent))
                if name in told:
                    told[name].update(sent)
                    for key in sent:
                        soon[name].pop(key, None)
            case "remove":
                blocks.hear(place, KvEvents(name, removed=sent[-1:]))
                told.get(name, set()).discard(sent[-1])
            case "clear":
                blocks.hear(place, KvEvents(name, sent, cleared=True))
                told[name], soon[name] = set(sent), {}
            case "lose":
                blocks.hear(place, KvEvents(name, cleared=True, lost=True))
                told.pop(name, None)
                soon.pop(name, None)
            case "send":
                blocks.sent(leg(place, sent), now)
                if name in soon:
                    soon[name].update(dict.fromkeys(sent, now + SOON_S))
            case _:
                now += count / 2
        for chain in chains:
            wanted = {}
            for known, keys in told.items():
                expected = {key for key, until in soon[known].items() if until > now}
                there = next((at for at, key in enumerate(chain) if key not in keys | expected), 6)
                if there:
                    wanted[known] = there * 16
            found = blocks.match(asked(chain), now)
            assert found == wanted
            assert list(found.values()) == sorted(found.values(), reverse=True)
