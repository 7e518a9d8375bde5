"""What comes in as items: read in every form there is, and settled into the one in which items are kept.

Text becomes a list of parts, what was left out is said, and ids are ours, so that no id of a client or an
engine ever becomes a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, structs
from msgspec.json import Decoder, encode

from maitred.wire.responses.items import (
    PREFIXES,
    Compaction,
    InputImage,
    InputText,
    Item,
    ItemReference,
    KeptItem,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    Message,
    Mint,
    OutputText,
    Part,
    RefusalPart,
    SaidItem,
    Unseal,
    keep,
    unsealed,
)
from maitred.wire.responses.reading import read, refuse

INPUT_ITEMS_MAX = 10_000

_Bounded = Annotated[list[Raw], Meta(max_length=INPUT_ITEMS_MAX)]
SaidInput: TypeAlias = str | _Bounded | None
"""The type of an input in a body; `read_input` reads on."""


class _Peek(Struct):
    """What tells the kind of an item whose type was left out."""

    type: str | None = None
    role: str | None = None


_peek = Decoder(_Peek)
_said: Decoder[SaidItem] = Decoder(SaidItem)
_message, _reference = Decoder(Message), Decoder(ItemReference)
_kept: Decoder[KeptItem] = Decoder(KeptItem)


class Input(Struct, frozen=True):
    """The items of one request, read and not yet settled; `name` is that of the member they came in."""

    items: list[SaidItem] = []
    name: str = "input"

    @property
    def references(self) -> tuple[str, ...]:
        """Ids of the items it only refers to."""
        return tuple(item.id for item in self.items if isinstance(item, ItemReference))


def read_input(said: str | list[Raw] | None, name: str = "input") -> Input:
    """Read what stands at `name`: a text or a list of items. Raises Refusal."""
    if said is None:
        return Input()
    if isinstance(said, str):
        return Input([Message(role="user", content=said)])
    return Input([_read_item(bytes(raw), f"{name}[{at}]") for at, raw in enumerate(said)], name)


def _read_item(raw: bytes, place: str) -> SaidItem:
    peeked = read(_peek, raw, place)
    item: SaidItem
    if peeked.type is not None:
        item = read(_said, raw, place)
    elif peeked.role is not None:
        item = read(_message, raw, place)
    else:
        item = read(_reference, raw, place)
    if isinstance(item, Message):
        _check_parts(item, place)
    return item


def _check_parts(message: Message, place: str) -> None:
    """Only models say output, and only users show images."""
    if isinstance(message.content, str):
        return
    role = message.role
    for at, part in enumerate(message.content):
        is_output = isinstance(part, OutputText | RefusalPart)
        is_image = isinstance(part, InputImage)
        if (is_output and role != "assistant") or (is_image and role != "user"):
            refuse(f"not supported in a message of this role ({role})", f"{place}.content[{at}].type")


def settle(
    said: Input, mint: Mint, referenced: Mapping[str, bytes] = {}, unseal: Unseal = unsealed
) -> list[Item]:
    """Bring items into the form in which they are kept, under ids of ours.

    What they refer to is `referenced` and must all be there; it is copied. Approvals still name what they are
    of. Raises Refusal where a compaction is not ours to `unseal`.
    """
    for at, item in enumerate(said.items):
        if isinstance(item, Compaction):
            _check_seal(item, unseal, f"{said.name}[{at}]")
    renamed: dict[str | None, str] = {}
    return [_settle(_resolve(item, referenced), mint, renamed) for item in said.items]


def _check_seal(item: Compaction, unseal: Unseal, place: str) -> None:
    try:
        unseal(item.encrypted_content)
    except ValueError:
        refuse("this was not made here", f"{place}.encrypted_content")


def _resolve(item: SaidItem, referenced: Mapping[str, bytes]) -> KeptItem:
    return _kept.decode(referenced[item.id]) if isinstance(item, ItemReference) else item


def _settle(item: KeptItem, mint: Mint, renamed: dict[str | None, str]) -> Item:
    item_id = mint(PREFIXES[type(item)])
    if getattr(item, "status", UNSET) is None:
        item = structs.replace(item, status="completed")
    if isinstance(item, Message):  # as most are, of perhaps thousands
        return Item(item_id, encode(structs.replace(item, id=item_id, content=_parts(item))))
    if isinstance(item, McpApprovalRequest):
        renamed[item.id] = item_id
    elif isinstance(item, McpApprovalResponse | McpCall) and item.approval_request_id in renamed:
        item = structs.replace(item, approval_request_id=renamed[item.approval_request_id])
    return keep(item, item_id)


def _parts(message: Message) -> list[Part]:
    """The content as a list; what a model said is output, however the client called it."""
    content = message.content
    if message.role != "assistant":
        return [InputText(content)] if isinstance(content, str) else content
    if isinstance(content, str):
        return [OutputText(content)]
    return [OutputText(part.text) if isinstance(part, InputText) else part for part in content]
