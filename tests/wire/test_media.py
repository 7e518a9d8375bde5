"""Media: what an engine may be made to fetch, wherever a request can say it, and what is left alone."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire import media
from maitred.wire.requests import MEDIA_TOKENS, TOKEN_BYTES, Rules, decode
from tests.wire.bodies import escaped

ALLOWED = ("example.com", "cdn.example.net")
EVIL = "http://169.254.169.254/latest/meta-data"
DATA = "data:image/png;base64,iVBORw0KGgo="


def refused(api: Api, body: object, domains: tuple[str, ...] = ALLOWED) -> str | None:
    """Which member was refused; None when the body passed."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        decode(api, raw, Rules(domains=domains))
    except Refusal as error:
        refusal = error
    else:
        return None
    assert refusal.outcome is Outcome.BAD_REQUEST
    assert "169.254" not in refusal.message
    assert refusal.param is not None
    assert refusal.message.startswith(refusal.param)
    return refusal.param


def message(*parts: object) -> dict[str, Any]:
    """A chat of a text and then these parts."""
    texts: dict[str, Any] = {"role": "system", "content": "be brief"}
    return {"model": "m", "messages": [texts, {"role": "user", "content": list(parts)}]}


def image(url: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


# -- references ---------------------------------------------------------------------------------------

HARMLESS = [
    DATA,
    "data:,x",
    "iVBORw0KGgo=",
    "/9j/4AAQSkZJRg==",
    "a-b_c",
    "",
    "https://example.com",
    "http://example.com/a.png",
    "HTTPS://Example.COM:8443/a%20b.png?x=@y#z",
    "https://img.eu.example.com/图.png",
    "https://cdn.example.net?x",
]
HARMFUL = [
    EVIL,
    "https://example.org/",
    "https://example.com.evil.org/",
    "https://evilexample.com/",
    "https://evil.org/example.com",
    "https://evil.org?example.com",
    "https://evil.org#.example.com",
    "https://net/",
    "https://user@example.com/",
    "https://example.com:80@evil.org/",
    "https://example.com\\@evil.org/",
    "https:\\\\example.com/",
    "https://example.com/a\\b",
    "https://example.com/a b",
    "https://example.com/\ta",
    " https://example.com/",
    "https://example.com\n",
    "https://example.com./",
    "https://ex%61mple.com/",
    "https://example.com:port/",
    "https:/example.com/",
    "https:example.com",
    "//example.com/a.png",
    "/etc/passwd",
    "./a.png",
    "../a",
    "a.png",
    "C:\\a.png",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "s3://example.com/x",
    "jar:https://example.com/",
    "view-source:https://example.com/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://①②⑦.0.0.1/",
    "http://example。com/",
    "http://localhost/",
    "http:///x",
    "http://",
]


@pytest.mark.parametrize("reference", HARMLESS)
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_data_and_allowed_hosts_pass(reference: str, rounds: int) -> None:
    spelled = escaped(reference, rounds if reference.startswith(("data", "http")) else 0)
    assert refused(Api.CHAT, json.dumps(message(image("@"))).replace('"@"', spelled).encode()) is None


@pytest.mark.parametrize("reference", HARMFUL)
@pytest.mark.parametrize("rounds", [0, 1, 100])
def test_everything_else_does_not(reference: str, rounds: int) -> None:
    body = json.dumps(message(image("@"))).replace('"@"', escaped(reference, rounds)).encode()
    assert refused(Api.CHAT, body) == "messages[1].content[0].image_url"


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "2130706433", "0x7f000001"])
def test_an_address_is_not_made_a_name_by_being_listed(host: str) -> None:
    assert refused(Api.CHAT, message(image(f"http://{host}/")), (host,))


def test_without_a_list_only_data_passes() -> None:
    for reference in HARMLESS:
        passes = refused(Api.CHAT, message(image(reference)), ()) is None
        assert passes is not reference.lower().startswith("http")


@pytest.mark.parametrize("reference", ["data:", "", "/9j/", "http://evil.org/"])
def test_what_is_too_long_for_a_reference_is_data_or_refused(reference: str) -> None:
    long = reference + "QUJD" * media.REFERENCE_BYTES_MAX
    assert (refused(Api.CHAT, message(image(long))) is None) is ("evil" not in reference)
    assert refused(Api.CHAT, message(image(f"https://example.com/{long}")))


@pytest.mark.parametrize("spelling", ["\\/", "\\u002f", "\\u002F", "/"])
@pytest.mark.parametrize("blocks", [4, 3000, 3001, 3002, 3003])
def test_base64_may_be_spelled_as_json_libraries_do(spelling: str, blocks: int) -> None:
    text = "iVBO" + "Rw0/" * blocks + "\\u002b\\n\\r\\u003d"
    body = json.dumps(message(image("@"))).replace('"@"', f'"{text.replace("/", spelling)}"')
    assert refused(Api.CHAT, body.encode()) is None


@given(st.binary(max_size=40))
def test_all_base64_passes_unless_it_could_be_a_path(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    path = text.startswith("/") and not text.startswith("/9j")
    assert (refused(Api.CHAT, message(image(text))) is None) is not path


# -- places -------------------------------------------------------------------------------------------

KEYS = [
    "image_url", "video_url", "audio_url", "file_url", "input_image", "input_audio", "input_video", "image",
    "video", "audio", "file", "source",
]  # fmt: skip
CHATS = [Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS, Api.EMBEDDINGS, Api.POOLING, Api.CLASSIFY, Api.TOKENIZE]


@pytest.mark.parametrize("api", CHATS)
@pytest.mark.parametrize("key", KEYS)
def test_every_kind_of_medium_is_looked_at(api: Api, key: str) -> None:
    where = f"messages[1].content[1].{key}"
    for inner in ("url", "file_url", "file_data", "path"):
        assert refused(api, message({"text": "x"}, {key: {inner: EVIL}})) == where
        assert refused(api, message({"text": "x"}, {key: {inner: DATA}})) is None
    assert refused(api, message({"text": "x"}, {key: [EVIL]})) == where
    assert refused(api, message({"text": "x"}, {key: {"url": [EVIL]}})) == where
    assert refused(api, message({"text": "x"}, {key: {"url": {"url": EVIL}}})) == where
    assert refused(api, message({"text": "x"}, {key: DATA})) is None
    assert refused(api, message({"text": "x"}, {key: None})) is None
    assert refused(api, message({"text": "x"}, {key: EVIL})) == (where if key != "source" else None)


@pytest.mark.parametrize("key", ['"image_url"', '"\\u0069mage_url"', '"image\\u005furl"'])
@pytest.mark.parametrize("content", ['"content"', '"\\u0063ontent"'])
@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_a_medium_is_found_however_it_is_written(key: str, content: str, blank: str) -> None:
    part = f"{blank}{{{blank}{key}{blank}:{blank}{json.dumps(EVIL)}{blank}}}{blank}"
    body = f'{{"model":"m","messages":[{{{content}:{blank}[{part}]}}]}}'
    assert refused(Api.CHAT, body.encode()) == "messages[0].content[0].image_url"


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ({"type": "image", "source": {"type": "url", "url": EVIL}}, ".source"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}, None),
        ({"type": "document", "source": {"type": "text", "data": f"see {EVIL}"}}, None),
        ({"type": "document", "source": {"content": [{"type": "text", "text": EVIL}]}}, None),
        ({"type": "document", "source": {"content": [{"source": {"url": EVIL}}]}}, ".source"),
        ({"type": "tool_result", "content": EVIL}, None),
        ({"type": "tool_result", "content": [{"type": "text", "text": EVIL}]}, None),
        (
            {"type": "tool_result", "content": [{"text": "a"}, {"source": {"url": EVIL}}]},
            ".content[1].source",
        ),
        (
            {"type": "tool_result", "content": [{"content": [{"image": EVIL}]}]},
            ".content[0].content[0].image",
        ),
        ({"type": "tool_use", "name": "fetch", "input": {"image_url": EVIL, "url": EVIL}}, None),
        ({"type": "search_result", "source": EVIL, "title": "t", "content": [{"text": "x"}]}, None),
        ({"type": "web_search_result", "url": EVIL}, None),
        ({"type": "input_audio", "input_audio": {"data": "iVBO", "format": "wav"}}, None),
        ({"type": "file", "file": {"file_id": "file-1"}}, None),
        ({"type": "file", "file": {"file_data": "../../secret"}}, ".file"),
    ],
)
def test_anthropics_and_openais_parts(part: dict[str, Any], where: str | None) -> None:
    told = refused(Api.MESSAGES, message({"type": "text", "text": "x"}, part))
    assert told == (None if where is None else "messages[1].content[1]" + where)


@pytest.mark.parametrize(
    ("api", "member", "value", "where"),
    [
        (Api.RERANK, "documents", ["a {", {"content": [image(EVIL)]}], "[1].content[0].image_url"),
        (Api.RERANK, "documents", {"content": [image(EVIL)]}, ".content[0].image_url"),
        (Api.RERANK, "documents", [["a", image(EVIL)], "b"], "[0][1].image_url"),
        (Api.RERANK, "query", {"content": [{"text": "a"}, image(EVIL)]}, ".content[1].image_url"),
        (Api.SCORE, "text_1", [{"image": EVIL}], "[0].image"),
        (Api.SCORE, "text_2", {"content": [image(EVIL)]}, ".content[0].image_url"),
        (Api.EMBEDDINGS, "input", [{"text": "a", "image": EVIL}], "[0].image"),
        (Api.POOLING, "input", [{"text": "a"}, {"video": EVIL}], "[1].video"),
        (Api.CLASSIFY, "input", {"content": [image(EVIL)]}, ".content[0].image_url"),
    ],
)
def test_what_is_compared_may_hold_media(api: Api, member: str, value: object, where: str) -> None:
    body = {"model": "m", "query": "q", member: value}
    assert refused(api, body) == member + where
    assert refused(api, json.dumps(body).replace(EVIL, "https://example.com/x").encode()) is None


SYSTEMS = [Api.MESSAGES, Api.COUNT_TOKENS]


@pytest.mark.parametrize("api", SYSTEMS)
def test_what_anthropics_clients_say_to_the_system_is_content(api: Api) -> None:
    image_block = {"type": "image", "source": {"type": "url", "url": EVIL}}
    body = message() | {"system": [{"type": "text", "text": EVIL}, image_block]}
    assert refused(api, body) == "system[1].source"
    assert refused(api, body | {"system": image_block}) == "system.source"
    assert refused(api, json.dumps(body).replace(EVIL, "https://example.com/x").encode()) is None
    assert refused(api, body | {"system": EVIL}) is None


@pytest.mark.parametrize(
    ("api", "member"), [*((api, "images") for api in Api), (Api.CHAT, "image_data"), (Api.POOLING, "data")]
)
def test_media_beside_the_apis_are_media(api: Api, member: str) -> None:
    chat = message()
    for harmless in (
        None,
        DATA,
        "iVBO",
        "http://example.com/x",
        [],
        [DATA, "iVBO"],
        {"data": "iVBO", "id": 10},
    ):
        assert refused(api, chat | {member: harmless}) is None
    for harmful in (EVIL, "/etc/passwd", {"data": EVIL}, {"url": EVIL}, {"image": EVIL}, {"data": [EVIL]}):
        assert refused(api, chat | {member: harmful}) == member
        assert refused(api, chat | {member: [DATA, {"data": "iVBO", "id": 1}, harmful]}) == f"{member}[2]"
    assert refused(api, chat | {member: [[EVIL]]}) == f"{member}[0]"


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        ({"data": "iVBO", "data_format": "b64_json", "out_data_format": "b64_json"}, True),
        ({"data": "iVBO", "data_format": None}, True),
        ({"data": "https://example.com/x.tiff", "data_format": "url"}, True),
        ({"data": DATA, "data_format": "url"}, True),
        ({"input": [EVIL, "a text"], "return_tokens": True}, True),
        ({"data": EVIL, "data_format": "url"}, False),
        ({"data": EVIL, "data_format": "b64_json"}, False),
        ({"data": "iVBO", "data_format": "url"}, False),
        ({"data": "etc/passwd", "data_format": "path"}, False),
        ({"data": "etc/passwd", "data_format": {}}, False),
        ({"data": ["https://example.com/x"], "data_format": "url"}, False),
        ({"data_format": "path"}, False),
    ],
)
def test_what_plugins_take_at_pooling_is_the_data_itself_or_where_it_may_be_fetched(
    data: dict[str, object], passes: bool
) -> None:
    assert refused(Api.POOLING, {"model": "m", "data": data}) == (None if passes else "data")
    spelled = (
        json.dumps({"model": "m", "data": data})
        .replace('"path"', '"\\u0070ath"')
        .replace('"url"', '"ur\\u006c"')
    )
    assert refused(Api.POOLING, spelled.encode()) == (None if passes else "data")


TEXTS = [EVIL, f"![]({EVIL})", '{"image_url":"' + EVIL + '"}', '[{"image_url":{"url":"' + EVIL + '"}}]']


@pytest.mark.parametrize("text", TEXTS)
def test_texts_may_say_anything(text: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    chat = {
        "model": "m",
        "messages": [
            {"role": "user", "content": text},
            {"role": "user", "content": [{"type": "text", "text": text}, text]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": text, "tool_call_id": EVIL},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": text}}],
        "system": [{"type": "text", "text": text}],
        "metadata": {"image_url": EVIL},
    }
    for api in CHATS:
        assert refused(api, chat) is None
    for member in ("input", "documents", "text_2", "query"):
        for value in (text, [text, text], [[1, 2], [3]]):
            for api in (Api.EMBEDDINGS, Api.RERANK, Api.SCORE):
                assert refused(api, {"model": "m", member: value}) is None
    assert refused(Api.COMPLETIONS, {"model": "m", "prompt": [text]}) is None


# -- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [[5, {}], [True, {}], [None, {}], [[[{}]]], [{"x": 1}, 5]])
def test_what_is_no_content_is_refused_since_it_cannot_be_searched(content: object) -> None:
    assert refused(Api.CHAT, {"model": "m", "messages": [{"content": content}]}) == "messages[0].content"


@pytest.mark.parametrize("messages", ["hi", 5, {}, ["hi"], [[{"content": []}]]])
def test_nor_are_messages_that_are_none(messages: object) -> None:
    assert refused(Api.CHAT, {"model": "m", "messages": messages}) in ("messages", "messages[0]")


@pytest.mark.parametrize("levels", [media.DEPTH_MAX - 1, media.DEPTH_MAX, 400, 100_000])
def test_contents_within_contents_are_bounded(levels: int) -> None:
    body = b'{"model":"m","messages":[{"content":%b[{"image":"%b"}]%b}]}' % (
        b'[{"content":' * levels,
        EVIL.encode(),
        b"}]" * levels,
    )
    with pytest.raises(Refusal) as caught:
        decode(Api.CHAT, body)
    assert ("deep" in caught.value.message) is (levels >= media.DEPTH_MAX)


@pytest.mark.parametrize("items", ["{}," * 3 * media.PARTS_MAX + "{}", '"",{},' * media.PARTS_MAX + "{}"])
def test_parts_are_bounded(items: str) -> None:
    many = f'{{"model":"m","messages":[{{"content":[{items}]}}]}}'.encode()
    assert refused(Api.CHAT, many) == "messages[0].content"
    assert refused(Api.CHAT, message({"text": "x"}, "y")) is None


def test_what_was_read_before_takes_nothing_from_the_bound() -> None:
    most = {"messages": [{"content": [{}] * (media.PARTS_MAX - 2)}], "documents": [{}, "x"], "model": "m"}
    for _ in range(3):
        assert refused(Api.RERANK, most) is None


def test_texts_beside_parts_are_bounded() -> None:
    many = b'{"model":"m","documents":[{},%b"ab"]}' % (b'"ab",' * media.MIXED_ITEMS_MAX)
    tracemalloc.start()
    try:
        assert refused(Api.RERANK, many) == "documents"
        assert tracemalloc.get_traced_memory()[1] < 4 * len(many)
    finally:
        tracemalloc.stop()


def test_lists_of_media_are_bounded() -> None:
    most = {"model": "m", "messages": [], "images": ["iVBO"] * (media.PARTS_MAX - 1)}
    assert refused(Api.CHAT, most) is None
    assert refused(Api.CHAT, most | {"images": ["iVBO"] * (media.PARTS_MAX + 1)}) == "images"


def test_a_large_image_is_never_copied() -> None:
    body = json.dumps(message({"text": "what is this?"}, image(DATA + "QUJD" * 5_000_000))).encode()
    tracemalloc.start()
    try:
        before = time.process_time()
        assert refused(Api.CHAT, body) is None
        took_s = time.process_time() - before
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()
    assert took_s < 0.5  # a tenth of it; not a measurement, but a whole pass in Python would take seconds


PARTS = st.recursive(
    st.sampled_from(["x", 5, None, EVIL, DATA, {"text": EVIL}]),
    lambda inner: (
        st.dictionaries(st.sampled_from(["text", "x", "content", *KEYS, "url"]), inner, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PARTS, st.sampled_from(Api), st.sampled_from(["messages", "content", "input", "documents"]))
def test_anything_passes_or_is_refused_by_name(value: object, api: Api, member: str) -> None:
    body: dict[str, object] = {"model": "m", member: value}
    if member == "content":
        body = {"model": "m", "messages": [{"content": value}]}
    refused(api, body)


# -- what media cost ----------------------------------------------------------------------------------

BASE64 = "iVBORw0KGgo" * 100_000


def blocks(*content: object) -> dict[str, Any]:
    """One message of Anthropic's API, with the image in a tool's result."""
    return message({"type": "tool_result", "tool_use_id": "t", "content": list(content)})


@pytest.mark.parametrize(
    ("api", "body", "count"),
    [
        (Api.CHAT, message(image(f"data:image/png;base64,{BASE64}")), 1),
        (Api.CHAT, message(*[image("https://example.com/a.png")] * 3), 3),
        (Api.CHAT, message({"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}), 1),
        (Api.CHAT, message({"type": "file", "file": {"filename": "a.pdf", "file_data": BASE64}}), 1),
        (Api.MESSAGES, message({"type": "image", "source": {"type": "base64", "data": BASE64}}), 1),
        (Api.MESSAGES, blocks({"type": "image", "source": {"type": "base64", "data": BASE64}}), 1),
        (Api.CHAT, {"model": "m", "messages": [], "images": [BASE64, BASE64]}, 2),
        (Api.CHAT, message({"type": "text", "text": "hi", "image_url": None}), 0),
    ],
)
def test_case_b96_media_cost_the_same_whatever_their_bytes(api: Api, body: object, count: int) -> None:
    raw = json.dumps(body).encode()
    said = decode(api, raw, Rules(domains=("example.com",)))
    assert (said.media_bytes > 0) is (count > 0)
    assert count * MEDIA_TOKENS <= said.prompt_tokens < count * MEDIA_TOKENS + 100


def test_case_b96_text_beside_media_counts_as_text() -> None:
    words = "word " * 4000
    said = decode(Api.CHAT, json.dumps(message(image(BASE64), {"type": "text", "text": words})).encode())
    assert 0 < said.prompt_tokens - MEDIA_TOKENS - len(words) // TOKEN_BYTES < 100


def test_a_picture_that_is_written_into_a_text_is_text() -> None:
    raw = json.dumps(message({"type": "text", "text": f"![](data:image/png;base64,{BASE64})"})).encode()
    assert decode(Api.CHAT, raw).prompt_tokens == len(raw) // TOKEN_BYTES


def test_parts_of_a_document_are_counted_once() -> None:
    inner = [
        {"type": "image", "source": {"type": "base64", "data": BASE64}},
        {"type": "text", "text": "a" * 8000},
    ]
    raw = json.dumps(message({"type": "document", "source": {"type": "content", "content": inner}})).encode()
    said = decode(Api.MESSAGES, raw)
    assert 2000 <= said.prompt_tokens - 2 * MEDIA_TOKENS < 2100
