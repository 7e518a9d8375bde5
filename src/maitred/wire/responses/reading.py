"""Reading bodies of the stateful APIs: whatever is not known is refused by name, never ignored.

Types do the work: a Struct knows all its members, and has `None` for those that exist elsewhere but not here.
No message repeats a value of the body.
"""

from __future__ import annotations

import re
from typing import NoReturn, TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.members import TOO_DEEP
from maitred.wire.requests import check_utf8, syntax

NAME_CHARS_MAX = 64
"""How much of a member's name is repeated."""

_T = TypeVar("_T")
_QUOTED = re.compile(r" ?'.*'", re.DOTALL)
_AT = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
_NAMED = re.compile(r"^Object (contains unknown|missing required) field `(.*)`$", re.DOTALL)


class Closed(Struct, frozen=True, forbid_unknown_fields=True):
    """What has these members and no others."""


def read(decoder: Decoder[_T], raw: bytes, place: str = "") -> _T:
    """Decode one value that stands at `place` in the body; raise Refusal, naming what is wrong."""
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        said = str(error)
    except DecodeError as error:
        refuse(f"the body is not valid JSON: {syntax(raw, str(error))}")
    except RecursionError:
        refuse(TOO_DEEP)
    return _refuse_type(said, place)


def read_body(decoder: Decoder[_T], body: bytes) -> _T:
    """Decode a whole body."""
    if not body.isascii():
        check_utf8(body)
    return read(decoder, body)


def refuse(message: str, param: str | None = None) -> NoReturn:
    """Refuse the request because of `param`."""
    text = message if param is None else f"{param}: {message}"
    raise Refusal(Outcome.BAD_REQUEST, text, param=param) from None


def _refuse_type(error: str, place: str) -> NoReturn:
    """Say in our words what msgspec found."""
    found = _AT.search(error)
    said, path = (error[: found.start()], found[1]) if found is not None else (error, "")
    param = place + path
    if named := _NAMED.match(said):
        param = f"{param}.{named[2][:NAME_CHARS_MAX]}"
        said = "this is missing" if named[1].startswith("missing") else "not supported here"
    elif said.startswith("Expected `null`"):
        said = "not supported here"
    elif said.startswith("Invalid"):
        said = "this value is not supported here"
    else:
        said = _QUOTED.sub("", said)
        said = said[:1].lower() + said[1:]
    refuse(said, param.lstrip(".") or None)
