"""Keys of prompts: the next turn begins with those of this one, and nothing else does."""

from __future__ import annotations

import base64
import json
from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.prefix import BYTE_ENDS
from maitred.core.words import Api
from maitred.wire.media import PARTS_MAX, SHORT_BYTES_MAX
from maitred.wire.prefix import BLOCKS_MAX, block_key, blocks_of, byte_keys, extra, root, session
from maitred.wire.requests import decode

ROOT = root("m")
LONG = "Ladies and gentlemen, dinner is served. " * 20
EPHEMERAL = {"type": "ephemeral"}


def keys(api: Api, body: dict[str, Any], *, spaced: bool = False) -> tuple[int, ...]:
    """Those of a body as clients write it, without and with blanks."""
    body = {"model": "m", **body}
    raw = json.dumps(body, ensure_ascii=spaced, separators=None if spaced else (",", ":")).encode()
    asked = decode(api, raw)
    return byte_keys(ROOT, asked.rendered(), len(raw), marked=api.anthropic)


def chat(*messages: Any, **more: Any) -> tuple[int, ...]:
    return keys(Api.CHAT, {"messages": messages, **more})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def image(size: int, fill: bytes = b"x") -> dict[str, Any]:
    data = base64.b64encode(fill * size).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


# -- conversations ------------------------------------------------------------------------------------

TEXTS = st.builds(lambda words, often: words * often, st.text(max_size=8), st.integers(0, 300))
PARTS = st.lists(TEXTS.map(text) | st.builds(image, st.integers(0, 2000)), max_size=3)
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": LONG})}}
MESSAGES = st.lists(
    st.builds(user, TEXTS | PARTS)
    | TEXTS.map(lambda said: {"role": "assistant", "content": said})
    | TEXTS.map(lambda said: {"role": "tool", "tool_call_id": "call_1", "content": said})
    | st.just({"role": "assistant", "content": None, "tool_calls": [CALL]}),
    min_size=1,
    max_size=6,
)
TOOLS = [{"type": "function", "function": {"name": "f", "description": LONG, "parameters": {}}}]


@given(MESSAGES, MESSAGES, st.booleans(), st.booleans())
def test_the_next_turn_begins_with_this_one(first: Any, more: Any, spaced: bool, tooled: bool) -> None:
    rest = {"tools": TOOLS} if tooled else {}
    this = keys(Api.CHAT, {"messages": first, "max_tokens": 5, **rest}, spaced=spaced)
    following = keys(Api.CHAT, {**rest, "stream": True, "messages": [*first, *more]}, spaced=spaced)
    assert following[: len(this)] == this


BLOCKS = st.lists(TEXTS.map(text), min_size=1, max_size=3)


@given(st.lists(BLOCKS, min_size=2, max_size=5), st.data(), st.booleans())
def test_anthropics_mark_moves_on_and_changes_nothing(turns: Any, data: Any, spaced: bool) -> None:
    def marked(turns: Any) -> list[Any]:
        *before, last = turns
        *parts, end = last
        return [*map(user, before), user([*parts, {**end, "cache_control": EPHEMERAL}])]

    system = [text(LONG, cache_control=EPHEMERAL)]
    at = data.draw(st.integers(1, len(turns) - 1))
    this, following = (
        keys(Api.MESSAGES, {"max_tokens": 1, "system": system, "messages": marked(some)}, spaced=spaced)
        for some in (turns[:at], turns)
    )
    assert following[: len(this)] == this
    assert (
        this[0] == keys(Api.MESSAGES, {"system": [text(LONG)], "messages": marked(turns)}, spaced=spaced)[0]
    )


def test_a_text_that_speaks_of_the_mark_keeps_it() -> None:
    said = ',"cache_control":null' + LONG
    assert (
        keys(Api.MESSAGES, {"messages": [user(said)]})[0] != keys(Api.MESSAGES, {"messages": [user(LONG)]})[0]
    )


@given(st.text(min_size=1, max_size=4), st.integers(0, 200), st.integers(0, 200))
def test_a_completion_may_go_on_where_its_prompt_ended(words: str, often: int, more: int) -> None:
    this, following = (keys(Api.COMPLETIONS, {"prompt": words * n}) for n in (often, often + more))
    assert following[: len(this)] == this


def test_the_end_of_a_completions_prompt_is_no_part_of_it() -> None:
    long = keys(Api.COMPLETIONS, {"prompt": "x" * 2000})
    for size in range(BYTE_ENDS[0] - 5, BYTE_ENDS[0] + 5):
        this = keys(Api.COMPLETIONS, {"prompt": "x" * size})
        assert long[: len(this)] == this
        assert len(this) == (size + 1 >= BYTE_ENDS[0])


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user("X" + LONG)]},
        {"messages": [{"role": "system", "content": LONG}]},
        {"messages": [user([text(LONG)])]},
        {"messages": [user(LONG)], "tools": TOOLS},
        {"messages": [user(LONG)], "functions": TOOLS},
        {"messages": [user(LONG)], "documents": [{"text": LONG}]},
        {"messages": [user(LONG)], "reasoning_effort": "high"},
        {"messages": [user("before"), user(LONG)]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, user(LONG)]},
    ],
)
def test_what_the_template_sees_differs_from_the_start(body: dict[str, Any]) -> None:
    here, there = keys(Api.CHAT, body), chat(user(LONG))
    assert here
    assert not set(here) & set(there)


def test_what_it_does_not_see_does_not_matter() -> None:
    plain = chat(user(LONG))
    assert plain
    assert plain == chat(user(LONG), temperature=0.5, metadata={"x": LONG}, max_tokens=7, user="me")
    assert plain == keys(Api.CHAT, {"stream": True, "messages": [{"content": LONG, "role": "user"}]})


def test_tools_come_first_and_system_before_the_messages_wherever_they_are_written() -> None:
    tools = [{"name": "f", "description": LONG, "input_schema": {}}]
    body = {"messages": [user(LONG)], "system": "S" + LONG, "tools": tools}
    this = keys(Api.MESSAGES, body)
    assert this == keys(Api.MESSAGES, dict(reversed(body.items())))
    assert this[0] == keys(Api.MESSAGES, body | {"system": "other"})[0]
    assert this[:3] == keys(Api.MESSAGES, body | {"messages": [user("X" + LONG)]})[:3]


# -- media --------------------------------------------------------------------------------------------


def test_an_image_is_short_and_known_by_what_it_is() -> None:
    large, other = image(1_000_000), image(1_000_000)
    other["image_url"]["url"] = other["image_url"]["url"][:-4] + "AAAA"
    this = chat(user([text("What is this?"), large]), user(LONG))
    assert len(this) < 4
    assert this == chat(user([text("What is this?"), large]), user(LONG))
    assert not set(this) & set(chat(user([text("What is this?"), other]), user(LONG)))


def test_an_image_inside_the_result_of_a_tool_is_short_too() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "x" * 100_000}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source}]}
    this = keys(Api.MESSAGES, {"messages": [user([result, text(LONG)]), user(LONG)]})
    assert 0 < len(this) < 6


@pytest.mark.parametrize("nested", [text(LONG), {"type": "tool_result", "content": [text(LONG), text(LONG)]}])
def test_a_later_image_changes_nothing_before_it(nested: dict[str, Any]) -> None:
    assert len(json.dumps(nested["type"])) < SHORT_BYTES_MAX
    messages = [user([nested, nested]), user([nested])]
    this = chat(*messages)
    assert len(this) > 2
    assert chat(*messages, user([image(5000)]))[: len(this)] == this


# -- bounds -------------------------------------------------------------------------------------------


def test_each_end_that_is_reached_has_a_key_and_no_other() -> None:
    for number, end in enumerate(BYTE_ENDS):
        assert len(byte_keys(ROOT, [b"x" * end], end)) == number + 1
        assert len(byte_keys(ROOT, [b"x" * (end - 1)], end)) == number


def test_what_is_rendered_may_be_longer_than_its_body() -> None:
    """Of a message without role and content more is rendered than the body says of it."""
    empty = b'{"model":"m","tools":"%b","messages":[%b]}' % (b"x" * 1000, b",".join([b"{}"] * PARTS_MAX))
    asked = decode(Api.CHAT, empty)
    assert sum(map(len, map(bytes, asked.rendered()))) > BYTE_ENDS[-1] + 512 > len(empty)
    assert len(byte_keys(ROOT, asked.rendered(), len(empty))) == len(BYTE_ENDS)


def test_keys_end_where_they_should_and_none_lies_beyond() -> None:
    sizes = [511, 512, 1023, 1024, BYTE_ENDS[-1] - 1, BYTE_ENDS[-1], 1_000_000]
    last = len(BYTE_ENDS)
    assert [len(byte_keys(ROOT, [bytes(size)], size)) for size in sizes] == [0, 1, 1, 2, last - 1, last, last]


def test_a_key_is_of_all_before_its_end() -> None:
    this, other = (byte_keys(ROOT, [start * BYTE_ENDS[0], b"x" * 1600], 4000) for start in (b"a", b"b"))
    assert len(this) == 4
    assert not set(this) & set(other)
    assert len(set(byte_keys(ROOT, [b"x" * 4096], 4096))) == 8


def test_no_more_is_taken_than_has_keys() -> None:
    parts = iter([b"x" * 10_000] * 1000)
    assert len(byte_keys(ROOT, parts, 10_000_000)) == len(BYTE_ENDS)
    assert len(list(parts)) == 1000 - -(-BYTE_ENDS[-1] // 10_000)


def test_a_huge_prompt_begins_as_a_large_one() -> None:
    some = [user(f"{number} {LONG}") for number in range(2000)]
    assert chat(*some[:500]) == chat(*some)
    assert len(chat(*some)) == len(BYTE_ENDS)


@pytest.mark.parametrize("api", [Api.EMBEDDINGS, Api.RERANK, Api.TOKENIZE])
def test_what_generates_nothing_has_no_keys(api: Api) -> None:
    assert keys(api, {"input": LONG, "query": LONG, "prompt": LONG}) == ()


def test_roots_differ_by_model_adapter_and_salt() -> None:
    roots = [root("m"), root("n"), root("m", "a"), root("m", salt="a"), root("m", "b", "a")]
    assert len(set(roots)) == len(roots)
    assert len({byte_keys(r, [b"x" * 512], 512) for r in roots}) == len(roots)


# -- tokens -------------------------------------------------------------------------------------------

IDS = array("I", range(100))


def test_blocks_are_full_and_each_follows_from_the_one_before() -> None:
    blocks = blocks_of(ROOT, IDS, 16)
    assert len(blocks) == 6
    assert blocks == blocks_of(ROOT, IDS.tobytes(), 16) == blocks_of(ROOT, memoryview(IDS), 16)
    chain = [ROOT, *blocks]
    for number, (parent, key) in enumerate(pairwise(chain)):
        assert key == block_key(parent, IDS[number * 16 : number * 16 + 16])
    assert blocks_of(ROOT, IDS, 101) == ()


def test_the_salt_enters_the_first_block_as_an_engine_tells_it() -> None:
    first, second = blocks_of(ROOT, IDS, 50, "tenant-a")
    assert first == block_key(ROOT, IDS[:50], extra(["tenant-a"])) != block_key(ROOT, IDS[:50])
    assert second == block_key(first, IDS[50:])


def test_a_block_depends_on_the_media_in_it() -> None:
    said: list[list[object]] = [[], ["a"], ["b"], ["a", "b"], [["a", 3]], [["a", 4]], [b"a"], [None]]
    assert len({block_key(ROOT, IDS, extra(keys)) for keys in said}) == len(said)
    assert block_key(ROOT, IDS, extra(())) == block_key(ROOT, IDS)


def test_there_are_only_so_many_blocks() -> None:
    assert len(blocks_of(ROOT, bytes(4 * 2 * BLOCKS_MAX), 1)) == BLOCKS_MAX


# -- sessions -----------------------------------------------------------------------------------------


def test_a_session_is_one_tenants() -> None:
    said = b"chat-7"
    names = {session(said, "a"), session(said, "b"), session(b"chat-8", "a"), session(b"", "a")}
    assert len(names) == 4
    assert session(b"", "a") == ""
    assert not any("chat" in name for name in names)
