"""Structs whose attributes are set as those of slots are."""

from __future__ import annotations

import pytest
from msgspec import Struct

from maitred.core.mutable import mutable


@mutable
class Place(Struct, eq=False):
    name: str
    running: int = 0


def test_what_changes_is_set_as_an_object_sets_it_and_nothing_else_can_be() -> None:
    place = Place("a")
    place.running = 3
    assert (place.name, place.running, Place("b").running) == ("a", 3, 0)
    with pytest.raises(AttributeError):
        place.runing = 4  # type: ignore[attr-defined]


def test_msgspecs_own_way_which_costs_more_is_not_taken() -> None:
    assert (Place.__setattr__, Place.__delattr__) == (object.__setattr__, object.__delattr__)
    assert Struct.__setattr__ is not object.__setattr__
