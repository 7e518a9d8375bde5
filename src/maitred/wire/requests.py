"""What the gateway reads of a request body: the few members it decides by, and not one more.

The hot path. Everything unread is skipped by msgspec and passes on as bytes, so this is also where a body is
proved to be JSON in UTF-8, before anything else trusts it. No message here repeats a byte of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, NoReturn, TypeAlias, TypeVar, cast

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError, defstruct, structs
from msgspec.json import Decoder

from maitred.config.tree import STEERING_FIELDS
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire import media
from maitred.wire.media import NOTHING, UNSAID, Look, Message, Never
from maitred.wire.members import TOO_DEEP

OUTPUT_KEYS = ("max_completion_tokens", "max_tokens")
"""How clients bound an answer; where both are said the first counts, as the engines have it."""

N_PREDICT = "n_predict"
"""llama.cpp's own word for it, which counts there before the others; below 0 for no bound."""

KEYS_READ = (
    "model", "stream", "stream_options", "n", "best_of", "prompt", "input", "messages",
    *OUTPUT_KEYS, N_PREDICT, "cache_salt"
)  # fmt: skip
"""Top-level keys that decisions rest on."""

SEQUENCES_MAX = 128
"""Bound of `n` and `best_of`."""

OUTPUT_TOKENS_MAX = 2**31 - 1
"""Bound of what a client may ask for; what engines take is less."""

TOKEN_BYTES = 4
"""Bytes of a body for each token of its prompt, as a guess: English, with its JSON around it."""

MEDIA_TOKENS = 1000
"""What an image or the like is taken to cost a model, whatever its size: a default between 85 and 1,600."""

MESSAGE_CHARS_MAX = 300
MODEL_MISSING = "you must provide a model parameter"
MESSAGES_MISSING = "messages: there must be a list of them"

COUNTED_BYTES_MAX = 64 * 1024
"""Prompts are counted one by one in lists up to this size: the 20,000 smallest take a millisecond."""

_BOM = b"\xef\xbb\xbf"

_Count = Annotated[int, Meta(ge=1, le=SEQUENCES_MAX)]
_Tokens = Annotated[int, Meta(ge=0, le=OUTPUT_TOKENS_MAX)]
_Predicted = Annotated[int, Meta(le=OUTPUT_TOKENS_MAX)]
_T = TypeVar("_T")


Rendered: TypeAlias = Raw | memoryview | bytes


class _Said(Struct, frozen=True):
    """What is read of the body of any API.

    `contents` names the members that may hold media besides the messages, `attached` those that are media
    themselves: words of some engines, which no API has.
    """

    contents: ClassVar[tuple[str, ...]] = ()
    attached: ClassVar[tuple[str, ...]] = ("images", "image_data")
    model: str = ""
    messages: list[Message] | None = None
    images: Raw = NOTHING
    image_data: Raw = NOTHING
    cache_salt: Raw = NOTHING
    prompt_cache_key: Raw = NOTHING

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        return Body(self.model, prompt_tokens=tokens, media_bytes=media_bytes, said=self, prompt=prompt)

    def before(self) -> list[Rendered]:
        """What templates put before the messages."""
        return []

    def hashed(self, prompt: Sequence[Rendered]) -> Sequence[Rendered]:  # noqa: ARG002 - see the others
        """The prompt as it stands, with media by their hashes."""
        parts = self.before()
        for message in self.messages or ():
            content = message.content
            if content >= _MORE_THAN_TEXT:
                parts += (message.role, *media.rendered(content), message.tool_calls)
            else:
                parts += (message.role, content, message.tool_calls)
        return parts


_NOBODY = _Said()


class Body(Struct, frozen=True, gc=False):
    """What a body says. `sequences`: answers asked for in all, an upper bound for huge lists of prompts.

    `model` is "" where none was said and none has to be. `wants_usage`: a stream is to tell it.
    `prompt_tokens` of all its `prompts`, an estimate unless `prompt_exact`; `media_bytes` of the body are no
    text of theirs. `output_tokens_max`: what one answer may have, 0 where it is not said;
    `output_tokens_most`: where several members may bound it, the most that one says: an engine may go by it.
    `prompt`: what engines make one of, as it stands. `said` keeps the bytes of the rest for who asks for it.
    """

    model: str
    stream: bool = False
    sequences: int = 1
    wants_usage: bool = False
    output_tokens_max: int = 0
    prompt_tokens: int = 0
    media_bytes: int = 0
    output_tokens_most: int = 0
    said: _Said = _NOBODY
    prompt: Sequence[Rendered] = ()
    prompt_exact: bool = False
    prompts: int = 1

    def cache_salt(self) -> str:
        """What the client would keep its cache apart by; only where it may say so. Raises Refusal."""
        raw = bytes(self.said.cache_salt)
        return _read(_TEXT, raw) if raw.startswith(b'"') else ""

    def session(self) -> bytes:
        """What it calls the conversation, as written; b"" for nothing."""
        key = bytes(self.said.prompt_cache_key)
        return key if key.startswith(b'"') and len(key) > len('""') else b""

    def rendered(self) -> Sequence[Rendered]:
        """What engines make a prompt of, in their order: tools, system, messages. Media by their hashes."""
        return self.said.hashed(self.prompt) if self.media_bytes else self.prompt


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Generating(_Said, frozen=True):
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Count | None = None
    max_tokens: _Tokens | None = None
    n_predict: _Predicted | None = None

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        options = self.stream_options
        wants_usage = options is not None and options.include_usage is True
        output, most = self.output()
        if self.n_predict is not None:
            most = OUTPUT_TOKENS_MAX if self.n_predict < 0 else max(most, self.n_predict)
        return Body(
            self.model,
            self.stream is True,
            self.n or 1,
            wants_usage,
            output,
            tokens,
            media_bytes,
            most,
            self,
            prompt,
        )

    def output(self) -> tuple[int, int]:
        """Of those members that all engines know: the bound of an answer, and the most that one says."""
        tokens = self.max_tokens or 0
        return tokens, tokens


class _Chat(_Generating, frozen=True):
    max_completion_tokens: _Tokens | None = None
    tools: Raw = UNSAID
    functions: Raw = UNSAID
    documents: Raw = UNSAID
    reasoning_effort: Raw = UNSAID

    def before(self) -> list[Rendered]:
        return [self.tools, self.functions, self.documents, self.reasoning_effort]

    def output(self) -> tuple[int, int]:
        other, tokens = self.max_tokens or 0, self.max_completion_tokens
        return (other, other) if tokens is None else (tokens, max(tokens, other))


class _Completions(_Generating, frozen=True):
    best_of: _Count | None = None
    prompt: Raw = NOTHING

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        prompt = [memoryview(self.prompt)[:-1]]  # it may go on where it ends now
        body = super().body(tokens, media_bytes, prompt)
        sequences = max(body.sequences, self.best_of or 1)
        return _with_prompts(body, self.prompt, sequences)

    def hashed(self, prompt: Sequence[Rendered]) -> Sequence[Rendered]:
        return prompt  # none is in a text


class _CountTokens(_Said, frozen=True):
    contents = ("system",)
    system: Raw = UNSAID


class _Messages(_CountTokens, frozen=True):
    stream: bool | None = None
    max_tokens: _Tokens | None = None
    tools: Raw = UNSAID

    def before(self) -> list[Rendered]:
        return [self.tools, self.system]

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        output = self.max_tokens or 0  # and these streams always tell their usage
        return Body(self.model, self.stream is True, 1, True, output, tokens, media_bytes, 0, self, prompt)


class _Inputs(_Said, frozen=True):
    contents = ("input",)
    input: Raw = NOTHING

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        return _with_prompts(super().body(tokens, media_bytes, prompt), self.input)


class _Pooling(_Inputs, frozen=True):
    """`data` is what plugins of vLLM take instead of `input`, or says where they find it."""

    attached = ("images", "image_data", "data")
    data: Raw = NOTHING


class _Responses(_Said, frozen=True):
    """What the gateway itself asks an engine's Responses API; the input's end moves on from turn to turn."""

    contents = ("input",)
    input: Raw = NOTHING
    instructions: Raw = NOTHING
    tools: Raw = NOTHING
    stream: bool | None = None
    max_output_tokens: _Tokens | None = None

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        prompt = [self.tools, self.instructions, memoryview(self.input)[:-1]]
        output = self.max_output_tokens or 0  # and these streams always tell their usage
        return Body(self.model, self.stream is True, 1, True, output, tokens, media_bytes, 0, self, prompt)

    def hashed(self, prompt: Sequence[Rendered]) -> Sequence[Rendered]:
        return prompt  # they are known by their bytes


class _Pairs(_Said, frozen=True):
    contents = (
        "query", "queries", "documents", "items", "texts", "text_1", "text_2", "data_1", "data_2"
    )  # fmt: skip
    query: Raw = NOTHING
    queries: Raw = NOTHING
    documents: Raw = NOTHING
    items: Raw = NOTHING
    texts: Raw = NOTHING
    text_1: Raw = NOTHING
    text_2: Raw = NOTHING
    data_1: Raw = NOTHING
    data_2: Raw = NOTHING

    def body(self, tokens: int, media_bytes: int, prompt: list[Rendered]) -> Body:
        pairs = max(_prompts(getattr(self, name)) for name in self.contents)
        return structs.replace(super().body(tokens, media_bytes, prompt), sequences=pairs, prompts=pairs)


_SHAPES: tuple[type[_Said], ...] = (
    _Chat, _Completions, _Inputs, _Messages, _CountTokens, _Pairs, _Pairs, _Inputs, _Pooling, _Said, _Said,
    _Responses,
)  # fmt: skip
"""What is read for each Api, by its number."""
_NAMELESS = frozenset({Api.RERANK, Api.SCORE, Api.CLASSIFY, Api.POOLING, Api.TOKENIZE, Api.DETOKENIZE})
"""Where some engines know no model, having only one."""
_CONVERSATIONS = frozenset({Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS})
"""Where there must be messages: llama.cpp answers 500 to none, which would seem to be its own fault."""
_TEXTS = frozenset({Api.CHAT, Api.COMPLETIONS})
"""Where media come in messages, or in a member that is only looked for."""
_POOLING = Api.POOLING  # members of an enumeration take twenty times as long to look up
_LIST = Decoder(list[Raw])
# Lists begin with it, objects and words with something behind it, texts and numbers with something before it.
# A bytearray compares itself with bytes where they are; no other look at the first of them is as quick.
_MORE_THAN_TEXT = bytearray(b"[")
_TEXT = Decoder(str)

# A value that is one prompt: no list, or a list that is empty or of numbers.
_ONE_PROMPT = re.compile(rb"[^\[]|\[\s*+[-\d\]]")
# An escaped high surrogate with no other escape behind it; behind a backslash it would be plain text.
_HALF_PAIR = re.compile(rb"(?<!\\)\\u[dD][89abAB]..(?!\\u)")
_PAIR_BYTES = 12


@cache
def _decoders(allowed: tuple[str, ...]) -> tuple[Decoder[_Said], ...]:
    """One for each Api; to all of them a steering field is an error unless it is allowed, or null."""
    closed = _closed(name for name in STEERING_FIELDS if name not in allowed)
    shapes = (defstruct("Body", closed, bases=(shape,), gc=False) for shape in _SHAPES)
    return tuple(Decoder(cast("type[_Said]", shape)) for shape in shapes)


def _closed(names: Iterable[str]) -> list[tuple[str, Any, None]]:
    """Return fields that take nothing but null, however often they come. A dot leads into an object."""
    fields: dict[str, list[str]] = {}
    for name in names:
        outer, dot, inner = name.partition(".")
        fields.setdefault(outer, []).extend([inner] if dot else [])
    return [
        (name, (defstruct("Object", _closed(inner)) if inner else Never) | None, None)
        for name, inner in fields.items()
    ]


class Rules(Struct, frozen=True):
    """What clients may do here that is refused otherwise.

    `fields`: those of STEERING_FIELDS they may set, `salted` whether "cache_salt" is one. `domains`: where
    engines may fetch media for them.
    """

    fields: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    decoders: tuple[Decoder[_Said], ...] = ()
    salted: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "decoders", _decoders(self.fields))
        structs.force_setattr(self, "salted", "cache_salt" in self.fields)


STRICT = Rules()


def decode(api: Api, body: bytes, rules: Rules = STRICT) -> Body:
    """Read `body`; raise Refusal when it is not a JSON object in UTF-8 or a member we read is wrong.

    A key that comes twice counts the last time, as the engines have it.
    """
    if not body.isascii():
        check_utf8(body)
    try:
        said = rules.decoders[api].decode(body)
    except (DecodeError, RecursionError, IndexError):
        said = _read(rules.decoders[api], body)  # which says what is wrong
    if not said.model and api not in _NAMELESS:
        raise Refusal(Outcome.BAD_REQUEST, MODEL_MISSING, param="model")
    look: Look | None = None
    prompt, messages = said.before(), said.messages
    if messages is not None:
        for message in messages:
            content = message.content
            if content >= _MORE_THAN_TEXT and look is None:
                look = Look(rules.domains)
                media.check(messages, look)
            prompt += (message.role, content, message.tool_calls)
    elif api in _CONVERSATIONS:
        raise Refusal(Outcome.BAD_REQUEST, MESSAGES_MISSING, param="messages")
    if said.images is not NOTHING or said.image_data is not NOTHING or api not in _TEXTS:
        look = _look_further(api, said, look, rules.domains)
    if look is None:
        return said.body(len(body) // TOKEN_BYTES, 0, prompt)
    text_bytes = max(0, len(body) - look.data_bytes)
    return said.body(text_bytes // TOKEN_BYTES + MEDIA_TOKENS * look.parts, look.data_bytes, prompt)


def _look_further(api: Api, said: _Said, look: Look | None, domains: tuple[str, ...]) -> Look | None:
    """Look for media outside of the messages, too."""
    for name in said.contents:
        content = getattr(said, name)
        if content is not NOTHING and content >= _MORE_THAN_TEXT:
            look = look or Look(domains)
            media.check_content(name, content, look)
    if said.images is not NOTHING or said.image_data is not NOTHING or api is _POOLING:
        look = look or Look(domains)
        for name in said.attached:
            media.check_data(name, getattr(said, name), look)
    return look


def _with_prompts(body: Body, value: Raw, sequences: int = 1) -> Body:
    """Say of `prompt` or `input` how many there are, and how many tokens where these are listed."""
    prompts, exact = _prompts(value), False
    tokens = body.prompt_tokens
    if value >= _MORE_THAN_TEXT:
        raw = bytes(value)
        if exact := raw.startswith(b"[") and b'"' not in raw:
            tokens = raw.count(b",") + 1
    return structs.replace(
        body, sequences=sequences * prompts, prompt_tokens=tokens, prompt_exact=exact, prompts=prompts
    )


def _prompts(value: Raw) -> int:
    """Count the prompts in `prompt` or `input`: one, unless it is a list of texts, token lists or objects.

    Of a list too large to be counted, as many as it could hold: never too few.
    """
    raw = memoryview(value)
    if _ONE_PROMPT.match(raw, 0, COUNTED_BYTES_MAX):
        return 1
    if raw.nbytes > COUNTED_BYTES_MAX:
        return raw.nbytes // 3  # two quotes or brackets and a comma
    return len(_read(_LIST, bytes(raw)))


def _read(decoder: Decoder[_T], raw: bytes, *, again: bool = True) -> _T:
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        _refuse_type(str(error))
    except DecodeError as error:
        _refuse(f"the body is not valid JSON: {syntax(raw, str(error))}")
    except RecursionError:
        _refuse(TOO_DEEP)
    except IndexError:
        if not again:
            _refuse(media.TOO_MANY)
    media.refill()
    return _read(decoder, raw, again=False)


def check_utf8(body: bytes) -> None:
    if body.startswith(_BOM):
        _refuse("the body begins with a byte order mark (byte 0)")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        at = error.start  # the error itself holds the whole body: it must not ride along as context
    else:
        return
    _refuse(f"the body is not valid UTF-8 (byte {at})")


def syntax(raw: bytes, error: str) -> str:
    """Word msgspec's complaint.

    It calls half a surrogate pair truncated input where the other half would not fit, so look for one there.
    """
    if "truncated" not in error:
        return error.removeprefix("JSON is malformed: ")
    if half := _HALF_PAIR.search(raw, len(raw) - _PAIR_BYTES):
        return f"half of a surrogate pair (byte {half.start()})"
    return f"it ends too early (byte {len(raw)})" if raw else "it is empty (byte 0)"


def _refuse_type(error: str) -> NoReturn:
    said, _, path = error.partition(" - at `$")
    param = path.strip(".`")
    if param in STEERING_FIELDS:
        _refuse(f"{param}: clients may not set this here (trust.fields)", param)
    _refuse(f"{param or 'the body'}: {said[:1].lower()}{said[1:]}", param or None)


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise Refusal(Outcome.BAD_REQUEST, message[:MESSAGE_CHARS_MAX], param=param) from None
