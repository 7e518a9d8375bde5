"""The options of a routing policy's pieces as they stand in a file.

They are declared in the core, as fields of the piece. What ends in `_s` is a duration, written without that
ending; whole numbers may have a unit.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from maitred.config.kinds import AMOUNT, GRACE, RATIO, SWITCH, TEXT, Kind

KINDS: dict[Any, Kind] = {float: RATIO, int: AMOUNT, bool: SWITCH, str: TEXT}


class Option(Struct, frozen=True):
    """One option: the name of its field, and what it is in the file."""

    field: str
    kind: Kind
    default: Any


def options_of(piece: Any) -> dict[str, Option]:
    """The options of a filter, scorer or picker by their keys. Raises TypeError where it cannot have them."""
    if not (isinstance(piece, type) and issubclass(piece, Struct)):
        raise TypeError("it is no msgspec Struct")
    options = {}
    for field in structs.fields(piece):
        if field.type not in KINDS:
            raise TypeError(f"its option {field.name} must be a float, int, bool or str")
        is_time = field.name.endswith("_s") and not field.name.endswith("_per_s")
        key = field.name.removesuffix("_s") if is_time else field.name
        options[key] = Option(field.name, GRACE if is_time else KINDS[field.type], field.default)
    return options
