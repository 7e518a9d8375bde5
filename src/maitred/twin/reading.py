"""Reading bodies, and refusing what cannot be read in the words of pydantic, which vLLM passes on.

Only members of the top level are told with their value.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec

from maitred.twin.errors import Wrong, invalid

PROBLEMS = {
    "float": ("float_parsing", "Input should be a valid number, unable to parse string as a number"),
    "int": ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
    "bool": ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
    "str": ("string_type", "Input should be a valid string"),
    "array": ("list_type", "Input should be a valid list"),
    "object": ("dict_type", "Input should be a valid dictionary"),
}
"""What pydantic says where msgspec expected a type."""

_missing = re.compile(r"missing required field `(\w+)`").search
_expected = re.compile(r"Expected `(\w+)").search
_at = re.compile(r"at `\$\.?([^`]*)`").search
T = TypeVar("T")


def read(body: bytes, shape: type[T]) -> T:
    """The body as this shape. Raises Wrong in pydantic's words."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(body, str(error)) from None


def _unreadable(body: bytes, error: str) -> Wrong:
    """What is wrong: not JSON, by Python's own complaint, or not of the shape, by msgspec's."""
    try:
        given = json.loads(body)
        json.dumps(given, ensure_ascii=False).encode()  # json takes half a surrogate pair for text
    except json.JSONDecodeError as no_json:
        context = {"error": no_json.msg}
        return invalid("json_invalid", f"body.{no_json.pos}", "JSON decode error", {}, ctx=context)
    except (ValueError, RecursionError):
        return invalid("json_invalid", "body.0", "JSON decode error", {}, ctx={"error": "Invalid text"})
    path = (match[1] if (match := _at(error)) else "").replace("[", ".").replace("]", "")
    if missing := _missing(error):
        where = ".".join(filter(None, ("body", path, missing[1])))
        return invalid("missing", where, "Field required", given)
    expected = _expected(error)
    kind, sentence = PROBLEMS.get(expected[1] if expected else "", ("value_error", error))
    value = given.get(path, given) if isinstance(given, dict) else given
    return invalid(kind, f"body.{path}".rstrip("."), sentence, value)
