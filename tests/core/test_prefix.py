"""The index of prefixes beside a plain model of it, and how much of it is remembered."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.prefix import BYTE_ENDS, FADES, TOKENS_GUESS, Prefixes
from maitred.core.words import Api, Endpoint, Facts, Identity, Leg, Request, Ticket

NAMES = "abcd"
BLOCK = 16

Path = list[int]


def keys_of(path: Path) -> tuple[int, ...]:
    """Chained keys: equal ones mean equal beginnings."""
    return tuple(accumulate(path, lambda key, piece: (1_000_003 * key + piece + 1) % (1 << 61), initial=0))[
        1:
    ]


def blocks(path: Path) -> Request:
    """A prompt known by its tokens, these blocks."""
    tokens = BLOCK * len(path) + 5
    return Request("r", Api.CHAT, "m", "p", prompt_tokens=tokens, blocks=keys_of(path), block_tokens=BLOCK)


def text(path: Path, tokens: int) -> Request:
    """A prompt known by its bytes only; so many tokens in its last piece and all before."""
    body_bytes = BYTE_ENDS[len(path) - 1] if path else 100
    return Request("r", Api.CHAT, "m", "p", body_bytes=body_bytes, prompt_tokens=tokens, prefix=keys_of(path))


def endpoint(name: str, **more: object) -> Endpoint:
    return Endpoint(name, "p", "", **more)  # type: ignore[arg-type]


def leg(request: Request, place: Endpoint) -> Leg:
    """It has this prompt."""
    return Leg(0, Ticket(request, Identity(), 0.0, 30.0), place, place.incarnation, 1, 0.0)


def came_and_went(prefixes: Prefixes, request: Request, place: Endpoint, **more: bool) -> None:
    """The endpoint was sent it, and has answered."""
    prefixes.sent(request, place, **more)
    prefixes.left(request, place, place.incarnation)


class Plain:
    """The same by its definition: of each endpoint who uses which key, and those nobody uses."""

    def __init__(self) -> None:
        self.users: dict[str, list[int]] = {name: [] for name in NAMES}
        self.idle: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
        self.begun: dict[str, set[int]] = {name: set() for name in NAMES}

    def sent(self, request: Request, place: Endpoint, memory: float, *, begins: bool) -> None:
        keys, name = request.blocks or request.prefix, place.name
        if not keys:
            return
        if begins and (new := [key for key in keys if key not in self.keys(name)]):
            self.begun[name].add(new[0])
        self.users[name] += keys
        self.idle[name] = [one for one in self.idle[name] if one[0] not in keys]
        cache = place.facts.kv_tokens or 0
        room = memory * cache if memory else cache - place.reserved
        if memory:
            self.left(request, name)
        for _ in range(FADES + 2 * len(keys)):
            if sum(tokens for _, tokens in self.idle[name]) > room:
                del self.idle[name][:1]
        self.begun[name] &= self.keys(name)

    def left(self, request: Request, name: str) -> None:
        keys = request.blocks or request.prefix
        whole, end = self.tokens(request, len(keys)), BYTE_ENDS[len(keys) - 1]
        for place, key in reversed([*enumerate(keys)]):
            if key in self.users[name]:
                self.users[name].remove(key)
                if key not in self.users[name]:
                    piece = BYTE_ENDS[place] - (BYTE_ENDS[place - 1] if place else 0)
                    tokens = BLOCK if request.blocks else piece * whole // end
                    self.idle[name].append((key, max(1, tokens)))

    def keys(self, name: str) -> set[int]:
        return {*self.users[name], *(key for key, _ in self.idle[name])}

    def forget(self, name: str) -> None:
        self.users[name], self.idle[name], self.begun[name] = [], [], set()

    def match(self, request: Request) -> dict[str, int]:
        keys, cached = request.blocks or request.prefix, {}
        for name in NAMES:
            have = self.keys(name)
            length = next((place for place, key in enumerate(keys) if key not in have), len(keys))
            if length:
                cached[name] = self.tokens(request, length)
        return cached

    @staticmethod
    def tokens(request: Request, keys: int) -> int:
        if request.blocks:
            return BLOCK * keys
        end = BYTE_ENDS[keys - 1] if keys else 0
        if request.body_bytes > 16 * request.prompt_tokens:  # most of it is media
            return min(request.prompt_tokens, end // 4)
        return min(request.prompt_tokens, end * request.prompt_tokens // (request.body_bytes or 1))


PATHS = st.lists(st.integers(0, 1), max_size=9)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        PATHS,
        st.booleans(),
        st.sampled_from(["send", "send", "send", "end", "end", "end", "forget", "return"]),
    ),
    max_size=60,
)


@given(
    STEPS, st.sampled_from([40, 100, 300, 10_000]), st.sampled_from([0, 7, 1000]), st.sampled_from([0, 1, 2])
)
@settings(max_examples=200)
def test_it_knows_what_a_plain_model_does(
    steps: list[tuple[str, Path, bool, str]], cache: int, text_tokens: int, memory: int
) -> None:
    """By blocks, or by bytes where there are `text_tokens`."""
    prefixes, plain = Prefixes(), Plain()
    prefixes.memory = memory
    places = {name: endpoint(name, facts=Facts(kv_tokens=cache)) for name in NAMES}
    legs: dict[str, list[Leg]] = {name: [] for name in NAMES}
    for name, path, begins, what in steps:
        request, place = text(path, text_tokens) if text_tokens else blocks(path), places[name]
        if what == "forget":
            prefixes.forget(name)
            plain.forget(name)
        elif what == "end":
            if legs[name]:
                over = legs[name].pop(0)
                place.reserved -= over.ticket.request.prompt_tokens
                prefixes.left(over.ticket.request, place, over.incarnation)
                if over.incarnation == place.incarnation:
                    plain.left(over.ticket.request, name)
        elif path:
            if what == "return":  # another engine is there: it has nothing
                place.incarnation += 1
                plain.forget(name)
            legs[name].append(leg(request, place))
            place.reserved += request.prompt_tokens
            prefixes.sent(request, place, begins=begins)
            plain.sent(request, place, memory, begins=begins)
            assert place.begun == len(plain.begun[name])
        cached = prefixes.match(request)
        assert cached == plain.match(request)
        assert list(cached.values()) == sorted(cached.values(), reverse=True)
    assert len(prefixes) == len({key for name in NAMES for key in plain.keys(name)})


def test_the_longest_comes_first_whoever_was_sent_it() -> None:
    prefixes = Prefixes()
    for name, length in (("a", 2), ("b", 5), ("c", 5), ("d", 3)):
        prefixes.sent(blocks([1] * length), endpoint(name))
    cached = prefixes.match(blocks([1] * 4 + [0] * 4))
    assert list(cached.items()) == [("b", 64), ("c", 64), ("d", 48), ("a", 32)]


def test_a_prompt_nobody_has_the_beginning_of_is_nowhere() -> None:
    prefixes = Prefixes()
    assert prefixes.match(blocks([])) == {}
    prefixes.sent(blocks([0, 1]), endpoint("a"))
    assert prefixes.match(blocks([1, 1])) == {}


def test_of_one_prompt_the_last_is_forgotten_first_and_no_more_at_once_than_a_few() -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=1))
    came_and_went(prefixes, blocks([1] * 20), place)
    prefixes.sent(blocks([0]), place)
    assert prefixes.match(blocks([1] * 20)) == {"a": (20 - FADES - 2) * BLOCK}
    prefixes.sent(blocks([2]), place)
    assert prefixes.match(blocks([1] * 20)) == {}


def test_what_was_asked_for_again_is_kept() -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=50 * BLOCK))
    for number in range(40):
        came_and_went(prefixes, blocks([1] * 3), place)
        came_and_went(prefixes, blocks([10 + number] * 20), place)
        assert prefixes.match(blocks([1] * 3)) == {"a": 3 * BLOCK}
    assert prefixes.match(blocks([10] * 3)) == {}


def test_what_runs_is_not_forgotten_and_takes_the_place_of_what_does_not() -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=10 * BLOCK))
    prefixes.sent(blocks([1] * 5), place)
    came_and_went(prefixes, blocks([2] * 5), place)
    place.reserved = 6 * BLOCK
    prefixes.sent(blocks([3]), place)
    assert prefixes.match(blocks([1] * 5)) == {"a": 5 * BLOCK}
    assert prefixes.match(blocks([2] * 5)) == {"a": 4 * BLOCK}


def test_how_long_it_is_unused_counts_from_its_end() -> None:
    """It was sent first, and is there when what came and went meanwhile is gone."""
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=6 * BLOCK))
    prefixes.sent(blocks([1] * 5), place)
    came_and_went(prefixes, blocks([2] * 5), place)
    prefixes.left(blocks([1] * 5), place, place.incarnation)
    prefixes.sent(blocks([3]), place)
    assert prefixes.match(blocks([1] * 5)) == {"a": 5 * BLOCK}
    assert prefixes.match(blocks([2] * 5)) == {"a": BLOCK}


def test_who_goes_by_what_was_sent_alone_sees_no_ends_and_no_load() -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=5 * BLOCK), reserved=10**6)
    prefixes.memory = 2
    prefixes.sent(blocks([1] * 5), place)
    prefixes.sent(blocks([2] * 5), place)
    prefixes.left(blocks([1] * 5), place, place.incarnation)
    assert prefixes.match(blocks([1] * 5)) == {"a": 5 * BLOCK}
    prefixes.sent(blocks([3]), place)
    assert prefixes.match(blocks([1] * 5)) == {"a": 4 * BLOCK}


def test_the_end_of_what_was_begun_before_it_was_asked_for_is_nothing() -> None:
    prefixes, place = Prefixes(), endpoint("a")
    prefixes.left(blocks([1]), place, place.incarnation)
    prefixes.sent(blocks([2]), place)
    prefixes.left(blocks([1]), place, place.incarnation)
    assert len(prefixes) == 1


def test_two_hundred_and_fifty_six_endpoints_are_told_apart_and_places_are_used_again() -> None:
    prefixes = Prefixes()
    places = [endpoint(f"e{number}") for number in range(256)]
    for number, place in enumerate(places):
        prefixes.sent(blocks([1] * (1 + number % 40)), place)
    cached = prefixes.match(blocks([1] * 40))
    assert cached == {place.name: BLOCK * (1 + number % 40) for number, place in enumerate(places)}
    for turn in range(300):  # engines come and go under new names
        prefixes.forget(places[turn % 256].name)
        places[turn % 256] = endpoint(f"f{turn}")
        prefixes.sent(blocks([1]), places[turn % 256])
    assert max(held.bit for held in prefixes._held.values()) == 1 << 255
    assert len(prefixes.match(blocks([1]))) == 256


def test_a_new_incarnation_has_nothing_of_the_old_one() -> None:
    prefixes, place = Prefixes(), endpoint("a")
    prefixes.sent(blocks([1] * 5), place, begins=True)
    place.incarnation += 1
    prefixes.sent(blocks([0]), place)
    assert prefixes.match(blocks([1] * 5)) == {}
    assert (place.begun, len(prefixes)) == (0, 1)


def test_to_forget_one_leaves_the_others() -> None:
    prefixes = Prefixes()
    for name in "ab":
        prefixes.sent(blocks([1] * 5), endpoint(name))
    prefixes.forget("a")
    prefixes.forget("nobody")
    assert prefixes.match(blocks([1] * 5)) == {"b": 5 * BLOCK}
    prefixes.forget("b")
    assert len(prefixes) == 0


# -- of bytes ---------------------------------------------------------------------------------------


def test_keys_of_bytes_stand_for_the_tokens_of_their_part_of_the_body() -> None:
    prefixes = Prefixes()
    prefixes.sent(text([1] * 8, 1024), endpoint("a"))
    assert prefixes.match(text([1] * 8, 1024)) == {"a": 1024}
    assert prefixes.match(text([1] * 4 + [0] * 4, 1024)) == {"a": 512}
    longer = Request("r", Api.CHAT, "m", "p", body_bytes=8192, prompt_tokens=800, prefix=keys_of([1] * 12))
    assert prefixes.match(longer) == {"a": 400}


def test_a_body_that_says_less_than_its_prompt_has_no_more_cached_than_that() -> None:
    prefixes = Prefixes()
    small = Request("r", Api.CHAT, "m", "p", body_bytes=100, prompt_tokens=50, prefix=keys_of([1] * 3))
    prefixes.sent(small, endpoint("a"))
    assert prefixes.match(small) == {"a": 50}


# -- what a seat does to it -------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize(("facts", "cache"), [(Facts(kv_tokens=1024), 1024), (Facts(), TOKENS_GUESS)])
def test_an_endpoint_is_kept_in_mind_for_so_many_times_its_cache(
    memory: int, facts: Facts, cache: int
) -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=facts)
    prefixes.memory = memory
    whole, prompt, most = cache * (memory or 1), 2 * BLOCK, 0
    for number in range(2 * whole // prompt):
        request = blocks([number, 0])
        prefixes.sent(request, place, begins=True)
        prefixes.left(request, place, place.incarnation)
        most = max(most, len(prefixes) * BLOCK)
    assert whole <= most <= whole + 2 * prompt


def test_who_begins_is_counted_once() -> None:
    prefixes, place = Prefixes(), endpoint("a")
    prefixes.sent(blocks([1, 1]), place, begins=True)
    assert place.begun == 1
    prefixes.sent(blocks([1, 1, 0]), place)
    prefixes.sent(blocks([1, 1]), place, begins=True)
    assert place.begun == 1


def test_what_is_remembered_is_bounded_however_many_prompts_there_are() -> None:
    """Prompts of 2,000 tokens nobody has asked before: what is kept stands still when it is full."""
    prefixes, places = Prefixes(), [endpoint(name, facts=Facts(kv_tokens=40_000)) for name in NAMES]
    full = len(places) * 40_000 * 12 // 2000  # each has 12 keys
    for number in range(4000):
        request = Request(
            "r", Api.CHAT, "m", "p", body_bytes=8192, prompt_tokens=2000,
            prefix=tuple(range((number << 8) + 1, (number << 8) + 13)),
        )  # fmt: skip
        place = places[number % len(places)]
        prefixes.sent(request, place, begins=True)
        prefixes.left(request, place, place.incarnation)
        held = prefixes._held[place.name]
        assert not held.users
        assert place.begun == sum(key in held.beginnings for key in held.idle) == len(held.beginnings)
        assert number < 1000 or full - 12 <= len(prefixes) <= full + 2 * 12 * len(places)


def test_who_is_not_kept_is_forgotten() -> None:
    prefixes = Prefixes()
    for name in "ab":
        prefixes.sent(blocks([1] * 3), endpoint(name))
    prefixes.keep({"b"})
    assert prefixes.match(blocks([1] * 3)) == {"b": 3 * BLOCK}


def test_keys_that_stand_for_no_tokens_are_forgotten_too() -> None:
    prefixes, place = Prefixes(), endpoint("a", facts=Facts(kv_tokens=100))
    for number in range(300):
        keys = tuple(number * 100 + key for key in range(60))
        request = Request("r", Api.CHAT, "m", "p", body_bytes=10**6, prompt_tokens=1, prefix=keys)
        came_and_went(prefixes, request, place)
    assert len(prefixes) <= 500


def test_another_engine_at_the_same_address_has_nothing() -> None:
    prefixes, place = Prefixes(), endpoint("a")
    prefixes.sent(blocks([1] * 5), place, begins=True)
    prefixes.renew(place)
    assert prefixes.match(blocks([1] * 5))
    place.incarnation += 1
    prefixes.renew(place)
    assert not prefixes.match(blocks([1] * 5))
    assert place.begun == 0
