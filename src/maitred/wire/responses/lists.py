"""Lists of items, a page at a time, and the queries that ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Raw, Struct
from msgspec.json import encode

from maitred.wire.responses.create import Include
from maitred.wire.responses.items import Item
from maitred.wire.responses.reading import refuse

Order: TypeAlias = Literal["asc", "desc"]

LIMIT, LIMIT_MAX = 20, 100
QUERY_FIELDS_MAX = 32
ID_CHARS_MAX = 128

_INCLUDES = Include.__args__  # type: ignore[attr-defined]
_BOOLEANS = {"true": True, "false": False}


class Page(Struct, frozen=True):
    """A page asked for: at most `limit` items in this order, those after the item `after`."""

    after: str | None = None
    limit: int = LIMIT
    order: Order = "desc"


class Resume(Struct, frozen=True):
    """How a response is asked for: whole, or as a stream of its events after this number."""

    stream: bool = False
    starting_after: int | None = None


def query(text: str) -> Page:
    """Read the query of a list. Raises Refusal."""
    said = _fields(text, ("after", "limit", "order"))
    order = said.get("order", "desc")
    if order not in ("asc", "desc"):
        refuse("asc or desc", "order")
    after = said.get("after")
    if after is not None and not 0 < len(after) <= ID_CHARS_MAX:
        refuse("this is no id", "after")
    limit = _number(said, "limit", LIMIT)
    if not 1 <= limit <= LIMIT_MAX:
        refuse(f"between 1 and {LIMIT_MAX}", "limit")
    return Page(after, limit, "asc" if order == "asc" else "desc")


def resume(text: str) -> Resume:
    """Read the query of GET /v1/responses/{id}. Raises Refusal."""
    said = _fields(text, ("stream", "starting_after", "include_obfuscation"))
    if _flag(said, "include_obfuscation"):
        refuse("not supported here", "include_obfuscation")
    stream = _flag(said, "stream")
    if "starting_after" not in said:
        return Resume(stream)
    if not stream:
        refuse("only with stream=true", "starting_after")
    return Resume(stream, _number(said, "starting_after", 0))


def page(items: Sequence[Item], *, has_more: bool) -> bytes:
    """Return a page of items as clients see it."""
    return encode(
        {
            "object": "list",
            "data": [Raw(item.data) for item in items],
            "first_id": items[0].id if items else "",
            "last_id": items[-1].id if items else "",
            "has_more": has_more,
        }
    )


def _fields(text: str, names: tuple[str, ...]) -> dict[str, str]:
    try:
        said = parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except (ValueError, UnicodeDecodeError):
        refuse("the query cannot be read")
    fields: dict[str, str] = {}
    for name, value in said:
        if name.removesuffix("[]") == "include":
            if value not in _INCLUDES:
                refuse("this value is not supported here", "include")
        elif name in names:
            fields[name] = value
        else:
            refuse("not supported here", name[:ID_CHARS_MAX])
    return fields


def _number(said: dict[str, str], name: str, default: int) -> int:
    value = said.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        refuse("this must be a whole number", name)
    return int(value)


def _flag(said: dict[str, str], name: str) -> bool:
    value = said.get(name, "false")
    if value not in _BOOLEANS:
        refuse("true or false", name)
    return _BOOLEANS[value]
