"""The review of facts: what is wrong with an engine, or between engines of one model."""

from __future__ import annotations

import pytest

from maitred.config.cache import Cache, Events
from maitred.config.tree import Model
from maitred.control.review import KINDS, review
from maitred.core.endpoints import EndpointTable
from maitred.core.words import Facts
from maitred.observe.findings import KINDS as ALL_KINDS


def table(**facts: Facts) -> EndpointTable:
    """Endpoints a:1, b:1, ... of pool q with these facts."""
    made = EndpointTable()
    list(made.replace({"q": tuple(f"http://{host}:1" for host in facts)}))
    for host, known in facts.items():
        made.learn(made.by_name[f"q/{host}:1"], known)
    return made


def test_nothing_is_wrong_with_what_is_alike_or_unknown() -> None:
    well = Facts("vllm", "q", 4096, prefix_caching=True)
    assert list(review(table(a=well, b=well, c=Facts("", "q")))) == []


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "--no-enable-prefix-caching"),
        ("sglang", "--disable-radix-cache"),
        ("llamacpp", "--no-cache-prompt"),
        ("trtllm", "enable_block_reuse"),
        ("", "switch it on"),
    ],
)
def test_prefix_caching_that_is_off_is_said_with_the_way_to_switch_it_on(engine: str, flag: str) -> None:
    [(kind, where, what, do)] = review(table(a=Facts(engine, "q", prefix_caching=False)))
    assert (kind, where, what) == ("prefix_caching_off", "q/a:1", "prefix caching is off")
    assert flag in do


def test_endpoints_that_take_prompts_of_different_lengths_are_said() -> None:
    [(kind, where, what, _)] = review(table(a=Facts("vllm", "q", 32768), b=Facts("vllm", "q", 16384)))
    assert (kind, where) == ("context_differs", "q")
    assert what == "its endpoints differ in context length: a:1 takes 32768, b:1 takes 16384 tokens"


def test_its_kinds_are_declared() -> None:
    assert set(KINDS) <= set(ALL_KINDS)


APART = {"q": Model("q", ("http://a:1",), cache=Cache(isolate="tenant", events=Events()))}


@pytest.mark.parametrize(
    ("engine", "kinds"),
    [
        ("vllm", []),
        ("trtllm", ["events_unsalted"]),
        ("sglang", ["cache_shared", "events_unsalted"]),
        ("llamacpp", ["cache_shared", "events_unsalted"]),
        ("", ["cache_shared", "events_unsalted"]),
    ],
)
def test_engines_that_do_not_keep_tenants_apart_are_said(engine: str, kinds: list[str]) -> None:
    endpoints = table(a=Facts(engine, "q"))
    assert [kind for kind, *_ in review(endpoints, APART)] == kinds
    assert list(review(endpoints, {"q": Model("q", ("http://a:1",))})) == []


def test_of_an_engine_that_has_not_spoken_nothing_is_said() -> None:
    assert list(review(table(a=Facts()), APART)) == []
