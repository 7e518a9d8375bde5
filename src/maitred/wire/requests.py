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

_EXACT_BYTES_MAX = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NOTHING = Raw()

_Count = Annotated[int, Meta(ge=1, le=SEQUENCES_MAX)]
_T = TypeVar("_T")


class Body(Struct, frozen=True):
    """What a body says. `sequences`: answers asked for in all. `stream_options`: the raw bytes sent."""

    model: str
    stream: bool = False
    sequences: int = 1
    wants_usage: bool = False
    stream_options: bytes | None = None


class _Chat(Struct):
    model: str = ""
    stream: bool | None = None
    stream_options: Raw = _NOTHING
    n: _Count | None = None


class _Completions(_Chat):
    best_of: _Count | None = None
    prompt: Raw = _NOTHING


class _Embeddings(Struct):
    model: str = ""
    input: Raw = _NOTHING


class _StreamOptions(Struct):
    include_usage: bool | None = None


_CHAT = Decoder(_Chat)
_COMPLETIONS = Decoder(_Completions)
_EMBEDDINGS = Decoder(_Embeddings)
_STREAM_OPTIONS = Decoder(_StreamOptions | None)
_LIST = Decoder(list[Raw])

_LIST_OF = re.compile(rb'\[\s*(["\[{])')
# An escaped high surrogate with no other escape behind it; behind a backslash it would be plain text. The
# check stands after `\u` because a pattern that begins with a literal is searched for 50 times as fast.
_HALF_PAIR = re.compile(rb"\\u(?<!\\\\u)[dD][89abAB]..(?!\\u)")


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
    stream_options = bytes(said.stream_options) or None
    options = _read(_STREAM_OPTIONS, stream_options, "stream_options") if stream_options else None
    if options is None:
        return Body(said.model, bool(said.stream), sequences)
    return Body(said.model, bool(said.stream), sequences, bool(options.include_usage), stream_options)


def _prompts(value: Raw) -> int:
    """Count the prompts in `prompt` or `input`: one, unless it is a list of texts, token lists or objects."""
    raw = bytes(value)
    match = _LIST_OF.match(raw)
    if match is None:
        return 1
    if len(raw) <= _EXACT_BYTES_MAX:
        return len(_read(_LIST, raw))
    # Counting exactly costs 56 bytes an element and would stall every stream: an upper bound will do.
    opener = match[1]
    return raw.count(opener) // 2 if opener == b'"' else raw.count(opener)


def _read(decoder: Decoder[_T], raw: bytes, within: str = "") -> _T:
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        _refuse_type(str(error), within)
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
    """Word msgspec's complaint. It calls half a surrogate pair truncated input, so look for one first."""
    if "truncated" not in error:
        return error.removeprefix("JSON is malformed: ")
    if half := _HALF_PAIR.search(raw):
        return f"half of a surrogate pair (byte {half.start()})"
    return f"it ends too early (byte {len(raw)})" if raw else "it is empty (byte 0)"


def _refuse_type(error: str, within: str) -> NoReturn:
    said, _, path = error.partition(" - at `$")
    param = ".".join(filter(None, (within, path.strip(".`"))))
    _refuse(f"{param or 'the body'}: {said[:1].lower()}{said[1:]}", param or None)


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise Refusal(Outcome.BAD_REQUEST, message[:MESSAGE_CHARS_MAX], param=param) from None
