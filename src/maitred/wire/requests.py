"""What the gateway reads of a request body: the few members it decides by, and not one more.

The hot path. Everything unread is skipped by msgspec and passes on as bytes, so this is also where a body is
proved to be JSON in UTF-8, before anything else trusts it. No message here repeats a byte of the body.
"""

from __future__ import annotations

import re
from typing import Annotated, NoReturn, TypeVar

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire.members import TOO_DEEP

KEYS_READ = ("model", "stream", "stream_options", "n", "best_of", "prompt", "input")
"""Top-level keys that decisions rest on."""

SEQUENCES_MAX = 128
"""Bound of `n` and `best_of`."""

MESSAGE_CHARS_MAX = 300

COUNTED_BYTES_MAX = 64 * 1024
"""Prompts are counted one by one in lists up to this size: the 20,000 smallest take a millisecond."""

_BOM = b"\xef\xbb\xbf"
_NULL = Raw(b"null")

_Count = Annotated[int, Meta(ge=1, le=SEQUENCES_MAX)]
_T = TypeVar("_T")


class Body(Struct, frozen=True):
    """What a body says. `sequences`: answers asked for in all, an upper bound for huge lists of prompts."""

    model: str
    stream: bool = False
    sequences: int = 1
    wants_usage: bool = False


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Chat(Struct):
    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Count | None = None


class _Completions(_Chat):
    best_of: _Count | None = None
    prompt: Raw = _NULL


class _Embeddings(Struct):
    model: str = ""
    input: Raw = _NULL


_CHAT = Decoder(_Chat)
_COMPLETIONS = Decoder(_Completions)
_EMBEDDINGS = Decoder(_Embeddings)
_LIST = Decoder(list[Raw])

# A value that is one prompt: no list, or a list that is empty or of numbers.
_ONE_PROMPT = re.compile(rb"[^\[]|\[\s*+[-\d\]]")
# An escaped high surrogate with no other escape behind it; behind a backslash it would be plain text.
_HALF_PAIR = re.compile(rb"(?<!\\)\\u[dD][89abAB]..(?!\\u)")
_PAIR_BYTES = 12


def decode(api: Api, body: bytes) -> Body:
    """Read `body`; raise Refusal when it is not a JSON object in UTF-8 or a member we read is wrong.

    A key that comes twice counts the last time, as the engines have it.
    """
    said = _decode(api, body)
    if not said.model:
        raise Refusal(Outcome.BAD_REQUEST, "you must provide a model parameter", param="model")
    return said


def _decode(api: Api, body: bytes) -> Body:
    if not body.isascii():
        _check_utf8(body)
    if api is Api.EMBEDDINGS:
        embeddings = _read(_EMBEDDINGS, body)
        return Body(embeddings.model, sequences=_prompts(embeddings.input))
    if api is Api.CHAT:
        said = _read(_CHAT, body)
        sequences = said.n or 1
    else:
        said = completions = _read(_COMPLETIONS, body)
        sequences = max(said.n or 1, completions.best_of or 1) * _prompts(completions.prompt)
    options = said.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    return Body(said.model, bool(said.stream), sequences, wants_usage)


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


def _read(decoder: Decoder[_T], raw: bytes) -> _T:
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        _refuse_type(str(error))
    except DecodeError as error:
        _refuse(f"the body is not valid JSON: {_syntax(raw, str(error))}")
    except RecursionError:
        _refuse(TOO_DEEP)


def _check_utf8(body: bytes) -> None:
    if body.startswith(_BOM):
        _refuse("the body begins with a byte order mark (byte 0)")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        at = error.start  # the error itself holds the whole body: it must not ride along as context
    else:
        return
    _refuse(f"the body is not valid UTF-8 (byte {at})")


def _syntax(raw: bytes, error: str) -> str:
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
    _refuse(f"{param or 'the body'}: {said[:1].lower()}{said[1:]}", param or None)


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise Refusal(Outcome.BAD_REQUEST, message[:MESSAGE_CHARS_MAX], param=param) from None
