"""The tree written out again: as YAML that loads to an equal tree, as a JSON Schema, as words for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from maitred.config.kinds import RATIO, Kind
from maitred.config.options import options_of
from maitred.config.setting import Chosen, Field, Forms, Listed, Mapped, Shape, fields_of
from maitred.config.tree import Config
from maitred.core.recipe import Piece

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def show(config: Config) -> str:
    """The effective tree as YAML. What is off or unset is left out, so the text loads to an equal tree."""
    written = _write(Config, config)
    # Both lists are alternatives, so the empty one must go.
    written = {key: value for key, value in written.items() if value != []}
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=110)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file, for editors. Empty keys, which the loader takes, are not in it."""
    body = _describe_section(Config)
    body["required"] = ["version"]
    body["not"] = {"required": ["endpoints", "models"]}
    return {"$schema": DIALECT, "title": "maitred.yaml", **body}


def default_words(field: Field) -> str:
    """The default as the documentation names it."""
    if field.required:
        return "required"
    if field.setting.derived:
        return field.setting.derived
    return "`" + json.dumps(_write(field.setting.kind, field.default)).strip('"') + "`"


def _write(kind: Shape, value: Any) -> Any:
    """The value as the plain data that YAML and JSON know."""
    if isinstance(kind, Kind):
        return kind.write(value)
    if isinstance(kind, Listed):
        return [_write(kind.item, item) for item in value]
    if isinstance(kind, Mapped):
        return {name: _write(kind.item, item) for name, item in value.items()}
    if isinstance(kind, Chosen):
        return _write_piece(kind, value)
    if isinstance(kind, Forms):
        return _write(type(value) if isinstance(value, Struct) else kind.shapes[0], value)
    values = ((field, getattr(value, field.name)) for field in fields_of(kind))
    return {
        field.setting.key: _write(field.setting.kind, value) for field, value in values if value is not None
    }


def _describe(kind: Shape) -> dict[str, Any]:
    """The schema of any value of this kind."""
    if isinstance(kind, Kind):
        return kind.schema
    if isinstance(kind, Listed):
        return {
            "type": "array",
            "items": _describe(kind.item),
            "minItems": kind.length_min,
            "uniqueItems": kind.distinct,
        }
    if isinstance(kind, Mapped):
        return {"type": "object", "additionalProperties": _describe(kind.item)}
    if isinstance(kind, Chosen):
        return {"anyOf": [{"type": "string", "enum": list(kind.family)}, *_describe_pieces(kind)]}
    if isinstance(kind, Forms):
        return {"anyOf": [_describe(shape) for shape in kind.shapes]}
    return _describe_section(kind)


def _describe_section(section: type[Struct]) -> dict[str, Any]:
    properties = {}
    for field in fields_of(section):
        setting = field.setting
        doc = setting.doc or str(setting.kind.__doc__)
        property_ = {**_describe(setting.kind), "description": doc}
        if setting.derived:
            property_["description"] += f" Default: {setting.derived}."
        elif not field.required:
            property_["default"] = _write(setting.kind, field.default)
        properties[setting.key] = property_
    required = [field.setting.key for field in fields_of(section) if field.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _write_piece(chosen: Chosen, piece: Piece) -> Any:
    """A piece of a policy: its name, if there is no more to say."""
    keys = {option.field: (key, option.kind) for key, option in options_of(chosen.family[piece.name]).items()}
    written: dict[str, Any] = {} if piece.weight == 1 else {"weight": RATIO.write(piece.weight)}
    for field, value in piece.options:
        key, kind = keys[field]
        written[key] = kind.write(value)
    return {"name": piece.name, **written} if written else piece.name


def _describe_pieces(chosen: Chosen) -> Iterator[dict[str, Any]]:
    """The schema of each piece with its options."""
    for name, piece in chosen.family.items():
        weight = {"weight": RATIO.schema} if chosen.weighted else {}
        options = {key: option.kind.schema for key, option in options_of(piece).items()}
        yield {
            "type": "object",
            "properties": {"name": {"const": name}, **weight, **options},
            "required": ["name"],
            "additionalProperties": False,
        }
