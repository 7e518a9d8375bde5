"""Asking an engine how it is, in virtual time against engines that answer as they are told to."""

from __future__ import annotations

import asyncio

import pytest

from maitred.control.probe import NotReady, Patience, probe
from maitred.core.outcome import FailureKind
from maitred.core.words import Facts
from maitred.net import virtual
from tests.control.engines import HANG, Answer, Engine, models, street
from tests.engines.captures import captured

COMPLETIONS, CHAT, EMBEDDINGS = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
TOKEN = (200, b'{"choices": [{"text": "b"}]}')
REFUSED = (400, b'{"error": {"message": "no"}}')


class Asked:
    """What a probe found, or why the engine is not ready; how long it took; the engine."""

    facts: dict[str, Facts]
    why = ""
    took_s: float
    engine: Engine


def asked(answers: dict[str, Answer], *wanted: str, generate: bool = True) -> Asked:
    result = Asked()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with street() as it:
            result.engine = await it.open(1, answers)
            start = loop.time()
            try:
                found = await probe(it.pool, "http://127.0.0.1:1", wanted, generate, Patience(5.0, 30.0))
                result.facts = {card.id: facts for card, facts in found}
            except NotReady as error:
                result.why = str(error)
            result.took_s = loop.time() - start

    virtual.run(main())
    return result


def test_an_engine_is_asked_for_its_models_a_token_and_its_facts() -> None:
    it = asked(
        {
            "/v1/models": models("q", "alias"),
            COMPLETIONS: TOKEN,
            "/version": captured_ok("vllm_version.txt"),
            "/metrics": captured_ok("vllm_metrics_under_load.txt"),
        },
        "q",
    )
    assert it.engine.paths()[:2] == ["/v1/models", COMPLETIONS]
    assert sorted(it.engine.paths()[2:]) == ["/metrics", "/version"]
    assert it.engine.asked[1][1] == {"model": "q", "prompt": "a", "max_tokens": 1, "stream": False}
    assert it.facts["q"] == Facts("vllm", "q", 4096, "0.32.0", 46592, True, started_at=1795965928.75)
    assert it.facts["alias"].model == "alias"


def captured_ok(name: str) -> Answer:
    return 200, captured(name)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "tensorrt_llm", "somebody"])
@pytest.mark.parametrize("answer", [(500, b'{"version": "1"}'), (200, b"<html>"), HANG])
def test_facts_that_cannot_be_had_hinder_nobody(engine: str, answer: Answer) -> None:
    """All questions are asked at once, so a hanging engine costs one wait."""
    paths = ("/version", "/server_info", "/get_server_info", "/props", "/metrics", "/prometheus/metrics")
    it = asked({**dict.fromkeys(paths, answer), "/v1/models": models("q", engine=engine), COMPLETIONS: TOKEN})
    assert it.facts["q"].version == ""
    assert it.took_s == (5.0 if answer is HANG else 0.0)


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ({COMPLETIONS: TOKEN}, [COMPLETIONS]),
        ({COMPLETIONS: REFUSED, CHAT: TOKEN}, [COMPLETIONS, CHAT]),
        ({COMPLETIONS: (501, b""), EMBEDDINGS: TOKEN}, [COMPLETIONS, CHAT, EMBEDDINGS]),
        ({}, [COMPLETIONS, CHAT, EMBEDDINGS]),
        ({COMPLETIONS: (429, b"busy"), CHAT: (429, b"busy")}, [COMPLETIONS, CHAT, EMBEDDINGS]),
    ],
)
def test_an_engine_is_ready_when_it_has_made_a_token_or_says_it_makes_none(
    answers: dict[str, Answer], tries: list[str]
) -> None:
    it = asked({"/v1/models": models("q"), **answers})
    assert it.why == ""
    assert [path for path in it.engine.paths() if path in {COMPLETIONS, CHAT, EMBEDDINGS}] == tries


@pytest.mark.parametrize(
    ("answers", "why", "took_s"),
    [
        ({"/v1/models": (503, b"")}, "answers GET /v1/models with 503", 0),
        ({"/v1/models": (200, b"{}")}, "not a list of models: ", 0),
        ({"/v1/models": models()}, "serves no model", 0),
        ({"/v1/models": HANG}, "does not answer (no answer in 5 s)", 5),
        ({COMPLETIONS: (503, b"")}, "answers POST /v1/completions with 503", 0),
        ({COMPLETIONS: (302, b"")}, "answers POST /v1/completions with 302", 0),
        ({COMPLETIONS: REFUSED, CHAT: (500, b"")}, "answers POST /v1/chat/completions with 500", 0),
        ({COMPLETIONS: HANG}, "does not answer (no answer in 30 s)", 30),
        ({COMPLETIONS: (200, b"")}, "answers POST /v1/completions with no answer", 0),
        ({COMPLETIONS: (200, b"[]")}, "answers POST /v1/completions with no answer", 0),
        ({COMPLETIONS: (200, b'{"error": {}, "x": ')}, "answers POST /v1/completions with no answer", 0),
        ({COMPLETIONS: (200, b'{"error": "no"}')}, "answers POST /v1/completions with no answer", 0),
        ({COMPLETIONS: (200, b"[" * 100_000)}, "answers POST /v1/completions with no answer", 0),
    ],
)
def test_an_engine_that_is_not_ready_says_why_in_one_line(
    answers: dict[str, Answer], why: str, took_s: float
) -> None:
    it = asked({"/v1/models": models("q"), **answers})
    assert it.why.startswith(why)
    assert why
    assert "\n" not in it.why
    assert it.took_s == took_s


def test_the_wanted_model_makes_the_token() -> None:
    it = asked({"/v1/models": models("other", "q"), COMPLETIONS: TOKEN}, "q", "elsewhere")
    assert it.engine.asked[1][1]["model"] == "q"


def test_an_engine_without_the_wanted_model_makes_no_token() -> None:
    it = asked({"/v1/models": models("other"), COMPLETIONS: (500, b"")}, "q")
    assert list(it.facts) == ["other"]
    assert COMPLETIONS not in it.engine.paths()


def test_no_token_is_made_unless_it_is_asked_for() -> None:
    it = asked({"/v1/models": models("q"), COMPLETIONS: (500, b"")}, generate=False)
    assert list(it.facts) == ["q"]
    assert COMPLETIONS not in it.engine.paths()


@pytest.mark.parametrize(
    ("url", "kind", "refused"),
    [
        ("http://127.0.0.1:1", FailureKind.FIRST_BYTE_TIMEOUT, False),
        ("http://127.0.0.1:2", FailureKind.CONNECT, True),
        ("http://127.0.0.1:3", FailureKind.UNREACHABLE, False),
    ],
)
def test_nobody_there_is_not_ready(url: str, kind: FailureKind, refused: bool) -> None:
    async def main() -> None:
        async with street() as it:
            await it.open(1, {"/v1/models": HANG})
            it.network.hang("127.0.0.1", 3)
            with pytest.raises(NotReady, match=r"^does not answer \(.+\)$") as caught:
                await probe(it.pool, url, (), True, Patience())
            assert (caught.value.kind, caught.value.refused) == (kind, refused)

    virtual.run(main())
