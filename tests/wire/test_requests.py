"""Decoding: what is read, what is refused and how, and that nothing else ever comes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from maitred.config.tree import STEERING_FIELDS
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire import requests
from maitred.wire.media import PARTS_MAX
from maitred.wire.requests import COUNTED_BYTES_MAX, STRICT, TOKEN_BYTES, Body, Rules, decode
from tests.wire.streams import Searches

HEAD = b'{"model":"m",'
TALK = HEAD + b'"messages":[],'
APIS = st.sampled_from(Api)


def refusal(body: bytes, api: Api = Api.CHAT) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decode(api, body)
    assert caught.value.outcome is Outcome.BAD_REQUEST
    assert len(caught.value.message) <= requests.MESSAGE_CHARS_MAX
    return caught.value


def plain(api: Api, body: bytes, rules: Rules = STRICT) -> Body:
    """What is said of anything but the size of the prompt."""
    return structs.replace(decode(api, body, rules), prompt_tokens=0, prompt=(), said=Body("").said)


def test_a_chat_body_is_read() -> None:
    options = b'{ "include_usage": true, "x": 1 }'
    body = HEAD + b'"messages":[],"stream":true,"n":3,"stream_options": ' + options + b" }"
    assert plain(Api.CHAT, body) == Body("m", stream=True, sequences=3, wants_usage=True)
    assert not decode(Api.CHAT, body.replace(b"true, ", b"null, ")).wants_usage


@pytest.mark.parametrize("rest", [b'"x":1', b'"stream":null,"n":null,"stream_options":null'])
def test_absent_and_null_are_the_defaults(rest: bytes) -> None:
    assert plain(Api.CHAT, TALK + rest + b"}") == Body("m")
    assert plain(Api.COMPLETIONS, HEAD + rest + b"}") == Body("m")


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        ('"one"', 1),
        ("null", 1),
        ("[]", 1),
        ("[1, 2, 3]", 1),
        ('["a", "b\\", \\"c", "d"]', 3),
        ("[ [1, 2], [3]]", 2),
        ('\n[\t{"text": "a"}, {"image": "b"}]', 2),
    ],
)
def test_prompts_multiply_sequences(prompt: str, count: int) -> None:
    completions = f'{{"model":"m","messages":[],"n":2,"best_of":4,"prompt":{prompt}}}'.encode()
    assert decode(Api.COMPLETIONS, completions).sequences == 4 * count
    embeddings = f'{{"model":"m","n":2,"input":{prompt}}}'.encode()
    assert decode(Api.EMBEDDINGS, embeddings).sequences == count
    assert decode(Api.CHAT, completions).sequences == 2


@pytest.mark.parametrize("prompt", ['""', "[]", '"text"', "[1, 2]", '{"text": 1}'])
def test_lists_of_prompts_are_counted_up_to_a_size_and_never_too_low(prompt: str) -> None:
    for excess in (0, 1):
        count = (COUNTED_BYTES_MAX - 1) // (len(prompt) + 1) + excess
        value = f"[{','.join([prompt] * count)}]".encode()
        assert (len(value) > COUNTED_BYTES_MAX) is bool(excess)
        sequences = decode(Api.EMBEDDINGS, HEAD + b'"input":' + value + b"}").sequences
        assert sequences == (len(value) // 3 if excess else count)
        assert sequences >= count


@pytest.mark.parametrize(
    ("prompt", "least"),
    [
        (b'"%b"', 1),
        (b"[1,2,%b3]", 1),
        (b"[" + b" " * 200 + b"1,2,%b3]", 1),
        (b"%b[1]", 1),
        (b'["%b"]', 2),
        (b'[%b"a","b"]', 2),
        (b"[%b[1],[2]]", 2),
    ],
)
def test_huge_prompts_that_are_surely_one_count_as_one(prompt: bytes, least: int) -> None:
    value = prompt % (b" " * COUNTED_BYTES_MAX)
    sequences = decode(Api.COMPLETIONS, HEAD + b'"prompt":' + value + b"}").sequences
    assert sequences == 1 if least == 1 else sequences >= least


def test_the_last_of_two_keys_counts() -> None:
    body = rb'{"model":"a","messages":null,"n":2,"\u006dodel":"b","n":5,"messages":[]}'
    assert plain(Api.CHAT, body) == Body("b", sequences=5)


@pytest.mark.parametrize("value", ["9" * 23, "1e999", "-0.0", '"\\u0000"', '"\\ud83d\\ude00"', '"é"'])
def test_odd_values_that_are_not_read_pass(value: str) -> None:
    body = TALK + f'"seed":{value},"seed":{value}}}'.encode()
    assert plain(Api.CHAT, body) == Body("m")


@pytest.mark.parametrize(
    ("rest", "param"),
    [
        ('"model":1', "model"),
        ('"model":null', "model"),
        ('"model":""', "model"),
        ('"stream":"yes"', "stream"),
        ('"n":0', "n"),
        ('"n":129', "n"),
        ('"n":1.0', "n"),
        ('"n":true', "n"),
        ('"n_predict":1.5', "n_predict"),
        (f'"n":{"9" * 5000}', "n"),
        ('"best_of":0', "best_of"),
        ('"stream_options":[]', "stream_options"),
        ('"stream_options":{"include_usage":1}', "stream_options.include_usage"),
    ],
)
def test_a_wrong_member_is_named(rest: str, param: str) -> None:
    assert refusal(HEAD + rest.encode() + b"}", Api.COMPLETIONS).param == param


CONVERSATIONS = [Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS]
NAMELESS = [Api.RERANK, Api.SCORE, Api.CLASSIFY, Api.POOLING, Api.TOKENIZE, Api.DETOKENIZE]


@pytest.mark.parametrize("api", [api for api in Api if api not in NAMELESS])
def test_a_missing_model_is_said_as_clients_know_it(api: Api) -> None:
    error = refusal(b"{}", api)
    assert (error.message, error.param) == ("you must provide a model parameter", "model")


@pytest.mark.parametrize("api", CONVERSATIONS)
@pytest.mark.parametrize("rest", ['"x":1', '"messages":null', '"messages":[],"messages":null'])
def test_a_conversation_without_messages_is_refused(api: Api, rest: str) -> None:
    error = refusal(HEAD + rest.encode() + b"}", api)
    assert error.param == "messages"
    assert error.message.startswith("messages: ")


@pytest.mark.parametrize("api", [api for api in Api if api not in CONVERSATIONS])
def test_elsewhere_there_need_be_none(api: Api) -> None:
    assert decode(api, HEAD + b'"messages":null}').model == "m"


@pytest.mark.parametrize("api", CONVERSATIONS)
def test_an_empty_conversation_is_the_engines_to_judge(api: Api) -> None:
    assert decode(api, HEAD + b'"messages":[]}').model == "m"


@pytest.mark.parametrize("api", NAMELESS)
def test_where_engines_know_one_model_it_may_be_missing(api: Api) -> None:
    assert plain(api, b'{"content":"Hello"}') == Body("")


@pytest.mark.parametrize("api", [Api.MESSAGES, Api.COUNT_TOKENS])
def test_of_anthropics_bodies_model_and_stream_are_read(api: Api) -> None:
    body = plain(api, HEAD + b'"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":8}')
    streams = api is Api.MESSAGES
    assert body == Body("m", stream=streams, wants_usage=streams, output_tokens_max=8 if streams else 0)


@pytest.mark.parametrize(
    ("api", "member"),
    [
        (Api.CLASSIFY, "input"),
        (Api.POOLING, "input"),
        (Api.RERANK, "documents"),
        (Api.RERANK, "texts"),
        (Api.SCORE, "text_2"),
        (Api.SCORE, "items"),
    ],
)
def test_what_is_judged_one_by_one_counts_one_by_one(api: Api, member: str) -> None:
    for value, count in (('"a"', 1), ('["a","b","c"]', 3), ('{"content":[{"text":"a"}]}', 1), ("null", 1)):
        assert decode(api, f'{{"query":"q","{member}":{value}}}'.encode()).sequences == count


# -- tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "rest", "tokens"),
    [
        (Api.CHAT, '"max_tokens":5', 5),
        (Api.CHAT, '"max_completion_tokens":6,"max_tokens":5', 6),
        (Api.CHAT, '"max_tokens":5,"max_completion_tokens":null', 5),
        (Api.CHAT, '"max_tokens":null', 0),
        (Api.CHAT, '"max_tokens":5,"max_completion_tokens":0', 0),
        (Api.COMPLETIONS, '"max_tokens":5,"max_completion_tokens":"no word of this API"', 5),
        (Api.MESSAGES, '"max_tokens":5', 5),
        (Api.EMBEDDINGS, '"max_tokens":"no word of this API"', 0),
    ],
)
def test_what_an_answer_may_have_is_read(api: Api, rest: str, tokens: int) -> None:
    assert decode(api, TALK + rest.encode() + b"}").output_tokens_max == tokens


@pytest.mark.parametrize("value", ["-1", '"5"', "true", "1.5", "[]", str(2**31)])
@pytest.mark.parametrize(
    ("api", "key"),
    [
        (Api.CHAT, "max_tokens"),
        (Api.CHAT, "max_completion_tokens"),
        (Api.COMPLETIONS, "max_tokens"),
        (Api.MESSAGES, "max_tokens"),
    ],
)
def test_a_bound_that_is_none_is_refused_by_name(api: Api, key: str, value: str) -> None:
    assert refusal(TALK + f'"{key}":{value}}}'.encode(), api).param == key


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS, Api.MESSAGES, Api.EMBEDDINGS, Api.RERANK])
def test_a_prompt_is_estimated_from_the_bytes_of_all_that_is_said(api: Api) -> None:
    body = TALK + b'"prompt":"a","input":["b"],"tools":["' + b"x" * 4000 + b'"]}'
    said = decode(api, body)
    assert (said.prompt_tokens, said.prompt_exact, said.media_bytes) == (len(body) // TOKEN_BYTES, False, 0)


@pytest.mark.parametrize(
    ("value", "prompts", "tokens"),
    [
        ("[1,2, 3]", 1, 3),
        ("[[1,2,3],[4,5]]", 2, 5),
        ("\n[ [1] ]", 1, 1),
        ('["a,b","c"]', 2, None),
        ('"[1,2]"', 1, None),
        ('[[1],"one, two"]', 2, None),
        ('{"prompt_token_ids":[1,2]}', 1, None),
        ("null", 1, None),
    ],
)
@pytest.mark.parametrize(("api", "key"), [(Api.COMPLETIONS, "prompt"), (Api.EMBEDDINGS, "input")])
def test_tokens_that_are_listed_are_counted(
    api: Api, key: str, value: str, prompts: int, tokens: int | None
) -> None:
    body = HEAD + f'"{key}":{value},"x":[1,2,3]}}'.encode()
    said = decode(api, body)
    assert said.prompts == prompts
    assert said.prompt_exact is (tokens is not None)
    assert said.prompt_tokens == (len(body) // TOKEN_BYTES if tokens is None else tokens)


# -- what steers ------------------------------------------------------------------------------------


def member(path: str, value: str) -> bytes:
    """A member as JSON; a dot in its path leads into an object."""
    outer, dot, inner = path.partition(".")
    return f'"{outer}":{{"{inner}":{value}}}'.encode() if dot else f'"{outer}":{value}'.encode()


VALUES = ["1", "0", "1.5", "true", "false", '""', '"x"', "{}", '{"a":[1]}', "[]", "123456789012345678901"]


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("field", STEERING_FIELDS)
def test_what_steers_the_engine_is_refused_by_name(api: Api, field: str) -> None:
    for value in ("7", "[]", '"x"'):
        error = refusal(HEAD + member(field, value) + b"}", api)
        assert error.param == field
        assert error.message == f"{field}: clients may not set this here (trust.fields)"


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("field", STEERING_FIELDS)
def test_null_steers_nothing(api: Api, field: str) -> None:
    assert decode(api, TALK + member(field, "null") + b"}").model == "m"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["priority", "\\u0070riority", "priorit\\u0079"])
@pytest.mark.parametrize("before", ["", '"priority":null,', '"prio\\u0072ity":null,', '"n":1,'])
@pytest.mark.parametrize("rest", ["", ',"priority":null', ',"n":1'])
def test_it_is_found_however_it_is_written(value: str, key: str, before: str, rest: str) -> None:
    assert refusal(TALK + f'{before}"{key}" : {value}{rest}}}'.encode()).param == "priority"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("outer", ["chat_template_kwargs", "chat_templat\\u0065_kwargs"])
@pytest.mark.parametrize("inner", ["tokenize", "t\\u006fkenize"])
@pytest.mark.parametrize("others", ['"x":1,', '"tokenize":null,'])
def test_so_it_is_inside_another_member(value: str, outer: str, inner: str, others: str) -> None:
    steers = f'"{outer}":{{{others}"{inner}":{value}}}'
    for members in (steers, f'"chat_template_kwargs":{{}},{steers}', f'{steers},"chat_template_kwargs":null'):
        assert refusal(TALK + members.encode() + b"}").param == "chat_template_kwargs.tokenize"


def test_what_is_inside_is_allowed_by_its_path() -> None:
    rules = Rules(fields=("chat_template_kwargs.chat_template",))
    body = TALK + b'"chat_template_kwargs":{"chat_template":"x"}}'
    assert plain(Api.CHAT, body, rules) == Body("m")
    with pytest.raises(Refusal, match=r"^chat_template: "):
        decode(Api.CHAT, TALK + b'"chat_template":"x"}', rules)
    with pytest.raises(Refusal, match=r"^chat_template_kwargs.tokenize: "):
        decode(Api.CHAT, body.replace(b"}}", b',"tokenize":true}}'), rules)


@pytest.mark.parametrize("value", ["1", '"x"', "[]", "true"])
def test_arguments_of_the_template_are_an_object(value: str) -> None:
    assert refusal(TALK + f'"chat_template_kwargs":{value}}}'.encode()).param == "chat_template_kwargs"


@pytest.mark.parametrize("value", VALUES)
def test_what_is_allowed_passes_and_nothing_else(value: str) -> None:
    rules = Rules(fields=("priority", "cache_salt"))
    body = TALK + f'"priority":{value},"cache_salt":{value}}}'.encode()
    assert plain(Api.CHAT, body, rules) == Body("m")
    with pytest.raises(Refusal, match=r"^rid: "):
        decode(Api.CHAT, body[:-1] + b',"rid":1}', rules)


@pytest.mark.parametrize(
    "member",
    [
        '"chat_template_kwargs":{"priority":1,"enable_thinking":false,"x":{"tokenize":true}}',
        '"metadata":{"rid":"x"}',
        '"messages":[{"priority":1}]',
        '"x":"rid"',
    ],
)
def test_only_the_members_themselves_steer(member: str) -> None:
    assert plain(Api.CHAT, TALK + member.encode() + b"}") == Body("m")


# -- how many -----------------------------------------------------------------------------------------


def test_messages_are_bounded_whatever_was_read_before() -> None:
    most = HEAD + b'"messages":[' + b"{}," * (PARTS_MAX - 1) + b"{}]}"
    for _ in range(3):
        assert plain(Api.CHAT, most) == Body("m")
        assert str(PARTS_MAX) in refusal(most.replace(b"[{}", b"[{},{}", 1)).message
        assert plain(Api.CHAT, HEAD + b'"messages":[{}]}') == Body("m")


def test_nobody_gets_round_the_count() -> None:
    assert refusal(HEAD + b'"messages":[{"(place)":0}]}').param


@pytest.mark.parametrize(
    ("body", "byte"),
    [
        (b"", 0),
        (b"nul", 3),
        (b'{"model":"m"', 12),
        (HEAD + b'"x":"\xff"}', 18),
        (HEAD + b'"x":"\xed\xa0\x80"}', 18),
        (HEAD + b'"x":"\x00"}', 18),
        (HEAD + b'"x":"\n"}', 18),
        (HEAD + b'"x":01}', 18),
        (HEAD + b'"x":NaN}', 17),
        (HEAD + rb'"x":"\ud800"}', 18),
        (HEAD + rb'"x":"\\ud800', 25),
        (HEAD + rb'"x":"\ud83d\ude00', 30),
        (b'{"model":"m"}}', 14),
    ],
)
def test_broken_json_is_refused_where_it_breaks(body: bytes, byte: int) -> None:
    error = refusal(body)
    assert f"(byte {byte})" in error.message
    assert error.param is None


def test_half_a_surrogate_pair_is_found_wherever_it_stands() -> None:
    for after in range(40):
        error = refusal(HEAD + rb'"x":"\ud800"}' + b" " * after)
        assert ("half of" in error.message) is (after < 4)
        assert ("hex escape" in error.message) is (after >= 4)


def test_only_the_end_is_searched_for_half_a_surrogate_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest was read without complaint, and it may be large."""
    searches = Searches(requests._HALF_PAIR)
    monkeypatch.setattr(requests, "_HALF_PAIR", searches)
    assert "ends too early" in refusal(HEAD + b'"x":"' + b"x" * 1000).message
    assert 0 < searches.searched_bytes <= 12


def test_a_byte_order_mark_is_called_by_its_name() -> None:
    assert "byte order mark" in refusal(b'\xef\xbb\xbf{"model":"m"}').message


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"secret"'])
def test_only_objects_are_bodies(body: bytes) -> None:
    assert refusal(body).message.startswith("the body: expected `object`")


@pytest.mark.parametrize("member", [b'"x":%b', b'"stream_options":{"x":%b}', b'"prompt":%b'])
def test_depth_is_refused_and_not_a_crash(member: bytes) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert "deep" in refusal(HEAD + member % deep + b"}", Api.COMPLETIONS).message


def said(api: Api, body: bytes) -> str:
    """What came of a body: the refusal's words, or "" when it was read. Anything else is a failure."""
    try:
        assert decode(api, body).model or api in NAMELESS
    except Refusal as error:
        return f"{error.outcome} {error.message} {error.param}"
    return ""


@given(APIS, st.binary())
def test_arbitrary_bytes_are_refused(api: Api, body: bytes) -> None:
    words = said(api, body)
    assert words.startswith("Outcome.BAD_REQUEST") or (api in NAMELESS and isinstance(json.loads(body), dict))


@given(APIS, st.sampled_from(requests.KEYS_READ), st.integers(0, 60), st.binary(max_size=3))
def test_damaged_bodies_give_a_body_or_a_refusal(api: Api, key: str, at: int, damage: bytes) -> None:
    whole = json.dumps({"model": "m", key: [{"content": 'canary "canary"'}], "n": 1}).encode()
    words = said(api, whole[:at] + damage + whole[at:])
    assert words.startswith("Outcome.BAD_REQUEST") or not words
    assert "canary" not in words
