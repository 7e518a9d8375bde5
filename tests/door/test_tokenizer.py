"""Our token ids: those that real engines told, and the same for pieces as for the whole."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.words import Api
from maitred.door.tokenizer import Folder, NoTokenizer, Pieces
from maitred.engines.llamacpp import bundled_model
from maitred.engines.tokenize import packed
from maitred.wire.conversation import TOOL_FORMS
from tests.door import gguf, models

CAPTURED = Path(__file__).parents[1] / "data" / "twin"
FORM = TOOL_FORMS[0]
FAMILIES = {
    "bytes": models.byte_level(),
    "first": models.sentences("first"),
    "always": models.sentences("always"),
    "normalizer": models.sentences("normalizer"),
    "likely": models.likely(),
    "strips": models.byte_level(lstrip=True, rstrip=True),
    "rstrips": models.byte_level(rstrip=True),
    "words": models.byte_level(single_word=True),
    "overlaps": models.marked(models.byte_level(), "ab<|"),
}
TEXTS = st.lists(
    st.sampled_from([*models.MARKS, "<|im_st", "|>", "<", "[", "abba", "ab", "a", " ", "\n", "é", "日", ""])
    | st.text(max_size=5)
).map("".join)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A real model's."""
    return Folder(gguf.folder(bundled_model(), tmp_path_factory.mktemp("smollm2")))


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (Api.CHAT, "tokenize_chat"),
        (Api.COMPLETIONS, "tokenize_prompt"),
        (Api.CHAT, "chat_render"),
        (Api.MESSAGES, "messages_render"),
        (Api.COMPLETIONS, "completions_render"),
    ],
)
def test_the_ids_are_those_of_vllm(smollm2: Folder, api: Api, name: str) -> None:
    asked, _, answered = (CAPTURED / f"{name}.txt").read_text().partition("\n\nHTTP")
    answer = json.loads(answered.partition("\n\n")[2])
    told = answer[0] if isinstance(answer, list) else answer
    body = asked.partition("\n\n")[2].encode()
    assert smollm2.ids(api, body, FORM) == packed(told.get("tokens") or told["token_ids"])


@pytest.mark.parametrize("family", FAMILIES)
@given(first=TEXTS, second=TEXTS)
@settings(max_examples=150)
def test_pieces_have_the_ids_of_the_whole(family: str, first: str, second: str) -> None:
    """Whatever is known already, and wherever the marks come from: the template or what a client wrote."""
    tokenizer = FAMILIES[family]
    pieces = Pieces(tokenizer, models.TEMPLATE)
    for text in (first, first + second, second, first + "<|im_end|>" + second):
        assert pieces.ids(text) == packed(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize(("family", "some"), [("bytes", True), ("first", True), ("rstrips", False)])
def test_only_what_is_new_is_tokenised(family: str, some: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = FAMILIES[family]
    pieces = Pieces(tokenizer, models.TEMPLATE)
    asked: list[str] = []
    encode = pieces._encode

    def noted(texts: list[str], *, special: bool) -> list[bytes]:
        asked.extend(texts)
        return encode(texts, special=special)

    monkeypatch.setattr(pieces, "_encode", noted)
    pieces.ids("<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n")
    asked.clear()
    pieces.ids("<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n")
    assert asked == (["<|im_start|>assistant\nyes"] if some else [asked[0]])


def test_pieces_take_no_more_memory_than_they_may() -> None:
    pieces = Pieces(models.byte_level(), models.TEMPLATE, bytes_max=10_000)
    for number in range(200):
        pieces.ids(f"<|im_start|>{number}" * 3 + "<|im_end|>")
        assert 0 < pieces.bytes <= 10_000
    sizes = [sys.getsizeof(piece) + sys.getsizeof(ids) for piece, ids in pieces._known.items()]
    assert pieces.bytes == sum(sizes)


def test_the_loop_goes_on_meanwhile() -> None:
    """The library holds everybody up in most of its calls; in a batch it does not."""
    pieces = Pieces(models.byte_level(), models.TEMPLATE)
    text, turns = "ab abab \n\n" * 30_000, 0
    thread = threading.Thread(target=pieces.ids, args=(text,))
    thread.start()
    while thread.is_alive():
        turns += 1
    assert turns > 1_000


def test_a_template_can_be_a_file_of_its_own(tmp_path: Path) -> None:
    models.write(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("<|im_start|>")
    assert ids(Folder(tmp_path)) == of_token("<|im_start|>")


def test_a_template_can_be_there_for_tools_alone(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "[TOOL]"}]
    folder = Folder(models.write(tmp_path, chat_template=templates))
    assert ids(folder) == of_token("a")
    assert ids(folder, tools=[{"function": {"name": "f"}}]) == of_token("[TOOL]")


def test_special_tokens_are_known_to_the_template(tmp_path: Path) -> None:
    where = models.write(tmp_path, bos_token={"content": "<|im_start|>"}, chat_template="{{ bos_token }}")
    assert ids(Folder(where)) == of_token("<|im_start|>")


def test_listed_ids_are_themselves(smollm2: Folder) -> None:
    assert smollm2.ids(Api.COMPLETIONS, b'{"prompt":[1,2,70000]}', FORM) == packed([1, 2, 70000])


def test_truncation_and_padding_are_for_training(tmp_path: Path) -> None:
    tokenizer = models.byte_level()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=64)
    folder = Folder(models.write(tmp_path, tokenizer, chat_template="a b c d e"))
    assert len(ids(folder)) == 4 * len(models.byte_level().encode("a b c d e").ids)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("tokenizer.json", None, "tokenizer.json: .*No such file"),
        ("tokenizer.json", "{}", "tokenizer.json: "),
        ("tokenizer_config.json", "{]", "chat template: .*JSON"),
        ("chat_template.jinja", "{% if %}", "chat template: Expected"),
    ],
)
def test_a_folder_that_is_no_use_says_why(tmp_path: Path, name: str, text: str | None, why: str) -> None:
    models.write(tmp_path)
    (tmp_path / name).unlink() if text is None else (tmp_path / name).write_text(text)
    with pytest.raises(NoTokenizer, match=why):
        Folder(tmp_path)


def test_without_a_template_only_texts_have_ids(tmp_path: Path) -> None:
    folder = Folder(models.write(tmp_path, chat_template=None))
    assert folder.ids(Api.COMPLETIONS, b'{"prompt":"a"}', FORM)
    with pytest.raises(NoTokenizer, match="no chat template"):
        ids(folder)


def of_token(text: str) -> bytes:
    """The ids of this token alone."""
    (one,) = models.byte_level().encode(text).ids
    return packed([one])


def ids(folder: Folder, **members: object) -> bytes:
    """Of a small chat."""
    body = {"messages": [{"role": "user", "content": "ab"}], **members}
    return folder.ids(Api.CHAT, json.dumps(body).encode(), FORM)


def test_the_families_differ() -> None:
    """Or the test of pieces would try one thing many times."""
    known = {
        tuple(tokenizer.encode("<|im_start|> ab\n<|im_end|> abba", add_special_tokens=False).ids)
        for tokenizer in FAMILIES.values()
    }
    assert len(known) >= 6
