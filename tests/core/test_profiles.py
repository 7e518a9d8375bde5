"""Policies made of pieces: never one that is left out, none exactly if none is left, and each by example."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.chooser import PREFIXED, ROUTING, least_loaded
from maitred.core.filters import FILTERS, able
from maitred.core.pickers import PICKERS
from maitred.core.profiles import RECIPES, Profile, profile
from maitred.core.recipe import Piece, Recipe
from maitred.core.saturation import SATURATION
from maitred.core.scorers import SCORERS
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Settings, Ticket
from tests.core.places import LIMITS, endpoint, endpoints, ticket

PLACES = st.lists(
    st.builds(
        endpoint,
        st.sampled_from(["p/a", "p/b", "p/c", "p/d"]),
        state=st.sampled_from([EndpointState.READY] * 4 + [*EndpointState]),
        running=st.integers(0, 4),
        turn=st.integers(0, 9),
        cold=st.integers(0, 9),
        unread=st.integers(0, 10**6),
        share=st.sampled_from([1.0, 0.5]),
        slowness=st.sampled_from([1.0, 5.0]),
        facts=st.sampled_from([{}, {"adapters": ("law",)}, {"context_tokens": 900, "adapters": ("law",)}]),
        load=st.sampled_from([None, {"waiting": 9, "kv_use": 0.5}]),
    ),
    max_size=5,
)
TICKETS = st.builds(
    ticket,
    st.integers(0, 2000),
    cached=st.dictionaries(st.sampled_from(["p/a", "p/b", "p/e"]), st.integers(0, 2000)),
    excluded=st.sampled_from([(), ("p/a",)]),
    adapter=st.sampled_from(["", "law"]),
    session=st.sampled_from(["", "s", "t"]),
    prefix=st.sampled_from([(), (1, 2), (1, 2, 3, 4, 5)]),
)
PIECES = st.builds(
    Recipe,
    st.lists(st.sampled_from(sorted(FILTERS)).map(Piece), max_size=3).map(tuple),
    st.lists(st.builds(Piece, st.sampled_from(sorted(SCORERS)), weight=st.floats(0, 9)), max_size=3).map(
        tuple
    ),
    st.sampled_from(sorted(PICKERS)).map(Piece),
)
FEW = PoolSettings(cap=4)


@given(st.sampled_from(ROUTING.names) | PIECES, PLACES, TICKETS)
def test_only_one_that_no_filter_leaves_out_and_none_exactly_if_none_is_left(
    routing: str | Recipe, places: list[Endpoint], who: Ticket
) -> None:
    recipe = RECIPES.get(routing, Recipe()) if isinstance(routing, str) else routing
    left: Any = able(places, who)
    named = [piece.name for piece in recipe.filters]
    for piece in recipe.filters if "room" in named else (Piece("room"), *recipe.filters):
        left = FILTERS[piece.name](**dict(piece.options)).keep(left, who, FEW, 1.0) if left else ()
    chosen = ROUTING[routing](places, who, FEW, 1.0)
    if not left:
        assert chosen is None
    else:
        assert chosen is not None
        assert any(chosen is each for each in left)
        assert not SATURATION[FEW.saturation](chosen, who, FEW, 1.0)
    assert ROUTING[routing](places, who, FEW, 1.0) is chosen


@given(PLACES, TICKETS)
def test_least_requests_made_of_pieces_is_the_fast_one(places: list[Endpoint], who: Ticket) -> None:
    made, fast = Profile(Recipe(scorers=(Piece("least-requests"),))), least_loaded
    chosen, other = made(places, who, FEW, 1.0), fast(places, who, FEW, 1.0)
    assert (chosen is None) is (other is None)
    if chosen is not None and other is not None:
        assert (chosen.running, chosen.share, chosen.slowness, chosen.turn) == (
            *(other.running, other.share, other.slowness, other.turn),
        )


def placed(routing: str | Recipe, who: Ticket, **of: dict[str, Any]) -> str | None:
    """Where it goes, given what there is of endpoints a, b, c."""
    places = [endpoint(name, **of.get(name, {})) for name in "abc"]
    chosen = ROUTING[routing](places, who, LIMITS, 0.0)
    return chosen.name if chosen is not None else None


@pytest.mark.parametrize(
    ("routing", "who", "of", "where"),
    [
        ("prefix-affinity", {"cached": {"b": 500}}, {"b": {"running": 60}}, "b"),
        ("prefix-affinity", {"cached": {"b": 500, "c": 500}}, {"b": {"running": 60}}, "c"),
        ("token-load", {}, {"a": {"unread": 10}, "b": {"unread": 5}, "c": {"unread": 20}}, "b"),
        ("token-load", {"cached": {"c": 900}}, {"c": {"unread": 20}}, "c"),
        (
            "kv-use",
            {},
            {each: {"load": {"kv_use": use}} for each, use in (("a", 0.5), ("b", 0.1), ("c", 0.2))},
            "b",
        ),
        ("queue", {}, {each: {"load": {"waiting": n}} for each, n in (("a", 2), ("b", 0), ("c", 1))}, "b"),
        ("queue", {}, {"a": {"running": 2}, "b": {"running": 3}, "c": {"running": 1}}, "c"),
        # The prefix holds it: 18 s at 15,928 tokens/s are 286,704 tokens; then the least to read.
        ("llm-d", {"cached": {"b": 800}}, {"b": {"unread": 286_000}}, "b"),
        ("llm-d", {"cached": {"b": 800}}, {"a": {"unread": 1}, "b": {"unread": 288_000}}, "c"),
        (
            "llm-d",
            {"cached": {"b": 799}},
            {"a": {"unread": 1}, "c": {"unread": 500}, "b": {"unread": 700}},
            "b",
        ),
        ("llm-d", {"cached": {"b": 800}}, {"a": {"unread": 1}, "b": {"running": 100}}, "c"),
        ("llm-d-blend", {"cached": {"b": 600}}, {"b": {"load": {"waiting": 9}}}, "a"),
        ("llm-d-blend", {"cached": {"b": 700}}, {"b": {"load": {"waiting": 9}}}, "b"),
        ("llm-d-blend", {"cached": {"b": 610}}, {"b": {"load": {"kv_use": 0.9}}}, "b"),
        ("llm-d-blend", {"cached": {"b": 590}}, {"b": {"load": {"kv_use": 0.9}}}, "a"),
        ("smg-cache-aware", {"cached": {"b": 600}}, {"b": {"running": 32}}, "b"),
        ("smg-cache-aware", {"cached": {"b": 600}}, {"b": {"running": 33}, "a": {"running": 1}}, "c"),
        (
            "smg-cache-aware",
            {"cached": {"b": 500}},
            {"a": {"cold": 2}, "b": {"cold": 1}, "c": {"cold": 3}},
            "b",
        ),
    ],
)
def test_named_policies(routing: str, who: dict[str, Any], of: dict[str, Any], where: str | None) -> None:
    assert placed(routing, ticket(1000, **who), **of) == where


@pytest.mark.parametrize(
    ("routing", "who"),
    [("session", {"session": "s"}), ("lora", {"adapter": "law"}), ("prefix-hash", {"prefix": (7,)})],
)
def test_policies_with_homes_keep_to_them_and_leave_them_when_it_is_too_much(
    routing: str, who: dict[str, Any]
) -> None:
    places = endpoints(5, facts={"adapters": ("law",)}, running=3)
    home = ROUTING[routing](places, ticket(1000, **who), LIMITS, 0.0)
    assert home is not None
    for turn in range(1, 6):
        home.turn = turn
        assert ROUTING[routing](places, ticket(1000, **who), LIMITS, 0.0) is home
    home.running, home.unread = 40, 10**6
    assert ROUTING[routing](places, ticket(1000, **who), LIMITS, 0.0) not in {home, None}


def test_of_two_at_random_the_fewer() -> None:
    seen = {placed("random-two", ticket(name=f"r{n}"), a={"running": 5}, b={"running": 9}) for n in range(50)}
    assert seen == {"a", "c"}


def test_weights_count() -> None:
    who = ticket(1000, cached={"b": 400})
    for weight, where in ((1.0, "a"), (3.0, "b")):
        recipe = Recipe(scorers=(Piece("prefix", weight=weight), Piece("least-requests")))
        assert placed(recipe, who, b={"running": 3}, c={"running": 1}) == where


def test_a_filter_before_room_has_the_request_wait() -> None:
    who = ticket(1000, cached={"b": 1000})
    affinity, room = Piece("prefix-cache-affinity"), Piece("room")
    assert placed(Recipe((affinity, room)), who, b={"running": 100}) is None
    assert placed(Recipe((affinity,)), who, b={"running": 100}) == "a"


def test_a_recipe_is_made_once_and_travels_in_settings() -> None:
    recipe = RECIPES["llm-d"]
    assert (
        profile(recipe) is profile(Recipe(recipe.filters, recipe.scorers, recipe.picker)) is ROUTING["llm-d"]
    )
    settings = Settings(default=PoolSettings(routing=recipe))
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


@pytest.mark.parametrize(
    ("routing", "asks"),
    [
        *(
            (name, False)
            for name in ("least-requests", "round-robin", "random-two", "kv-use", "queue", "lora")
        ),
        *((name, True) for name in ("session", "prefix-affinity", "token-load", "llm-d", "llm-d-blend")),
        *((name, True) for name in ("smg-cache-aware", "prefix-hash", "from outside")),
        (Recipe(), False),
        (Recipe((Piece("from outside"),)), True),
        (Recipe((), (Piece("no-hit-lru"),)), True),
    ],
)
def test_who_asks_for_what_is_cached_where(routing: str | Recipe, asks: bool) -> None:
    assert (routing in PREFIXED) is asks


def test_what_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"prefix: .*colour"):
        Profile(Recipe(scorers=(Piece("prefix", (("colour", 1),)),)))
    with pytest.raises(ValueError, match="there is no 'nobody'"):
        ROUTING[Recipe((Piece("nobody"),))]
    with pytest.raises(KeyError, match="nobody"):
        ROUTING["nobody"]
