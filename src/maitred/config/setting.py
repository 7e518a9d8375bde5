"""How a setting is declared: a field of a section carries what it is in the file.

Everything else (loader, `config show`, JSON Schema, environment's names, what a reload changes) walks these
declarations, so that a setting is written down once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from maitred.config.kinds import TEXT, Kind


class Listed(Struct, frozen=True):
    """A list of at least `length_min` values. `distinct`: they are URLs, and no place may be there twice."""

    item: Kind | Forms | Chosen | type[Struct]
    length_min: int = 0
    distinct: bool = False


class Mapped(Struct, frozen=True):
    """Values of one kind, mostly sections, each under a name of its own."""

    item: Kind | Forms | type[Struct]
    name: Kind = TEXT


class Forms(Struct, frozen=True):
    """A value that can be written in several shapes: one value, a list, or sections known by their first key.

    `words` say what to write, for errors. `nested`: its section is large, and what is in it are settings of
    their own for documentation and environment; there is one such section, whatever its first key.
    """

    shapes: tuple[Kind | Listed | type[Struct], ...]
    words: str
    nested: bool = False


class Chosen(Struct, frozen=True):
    """One piece of a policy: its name alone, or a mapping of its `name` and options.

    `family` holds the pieces by name; it may have grown from outside when it is read. `weighted`: a `weight`
    may be given, too.
    """

    family: Mapping[str, Any]
    weighted: bool = False


Shape = Kind | Listed | Mapped | Forms | Chosen | type[Struct]


class Setting(Struct, frozen=True):
    """What a field is in the file.

    `doc` says what it means; a section may leave that to its class. `derived` says what the default follows
    from, or means, where it is no constant.
    """

    key: str
    kind: Shape
    doc: str = ""
    derived: str = ""


class Field(Struct, frozen=True):
    """One field of a section: its name in Python, what it is in the file, and its default."""

    name: str
    setting: Setting
    required: bool
    default: Any


@cache
def fields_of(section: type[Struct]) -> tuple[Field, ...]:
    """The settings of one section, in the order of the file."""
    return tuple(
        Field(field.name, field.type.__metadata__[0], field.required, _default(field))
        for field in structs.fields(section)
    )


def _default(field: structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return None if field.required else field.default


def leaves(section: type[Struct], at: str = "") -> Iterator[tuple[str, Field]]:
    """Every setting that holds a value, by its path: `listen.data`, `models[].cap`, `tenants.NAME.weight`."""
    for field in fields_of(section):
        kind, path = field.setting.kind, at + field.setting.key
        if isinstance(kind, Listed) and isinstance(kind.item, type):
            yield from leaves(kind.item, f"{path}[].")
        elif isinstance(kind, Mapped) and isinstance(kind.item, type):
            yield from leaves(kind.item, f"{path}.NAME.")
        elif isinstance(kind, Kind | Listed | Mapped | Forms | Chosen):
            yield path, field
            if isinstance(kind, Forms) and kind.nested:
                for shape in kind.shapes:
                    if isinstance(shape, type):
                        yield from leaves(shape, f"{path}.")
        else:
            yield from leaves(kind, f"{path}.")
