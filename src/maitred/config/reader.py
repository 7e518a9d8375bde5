"""Raw values become the values of the declared settings, and everything wrong with them is noted.

Reading goes on after an error, so that one attempt shows all of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, TypeVar

from msgspec import Struct

from maitred.config.kinds import RATIO, Kind, choice
from maitred.config.options import options_of
from maitred.config.raw import Raw
from maitred.config.setting import Chosen, Forms, Listed, Mapped, Setting, Shape, fields_of
from maitred.config.units import quote
from maitred.core.endpoints import name_of
from maitred.core.recipe import Piece

S = TypeVar("S", bound=Struct)


class Reader:
    """Turns raw values into the tree's and notes what is wrong in `errors`; None stands for a wrong value."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors

    def section(self, section: type[S], raw: Raw) -> S | None:
        """A mapping with the keys of `section`; what is absent or empty keeps its default.

        What is wrong between its values, the section says itself: by a ValueError when it is made.
        """
        fields = {field.setting.key: field for field in fields_of(section)}
        written = {} if raw.value is None else raw.value
        if not isinstance(written, dict):
            self.wrong(raw, f"must be a mapping with keys such as {next(iter(fields))}")
            return None
        values: dict[str, Any] = {}
        for key, child in written.items():
            if key not in fields:
                self.wrong(child, f"unknown key; {_nearest(key, list(fields))}")
            elif child.value is not None:
                value = self.value(fields[key].setting.kind, child)
                if value is not None:
                    values[fields[key].name] = value
        for key, field in fields.items():
            if field.required and not raw.at(key):
                self.wrong(raw, f"{key} is missing; write {key}: {_example(field.setting)}")
        required = {field.name for field in fields.values() if field.required}
        try:
            return section(**values) if required <= values.keys() else None
        except ValueError as error:
            self.wrong(raw, str(error))
            return None

    def value(self, shape: Shape, raw: Raw) -> Any:
        """A value of whatever shape."""
        if isinstance(shape, Kind):
            return self.scalar(shape, raw)
        if isinstance(shape, Listed):
            return self.items(shape, raw)
        if isinstance(shape, Mapped):
            return self.mapped(shape, raw)
        if isinstance(shape, Forms):
            return self.form(shape, raw)
        return self.chosen(shape, raw) if isinstance(shape, Chosen) else self.section(shape, raw)

    def scalar(self, kind: Kind, raw: Raw) -> Any:
        """One value, parsed by its kind."""
        if not isinstance(raw.value, str):
            self.wrong(raw, f"must be one value, such as {kind.example}")
            return None
        try:
            return kind.parse(raw.value)
        except ValueError as error:
            self.wrong(raw, str(error))
            return None

    def items(self, listed: Listed, raw: Raw) -> tuple[Any, ...] | None:
        """A list of the items that are right."""
        if not isinstance(raw.value, list):
            self.wrong(raw, "must be a list, each item behind a dash or all within [ ]")
            return None
        if len(raw.value) < listed.length_min:
            self.wrong(raw, "is empty; write at least one")
            return None
        found: dict[object, Any] = {}
        for item in raw.value:
            value = self.value(listed.item, item)
            # What must be distinct are endpoints, and their names do not tell the scheme.
            key = name_of("", value) if listed.distinct and value else len(found)
            if key in found:
                other = "" if value == found[key] else f" as {quote(found[key])}"
                self.wrong(item, f"{quote(value)} is in this list already{other}; leave one out")
            elif value is not None:
                found[key] = value
        return tuple(found.values())

    def mapped(self, mapped: Mapped, raw: Raw) -> dict[str, Any] | None:
        """Values by name; those that are wrong or have nothing in them are left out."""
        if not isinstance(raw.value, dict):
            self.wrong(raw, "must be a mapping of names, each with its settings")
            return None
        found = {}
        for name, child in raw.value.items():
            known = self.scalar(mapped.name, Raw(child.where, name))
            value = self.value(mapped.item, child) if child.value is not None else None
            if known is not None and value is not None:
                found[known] = value
        return found

    def form(self, forms: Forms, raw: Raw) -> Any:
        """The first shape that fits what is written."""
        for shape in forms.shapes:
            if isinstance(shape, Kind):
                fits = isinstance(raw.value, str)
            elif isinstance(shape, Listed):
                fits = isinstance(raw.value, list)
            elif forms.nested:
                fits = isinstance(raw.value, dict)
            else:
                fits = raw.at(fields_of(shape)[0].setting.key) is not None
            if fits:
                return self.value(shape, raw)
        self.wrong(raw, f"must be {forms.words}")
        return None

    def chosen(self, chosen: Chosen, raw: Raw) -> Piece | None:
        """A piece of a policy, made once to see whether its options are right."""
        written = raw.value if isinstance(raw.value, dict) else {"name": raw}
        if "name" not in written:
            self.wrong(raw, f"name is missing; write name: {next(iter(chosen.family))}")
            return None
        name = self.scalar(choice(*chosen.family), written["name"])
        if name is None:
            return None
        options = options_of(chosen.family[name])
        kinds = {"weight": RATIO} if chosen.weighted else {}
        kinds |= {key: option.kind for key, option in options.items()}
        values: dict[str, Any] = {}
        for key, child in written.items():
            if key not in {"name", *kinds}:
                self.wrong(child, f"unknown key; {_nearest(key, ['name', *kinds])}")
            elif key != "name" and child.value is not None:
                values[key] = self.scalar(kinds[key], child)
        if None in values.values():
            return None
        weight = values.pop("weight", 1.0)
        given = tuple((options[key].field, value) for key, value in values.items())
        try:
            chosen.family[name](**dict(given))
        except ValueError as error:
            self.wrong(raw, str(error))
            return None
        return Piece(name, given, weight)

    def wrong(self, raw: Raw, message: str) -> None:
        """Note an error at the place where the value was written."""
        self.errors.append(f"{raw.where}: {message}")


def _nearest(key: str, known: list[str]) -> str:
    """Advice for a key nobody knows."""
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _example(setting: Setting) -> str:
    kind = setting.kind.shapes[0] if isinstance(setting.kind, Forms) else setting.kind
    if isinstance(kind, Listed) and isinstance(kind.item, Kind):
        return f"[{kind.item.example}]"
    return kind.example if isinstance(kind, Kind) else "…"
