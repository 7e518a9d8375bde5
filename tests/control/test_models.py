"""The table of served names."""

from __future__ import annotations

from maitred.control.models import Models, Route, longest_context
from maitred.core.words import Endpoint, EndpointState, Facts

READY = EndpointState.READY


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


def engine(context: int | None, state: EndpointState = READY, kind: str = "vllm") -> Endpoint:
    return Endpoint("p/a:1", "p", "http://a:1", state, facts=Facts(kind, context_tokens=context))


def test_the_longest_context_of_those_that_are_ready_counts() -> None:
    assert longest_context([engine(100), engine(300), engine(200), engine(900, EndpointState.EJECTED)]) == 300
    assert longest_context([]) == 0


def test_where_one_may_take_any_length_no_bound_is_known() -> None:
    assert longest_context([engine(100), engine(None)]) == 0
    assert longest_context([engine(100), engine(100, kind="llamacpp")]) == 0


def test_a_name_opens_its_model_and_an_adapter_must_be_named() -> None:
    routes = (Route("m", "m"), Route("alias", "m"), Route("lora", "m", adapter="lora"), Route("n", "n"))
    models = Models(routes)

    def open_to(*names: str) -> list[str]:
        listed = [name for name, _ in models.entries(names)]
        assert listed == [route.name for route in routes if route.open_to(names)]
        return listed

    assert open_to() == ["m", "alias", "lora", "n"]
    assert open_to("m") == ["m", "alias"]
    assert open_to("alias") == ["alias"]
    assert open_to("lora", "n") == ["lora", "n"]
    assert open_to("other") == []
