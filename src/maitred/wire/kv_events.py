"""What engines publish of their KV caches: one message's payload, decoded.

vLLM's words, which SGLang speaks too: a msgpack array of wall time, events and rank. An event is a map with
its `type`, or an array that begins with it and leaves out what is unset at the end. Engines add fields and
events with every version. What is not known is counted and passed over, and so is what makes no sense: an
event that is lost makes a guess less good, and nothing worse may come of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, msgpack

from maitred.wire.prefix import extra

Hash = int | bytes
"""An engine's name of a block, of no meaning to anybody else."""

BLOCK_TOKENS_MAX = 1 << 16
NAME_CHARS_MAX = 256
GROUPS_MAX = 256
YEAR_10000_S = 253_402_300_800.0
MEDIUM = "GPU"
"""Where a block is of which nothing is said."""
WINDOWED = ("sliding_window", "sliding_window_mla", "chunked_local_attention", "mamba")
"""Kinds of layers that do not keep all of a prompt."""


class Stored(Struct, frozen=True, gc=False):
    """Blocks came into a cache. `tokens` are those of all of them, none where only the place is new.

    `parent` is the block before the first of them. `extras`: for each, what else it depends on; () if none
    does. `medium` and `group` say where it is kept and for which layers; `windowed`: for layers that look
    back only so far.
    """

    hashes: Sequence[Hash]
    parent: Hash | None
    tokens: array[int]
    block_tokens: int
    adapter: str
    extras: Sequence[bytes]
    medium: str
    group: int
    windowed: bool


class Removed(Struct, frozen=True, gc=False):
    """Blocks left a place of the cache."""

    hashes: Sequence[Hash]
    medium: str
    group: int


class Cleared(Struct, frozen=True, gc=False):
    """A cache was emptied."""


Event = Stored | Removed | Cleared
Said = Callable[[str], Any]
"""Gives a field of an event, None where it is not said."""


class Batch(Struct, frozen=True, gc=False):
    """One message. `at` is the engine's wall time in seconds, 0 where it makes no sense.

    `unknown` counts events and fields that nobody knows here, `malformed` those that make no sense.
    """

    at: float = 0.0
    events: Sequence[Event] = ()
    rank: int = 0
    unknown: int = 0
    malformed: int = 0


NOTHING = Batch(malformed=1)


def decode(payload: bytes) -> Batch:
    """What a message says; never raises."""
    try:
        raw = msgpack.decode(payload)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return NOTHING
    if not isinstance(raw, list) or len(raw) < 2 or not isinstance(raw[1], list):
        return NOTHING
    events: list[Event] = []
    unknown = malformed = 0
    for told in raw[1]:
        try:
            event, more = _event(told)
        except (ValueError, TypeError, OverflowError, RecursionError):
            malformed += 1
            continue
        unknown += more
        if event is not None:
            events.append(event)
    rank = raw[2] if len(raw) > 2 and isinstance(raw[2], int) else 0
    return Batch(_time(raw[0]), events, rank, unknown, malformed)


def _event(told: Any) -> tuple[Event | None, int]:
    """An event, and how much of it nobody knows. Raises what decoding does where it makes no sense."""
    if isinstance(told, dict):
        tag, said = told.get("type"), told
    elif isinstance(told, list) and told:
        tag = told[0]
        said = dict(zip(_FIELDS.get(tag, ()), told[1:], strict=False))
    else:
        raise TypeError
    if tag not in _FORMS:
        return None, 1
    known = _FIELDS[tag]
    more = sum(name not in known for name in said) - 1 if said is told else max(0, len(told) - 1 - len(known))
    return _FORMS[tag](said.get), more


def _stored(said: Said) -> Stored:
    hashes, parent, block_tokens = said("block_hashes"), said("parent_block_hash"), said("block_size")
    tokens = array("I", _list(said("token_ids")))
    windowed = said("kv_cache_spec_sliding_window") is not None or said("kv_cache_spec_kind") in WINDOWED
    if not isinstance(block_tokens, int) or not 0 < block_tokens <= BLOCK_TOKENS_MAX:
        raise ValueError
    extra_keys, adapter = _list(said("extra_keys") or []), _text(said("lora_name"), "")
    if tokens and len(tokens) != len(hashes) * block_tokens:
        if not windowed:
            raise ValueError
        hashes, extra_keys = [], []  # those out of the window are left out, and nobody can tell which
    if extra_keys and len(extra_keys) != len(hashes):
        raise ValueError
    return Stored(
        hashes=_hashes(hashes),
        parent=None if parent is None else _hashes([parent])[0],
        tokens=tokens,
        block_tokens=block_tokens,
        adapter=adapter,
        extras=[_extra(keys, adapter) for keys in extra_keys] if any(extra_keys) else (),
        medium=_text(said("medium"), MEDIUM),
        group=_group(said("group_idx")),
        windowed=windowed,
    )


def _removed(said: Said) -> Removed:
    return Removed(_hashes(said("block_hashes")), _text(said("medium"), MEDIUM), _group(said("group_idx")))


def _cleared(_said: Said) -> Cleared:
    return Cleared()


_FORMS: dict[Any, Callable[[Said], Event]] = {
    "BlockStored": _stored,
    "BlockRemoved": _removed,
    "AllBlocksCleared": _cleared,
}
_FIELDS: dict[Any, tuple[str, ...]] = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
        "locality",
        "ownership",
        "session_id",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx", "locality", "ownership"),
    "AllBlocksCleared": (),
}
"""The fields of each event, in the order in which arrays have them."""


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _hashes(value: Any) -> list[Hash]:
    hashes = _list(value)
    for one in hashes:
        if not isinstance(one, int | bytes):
            raise TypeError
    return hashes


def _extra(keys: Any, adapter: str) -> bytes:
    """What a block depends on, without the adapter's name, which is in the root of all keys."""
    if keys and adapter and keys[0] == adapter:
        keys = keys[1:]
    return extra(keys) if keys else b""


def _text(value: Any, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str) or len(value) > NAME_CHARS_MAX:
        raise ValueError
    return value


def _group(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or not 0 <= value < GROUPS_MAX:
        raise ValueError
    return value


def _time(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < YEAR_10000_S else 0.0
