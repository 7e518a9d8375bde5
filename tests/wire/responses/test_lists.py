"""Pages of items, and the queries that ask for them."""

from __future__ import annotations

import pytest
from openai.types.conversations import ConversationItemList
from openai.types.responses import ResponseItemList

from maitred.core.outcome import Refusal
from maitred.wire.responses.lists import Page, Resume, page, query, resume
from tests.wire.responses.parts import settled
from tests.wire.responses.test_items import KINDS


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", Page()),
        ("limit=100&order=asc&after=msg_1", Page("msg_1", 100, "asc")),
        ("order=desc&limit=1", Page(None, 1, "desc")),
        ("include=message.input_image.image_url&include[]=reasoning.encrypted_content", Page()),
    ],
)
def test_asked(text: str, asked: Page) -> None:
    assert query(text) == asked


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=²", "limit"),
        ("limit=" + "1" * 30, "limit"),
        ("limit=", "limit"),
        ("order=up", "order"),
        ("after=", "after"),
        ("after=" + "x" * 129, "after"),
        ("include=file_search_call.results", "include"),
        ("before=msg_1", "before"),
        ("a=%ff", None),
        ("&".join(["limit=1"] * 33), None),
    ],
)
def test_nonsense(text: str, param: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        query(text)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", Resume()),
        ("stream=false", Resume()),
        ("stream=true", Resume(stream=True)),
        ("stream=true&starting_after=0&include_obfuscation=false", Resume(stream=True, starting_after=0)),
    ],
)
def test_resumed(text: str, asked: Resume) -> None:
    assert resume(text) == asked


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("stream=yes", "stream"),
        ("starting_after=3", "starting_after"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("include_obfuscation=true", "include_obfuscation"),
        ("limit=3", "limit"),
    ],
)
def test_not_resumed(text: str, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        resume(text)
    assert caught.value.param == param


def test_a_page() -> None:
    items = settled(KINDS)
    told = ResponseItemList.model_validate_json(page(items, has_more=True), strict=True)
    assert [one.id for one in told.data] == [item.id for item in items]
    assert (told.first_id, told.last_id, told.has_more) == (items[0].id, items[-1].id, True)
    again = ConversationItemList.model_validate_json(page(items, has_more=False), strict=True)
    assert [one.id for one in again.data] == [item.id for item in items]


def test_an_empty_page() -> None:
    told = ResponseItemList.model_validate_json(page([], has_more=False), strict=True)
    assert (told.data, told.first_id, told.last_id) == ([], "", "")
