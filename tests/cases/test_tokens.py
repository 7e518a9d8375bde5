"""Tokens before anybody has counted them: estimates that are fair, and lengths that the model can take."""

from __future__ import annotations

import json

import pytest
from openai import BadRequestError

from maitred.config.flow import ModelLimits
from tests.cases.place import on_sockets, serving
from tests.net.http import post
from tests.proxy.place import CHAT, chat
from tests.proxy.upstream import whole

PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 140_000
WORDS = "twenty words or so "


def message(*parts: object) -> list[object]:
    return [{"role": "user", "content": [{"type": "text", "text": WORDS}, *parts]}]


class TestMediaInLimits:
    """B96: BerriAI/litellm#32865, openai/codex#12419, langgenius/dify#5868.

    A picture in base64 was taken for 630,000 tokens of text and refused under a limit of 50,000 a minute.
    Media cost the same whatever their bytes, and a refusal names the estimate.
    """

    LIMIT = ModelLimits(tokens_per_min=50_000)

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "image_url", "image_url": {"url": PICTURE}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg" * 200_000, "format": "wav"}},
            {
                "type": "file",
                "file": {
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64," + "JVBERi0" * 200_000,
                },
            },
        ],
    )
    @on_sockets
    async def test_a_picture_passes_under_a_limit_that_its_bytes_would_break(self, part: object) -> None:
        async with serving(model={"limits": self.LIMIT}) as place:
            answer = await place.ask(post(CHAT, chat(messages=message(part), max_tokens=100)))
            assert answer.status == 200

    @on_sockets
    async def test_nor_is_a_picture_that_a_tool_answered_with_text(self) -> None:
        picture = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]},
        }
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [picture]}
        messages = [
            {"role": "user", "content": WORDS},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "see", "input": {}}]},
            {"role": "user", "content": [result]},
        ]
        async with serving(model={"limits": self.LIMIT}) as place:
            body = json.dumps({"model": "m", "max_tokens": 100, "messages": messages}).encode()
            assert (await place.ask(post("/v1/messages", body))).status == 200

    @on_sockets
    async def test_what_the_engine_counts_takes_the_place_of_the_estimate(self) -> None:
        part = {"type": "image_url", "image_url": {"url": PICTURE}}
        async with serving(model={"limits": self.LIMIT}) as place:
            answer = await place.ask(post(CHAT, chat(messages=message(part), max_tokens=100)))
            before = 50_000 - int(answer.value(b"x-ratelimit-remaining-tokens"))
            assert 1000 < before < 2000  # as it was thought, while it was not over yet
            answer = await place.ask(post(CHAT, chat()))
            assert 50_000 - int(answer.value(b"x-ratelimit-remaining-tokens")) < 400  # 7, and the new one's

    @on_sockets
    async def test_as_many_bytes_of_text_do_not_and_the_estimate_is_told(self) -> None:
        async with serving(model={"limits": self.LIMIT}) as place:
            body = chat(messages=message({"type": "text", "text": PICTURE}), max_tokens=100)
            answer = await place.ask(post(CHAT, body))
            assert (answer.status, answer.outcome) == (429, "rate_limited")
            assert str(len(body) // 4) in answer.json["error"]["message"]


class TestLengths:
    """What the model cannot take is refused before it waits; an answer is as long as the operator lets it."""

    LIMITS = ModelLimits(context=1000, output=40, output_default=10)

    @on_sockets
    async def test_too_long_a_prompt_is_refused_as_the_client_knows_it(self) -> None:
        async with serving(model={"limits": self.LIMITS}) as place:
            client = place.openai()
            with pytest.raises(BadRequestError) as caught:
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "x" * 10_000}]
                )
            await client.close()
            assert caught.value.code == "context_length_exceeded"
            assert "maximum context length is 1000 tokens" in caught.value.message
            body = json.dumps(
                {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x" * 10_000}]}
            )
            answer = await place.ask(post("/v1/messages", body.encode()))
            assert answer.status == 400
            assert answer.json["error"]["message"].startswith("prompt is too long: at least ")
            assert place.script.asked == []
            assert [line["tenant"] for line in place.lines] == ["anonymous"] * 2

    @pytest.mark.parametrize(
        ("said", "sent"),
        [
            ({}, {"max_completion_tokens": 10}),
            ({"max_tokens": 4000}, {"max_tokens": 40}),
            ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ],
    )
    @on_sockets
    async def test_an_answer_is_bounded(self, said: dict[str, int], sent: dict[str, int]) -> None:
        async with serving([whole(b"{}")], model={"limits": self.LIMITS}) as place:
            await place.ask(post(CHAT, chat(**said)))
            body = json.loads((await place.script.called()).body)
            assert {key: value for key, value in body.items() if key.startswith("max_")} == sent
