"""What is remembered of prompts for the sake of caches, and grows until nothing else fits."""

from __future__ import annotations

import json
import tracemalloc
from random import Random

import pytest

from maitred.control.models import Models, Route
from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome
from maitred.core.words import (
    Abilities,
    Endpoints,
    Facts,
    Go,
    Identity,
    PoolSettings,
    Probed,
    Settings,
    Usage,
)
from maitred.door.read import read
from maitred.net.exchange import RequestHead

MODELS = Models([Route("m", "m", keyed=True)])
PROMPT_BYTES = 8192
KV_TOKENS = 262_144
NAMES = ("m/a:1", "m/b:1")
FULL_AT = 500
"""By then both caches would have been filled several times."""
SLACK_BYTES = 256 * 1024
"""Less than what was left of every tenth prompt would take, and more than what other threads do meanwhile."""


class Fleet:
    """Two engines behind the default policy, and requests as the door reads them."""

    def __init__(self) -> None:
        self._gateway = Gateway(Settings(default=PoolSettings(routing="default")), Abilities(), Random(7))
        self._gateway.update(Endpoints({"m": ("http://a:1", "http://b:1")}), 0.0)
        for name in NAMES:
            self._gateway.update(Probed(name, ok=True, facts=Facts(kv_tokens=KV_TOKENS)), 0.0)

    def ask(self, number: int) -> None:
        """A prompt that nobody has asked, and its answer."""
        said = f"{number:08d}" * (PROMPT_BYTES // 8)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": said}]}).encode()
        head = RequestHead("POST", "/v1/chat/completions", {}, http11=True, length=len(body))
        request, now = read(head, body, f"r{number}", MODELS).request, float(number)
        assert len(request.prefix) >= PROMPT_BYTES // 1024
        ticket = self._gateway.accept(request, Identity(), now)
        (go,) = self._gateway.release(now)
        assert isinstance(go, Go)
        (leg,) = go.legs
        self._gateway.sent(leg, now)
        self._gateway.answered(leg, now + 0.1)
        self._gateway.finish(ticket, Outcome.COMPLETED, Usage(PROMPT_BYTES // 4, 0, 100), now + 0.2)

    def known(self) -> int:
        """Keys that are kept in mind."""
        prefixes = self._gateway._pools["m"].prefixes
        assert prefixes is not None
        return len(prefixes)


def test_prompts_that_nobody_asks_again_are_forgotten() -> None:
    """B73: vllm-project/production-stack#687, ai-dynamo/dynamo#10774, vllm-project/aibrix#2682.

    An index that forgot nothing, or split and never merged, ate the memory in some hours.
    """
    fleet = Fleet()
    tracemalloc.start()
    try:
        for number in range(FULL_AT):
            fleet.ask(number)
        known, (before, _) = fleet.known(), tracemalloc.get_traced_memory()
        for number in range(FULL_AT, 3 * FULL_AT):
            fleet.ask(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fleet.known() == pytest.approx(known, rel=0.1)
    assert after - before < SLACK_BYTES
