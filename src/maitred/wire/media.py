"""Media in a request: an engine may only be made to fetch what the operator lets it fetch.

Engines fetch the images, sounds and films that a request refers to, from inside the operator's network. So a
reference in a place where an engine would follow one must hold the data itself (`data:`, or base64 alone) or
name a host that was allowed. Texts may say what they like, tool calls too: nobody follows them.

Nothing is decoded that need not be. Texts and data stay the bytes of the body; of a part of a content only
what could refer to something is picked out, and only where a content is more than a text. On the way media
are counted, with their bytes, since no model reads base64 as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError, field
from msgspec.json import Decoder
from xxhash import xxh3_64_hexdigest

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.members import TOO_DEEP

PARTS_MAX = 16 * 1024
"""Bound of messages and parts in one body: a short one takes many times its bytes in memory."""
SHORT_BYTES_MAX = 512
"""What is no longer stands for itself in a prompt, medium or not."""
MIXED_ITEMS_MAX = 256 * 1024
"""Bound of the items of a list with texts beside parts, for there the texts are copied."""
DEPTH_MAX = 8
"""Bound of contents within contents, for each is read again."""
REFERENCE_BYTES_MAX = 8 * 1024
"""What is longer can only be data, and by so many bytes it shows."""
TOO_MANY = f"more than {PARTS_MAX} messages and parts in the body"
NOT_ALLOWED = (
    "media may come in the request itself (data:) or from hosts that the operator has allowed (media.domains)"
)

NOTHING = Raw(b"null")
UNSAID: Any = b""  # which is joined in a third of the time that an empty Raw takes
"""Of what is rendered as it stands: where it is not there, as nothing."""
Never = Annotated[int, Meta(gt=0, lt=0)]
"""The type of a member that must not be there: no value is of it, and none is kept to find that out."""

_T = TypeVar("_T")
_free = [0] * PARTS_MAX


def refill() -> None:
    """Let PARTS_MAX messages and parts be read again.

    Each takes a place, and an IndexError ends the decoding at once when there is none left. So whoever meets
    one tries again after this: only what is too large fails then.
    """
    _free.extend([0] * (PARTS_MAX - len(_free)))


class Look:
    """One look through the contents of a body.

    `domains`: the hosts that may be asked for media, in lower case; each with all names below it. `parts`
    counts the media seen, `data_bytes` what they and the references to them take of the body.
    """

    __slots__ = ("data_bytes", "domains", "parts")

    def __init__(self, domains: tuple[str, ...]) -> None:
        self.domains = domains
        self.parts = self.data_bytes = 0

    def count(self, size: int) -> None:
        """Here is a medium of so many bytes."""
        self.parts += 1
        self.data_bytes += size


_Search = Callable[[Raw, Look, int], str | None]


class _Counted(Struct, gc=False):
    place: Never = field(name="(place)", default_factory=_free.pop)


class Message(_Counted, gc=False):
    """A message, of which only the content matters here; the rest is for who asks what a prompt is."""

    role: Raw = NOTHING
    content: Raw = NOTHING
    tool_calls: Raw = UNSAID


class _Part(_Counted, gc=False):
    image_url: Raw = NOTHING
    video_url: Raw = NOTHING
    audio_url: Raw = NOTHING
    file_url: Raw = NOTHING
    input_image: Raw = NOTHING
    input_audio: Raw = NOTHING
    input_video: Raw = NOTHING
    image: Raw = NOTHING
    video: Raw = NOTHING
    audio: Raw = NOTHING
    file: Raw = NOTHING
    source: Raw = NOTHING
    content: Raw = NOTHING
    output: Raw = NOTHING


class _Source(_Counted, gc=False):
    url: Raw = NOTHING
    file_url: Raw = NOTHING
    file_data: Raw = NOTHING
    path: Raw = NOTHING
    content: Raw = NOTHING


class _Data(_Counted, gc=False):
    """`data_format` says what `data` is: itself in base64, or where it is."""

    data: Raw = NOTHING
    data_format: Raw = NOTHING


_PLAIN = _Part()
_OTHER = {"place", "content", "output"}
_MEDIA = tuple(name for name in _Part.__struct_fields__ if name not in _OTHER)
_REFERENCES = tuple(name for name in _Source.__struct_fields__ if name not in _OTHER)

_part = Decoder(_Part).decode
_parts = Decoder(list[_Part]).decode
_mixed = Decoder(list[_Part | str | list[_Part | str]]).decode
_source = Decoder(_Source).decode
_data = Decoder(_Data).decode
_list = Decoder(list[Raw]).decode
_text = Decoder(str).decode

_ITSELF = (b'"b64_json"', bytes(NOTHING))

_is_text = re.compile(rb'"').match
_is_object = re.compile(rb"\{").match
_is_list = re.compile(rb"\[").match
is_nested = re.compile(rb"[\[{]").match
_has_object = re.compile(rb"\{").search
# Base64 in the ways JSON may spell it, cut anywhere. A path would begin with a slash, as only a JPEG does.
_is_base64 = re.compile(
    rb'"(?!(?:\\?/|\\u002[fF])(?!9j))'
    rb"(?:[A-Za-z0-9+/=_-]|\\[/nr]|\\u002[bBfF]|\\u003[dD])*+"
    rb'(?:"|(?:\\\w{0,5})?)'
).fullmatch
_url = re.compile(
    r"https?://((?:[a-z0-9_-]+\.)*+([a-z0-9_-]+))(?::[0-9]{1,5})?(?:[/?#][^\\\x00-\x20\x7f]*)?",
    re.ASCII | re.IGNORECASE,
).fullmatch
_is_number = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE).fullmatch


def check(messages: Sequence[Message], look: Look) -> None:
    """Raise Refusal, naming the place, when one of the messages refers to what may not be fetched."""
    for at, message in enumerate(messages):
        if is_nested(message.content):
            check_content(f"messages[{at}].content", message.content, look)


def check_content(name: str, content: Raw, look: Look) -> None:
    """Do the same for one content, or for a list of them: texts, parts, lists of parts."""
    _check(name, content, look, _in_content)


def check_data(name: str, value: Raw, look: Look) -> None:
    """Do the same for one medium, or a list of them, that is nobody's content."""
    _check(name, value, look, _in_data)


def rendered(content: Raw) -> list[Raw | bytes]:
    """What a content that was checked is to a prompt: itself, or its parts with media by their hashes."""
    items = _list(content) if _is_list(content) else [content]
    parts = [piece for item in items for piece in _rendered_item(item)]
    return parts if any(isinstance(part, bytes) for part in parts) else [content]


def _rendered_item(item: Raw) -> list[Raw | bytes]:
    if memoryview(item).nbytes <= SHORT_BYTES_MAX or not _is_object(item):
        return [item]
    part = _counted(_part, item)
    if any(getattr(part, name) is not NOTHING for name in _MEDIA):
        return [xxh3_64_hexdigest(item).encode()]
    inside = rendered(part.content)
    return [item] if inside[0] is part.content else inside


def _check(name: str, value: Raw, look: Look, search: _Search) -> None:
    try:
        below = search(value, look, 0)
    except IndexError:
        _refuse(name, TOO_MANY)
    except RecursionError:  # the same bytes passed before, on a shorter stack
        _refuse(name, TOO_DEEP)
    except DecodeError:
        _refuse(name, "neither a text nor a list of texts and parts")
    if below is not None:
        _refuse(name + below, NOT_ALLOWED)


def _in_content(content: Raw, look: Look, depth: int) -> str | None:
    """Return the path from here to the first reference that is not allowed, None when all are."""
    if not is_nested(content) or not _has_object(content):
        return None
    if depth == DEPTH_MAX:
        raise RecursionError
    if _is_object(content):
        return _in_part(_counted(_part, content), look, depth)
    return _in_list(_items(content), look, depth)


def _items(content: Raw) -> Sequence[_Part | str | list[_Part | str]]:
    try:
        return _counted(_parts, content)
    except ValidationError:  # not of parts alone, which is rare
        if bytes(content).count(b",") >= MIXED_ITEMS_MAX:
            raise IndexError from None
        return _counted(_mixed, content)


def _counted(decode: Callable[[Raw], _T], content: Raw) -> _T:
    try:
        return decode(content)
    except IndexError:
        refill()
    return decode(content)


def _in_list(parts: Sequence[_Part | str | list[_Part | str]], look: Look, depth: int) -> str | None:
    for at, part in enumerate(parts):
        if part == _PLAIN or isinstance(part, str):
            continue
        inside = _in_list(part, look, depth) if isinstance(part, list) else _in_part(part, look, depth)
        if inside is not None:
            return f"[{at}]{inside}"
    return None


def _in_part(part: _Part, look: Look, depth: int) -> str | None:
    for name in _MEDIA:
        value = getattr(part, name)
        # A source that is a text names where a text was found; nobody looks it up.
        cited = name == "source" and _is_text(value)
        if value is not NOTHING and not cited and not _is_allowed(value, look, depth):
            return f".{name}"
    for name in ("content", "output"):
        below = _in_content(getattr(part, name), look, depth + 1)
        if below is not None:
            return f".{name}{below}"
    return None


def _in_data(value: Raw, look: Look, depth: int) -> str | None:
    if not _is_list(value):
        return None if _is_data(value, look, depth) else ""
    if bytes(value).count(b",") >= PARTS_MAX:
        raise IndexError
    wrong = (f"[{at}]" for at, one in enumerate(_list(value)) if not _is_data(one, look, depth))
    return next(wrong, None)


def _is_data(value: Raw, look: Look, depth: int) -> bool:
    if not _is_object(value):
        return _is_allowed(value, look, depth)
    said = _counted(_data, value)
    if memoryview(said.data_format) in _ITSELF:
        harmless = _is_harmless(said.data, look)
    else:
        harmless = _is_text(said.data) is not None and _may_be_fetched(said.data, look)
    part = _counted(_part, value)
    return harmless and _is_allowed(value, look, depth) and _in_part(part, look, depth) is None


def _is_allowed(value: Raw, look: Look, depth: int) -> bool:
    """Whether a medium is data or where it may be fetched from: a reference, or an object with some."""
    size = memoryview(value).nbytes
    if not _is_object(value):
        if _is_text(value):
            look.count(size)
        return _is_harmless(value, look)
    source = _counted(_source, value)
    look.count(size - memoryview(source.content).nbytes)
    references = (getattr(source, name) for name in _REFERENCES)
    if not all(_is_harmless(reference, look) for reference in references):
        return False
    return _in_content(source.content, look, depth + 1) is None


def _is_harmless(reference: Raw, look: Look) -> bool:
    if not _is_text(reference):
        return not is_nested(reference)
    view = memoryview(reference)
    head = bytes(view[:REFERENCE_BYTES_MAX])
    if head.startswith(b'"data:') or _is_base64(head):
        return True
    return _may_be_fetched(reference, look)


def _may_be_fetched(reference: Raw, look: Look) -> bool:
    if memoryview(reference).nbytes > REFERENCE_BYTES_MAX:
        return False
    text = _text(reference)
    if text.startswith("data:"):
        return True
    url = _url(text)
    if url is None or _is_number(url[2]):  # a host whose last label is a number is an address
        return False
    host = url[1].lower()
    return any(host == domain or host.endswith("." + domain) for domain in look.domains)


def _refuse(param: str, message: str) -> NoReturn:
    raise Refusal(Outcome.BAD_REQUEST, f"{param}: {message}", param=param) from None
