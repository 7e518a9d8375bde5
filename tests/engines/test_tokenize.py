"""Asking engines for token ids: what is posted, and what is read of what real ones answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maitred.core.words import Api
from maitred.engines.tokenize import Asking, asking, packed, rendering

DATA = Path(__file__).parents[1] / "data"
CHAT = b'{"messages":[{"role":"user","content":"a"}]}'


def captured(path: str) -> tuple[bytes, bytes]:
    """Body and answer of an exchange."""
    asked, _, answered = (DATA / path).read_bytes().partition(b"\n\nHTTP")
    return asked.partition(b"\n")[2].strip(), answered.partition(b"\n\n")[2]


def told(question: Asking | None, *answers: tuple[str, bytes]) -> tuple[list[bytes], bytes]:
    """What is posted, to these paths, and what the answers come to."""
    assert question is not None
    path, body = next(question)
    posted = []
    for expected, answer in answers:
        assert path == expected
        posted.append(body)
        try:
            path, body = question.send(answer)
        except StopIteration as over:
            return posted, over.value
    raise AssertionError("it asks for more")


def test_vllm_is_asked_with_the_request_itself() -> None:
    for api, name in ((Api.CHAT, "tokenize_chat"), (Api.COMPLETIONS, "tokenize_prompt")):
        body, answer = captured(f"twin/{name}.txt")
        posted, ids = told(asking("vllm", api, body), ("/tokenize", answer))
        assert posted == [body]
        assert ids == packed(json.loads(answer)["tokens"])


def test_what_vllm_would_run_is_read() -> None:
    paths = {
        Api.CHAT: ("chat_render", "/v1/chat/completions/render"),
        Api.COMPLETIONS: ("completions_render", "/v1/completions/render"),
        Api.MESSAGES: ("messages_render", "/v1/messages/render"),
    }
    for api, (name, path) in paths.items():
        body, answer = captured(f"twin/{name}.txt")
        posted, ids = told(rendering(api, body), (path, answer))
        rendered = json.loads(answer)
        assert posted == [body]
        assert ids == packed((rendered[0] if isinstance(rendered, list) else rendered)["token_ids"])


def test_llamacpp_renders_first() -> None:
    posted, ids = told(
        asking("llamacpp", Api.CHAT, CHAT),
        ("/apply-template", b'{"prompt":"<s>\\n\\"a"}'),
        ("/tokenize", b'{"tokens":[7,8]}'),
    )
    assert posted[0] == CHAT
    assert json.loads(posted[1]) == {"content": '<s>\n"a', "add_special": True, "parse_special": True}
    assert ids == packed([7, 8])


def test_llamacpp_takes_a_text_as_it_is() -> None:
    posted, _ = told(
        asking("llamacpp", Api.COMPLETIONS, b'{"prompt":"\\u00e9"}'), ("/tokenize", b'{"tokens":[]}')
    )
    assert json.loads(posted[0])["content"] == "é"


@pytest.mark.parametrize(
    ("engine", "api", "can"),
    [
        ("vllm", Api.MESSAGES, False),
        ("sglang", Api.COMPLETIONS, True),
        ("sglang", Api.CHAT, False),
        ("llamacpp", Api.MESSAGES, False),
        ("", Api.CHAT, False),
    ],
)
def test_not_every_engine_can_be_asked_everything(engine: str, api: Api, can: bool) -> None:
    assert (asking(engine, api, CHAT) is not None) is can


def test_only_prompts_are_rendered() -> None:
    assert rendering(Api.EMBEDDINGS, CHAT) is None


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"tokens":["a"]}', b'{"tokens":[1.5]}', b'{"count":1}'])
def test_another_answer_is_an_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        told(asking("vllm", Api.CHAT, CHAT), ("/tokenize", answer))


def test_ids_are_four_bytes_each() -> None:
    assert packed([1, 256, 2**32 - 1]) == b"\x01\0\0\0\0\x01\0\0\xff\xff\xff\xff"
    for wrong in (-1, 2**32):
        with pytest.raises(OverflowError):
            packed([wrong])
