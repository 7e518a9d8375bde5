"""The table of served names."""

from __future__ import annotations

from maitred.control.models import Models, Route


def test_names_are_replaced_as_a_whole() -> None:
    models = Models([Route("a", "a"), Route("b", "a", "A")])
    assert models.find("b") == Route("b", "a", "A")
    models.serve([Route("c", "c")])
    assert (models.find("a"), models.find("b")) == (None, None)
    assert models.find("c") == Route("c", "c")


def test_nothing_is_known_until_a_name_is_served() -> None:
    models = Models()
    assert not models.known
    models.serve([Route("a", "a")])
    assert models.known


def test_every_name_is_listed_with_the_card_of_its_pool() -> None:
    models = Models([Route("a", "a"), Route("alias", "a"), Route("b", "b")])
    models.learn("a", {"id": "A", "max_model_len": 4096})
    card = {"id": "A", "max_model_len": 4096}
    assert models.entries() == [("a", card), ("alias", card), ("b", {})]
