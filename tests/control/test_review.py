"""The review of facts: what is wrong with an engine, or between engines of one model."""

from __future__ import annotations

import pytest

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
