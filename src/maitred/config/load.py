"""File, environment and flags become one checked tree, or one list of everything that is wrong.

A flag overrides the environment, which overrides the file, which overrides the defaults. A value that was
overridden is never read. Reading goes on after an error, so that one attempt shows all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from maitred.config.kinds import Kind
from maitred.config.raw import ConfigError, Raw, read_file
from maitred.config.tree import Config, Listed, Setting, fields_of, leaves
from maitred.config.units import quote
from maitred.core.endpoints import name_of

S = TypeVar("S", bound=Struct)


def load(
    path: Path | None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Config:
    """The effective tree; ConfigError lists everything that is wrong.

    `overrides` are flags by dotted path (`listen.data`); a value is text, a number, a switch, or a list for
    `endpoints`; None or an empty list means that the flag was not given. Errors about one begin with
    `flag --listen-data`, or with what `labels` says for its path. `environ` is the process's environment
    unless given; names in it that are no setting are left alone, because Kubernetes puts `MAITRED_PORT` and
    others there for a service called maitred.
    """
    root, errors = read_file(path) if path else (Raw("configuration", None), [])
    for name, setting in environment_names().items():
        value = (os.environ if environ is None else environ).get(name)
        if value is not None:
            root.put(setting, value, f"environment {name}")
    for setting, given in (overrides or {}).items():
        if given not in (None, (), []):
            label = (labels or {}).get(setting, f"flag --{re.sub('[._]', '-', setting)}")
            root.put(setting, given, label)
    reader = _Reader(errors)
    config = reader.section(Config, root) or Config()
    errors += _contradictions(root, config)
    if path and not root.at("version"):
        errors.append(f"{root.where}: version is missing; write version: 1")
    if errors:
        raise ConfigError(errors)
    return config


def environment_names() -> dict[str, str]:
    """The environment's name of each setting that has one, with its path: single values outside `models`.

    `version` has none: it belongs to the file, and images like to set MAITRED_VERSION to their own.
    """
    return {
        "MAITRED_" + path.upper().replace(".", "_"): path
        for path, field in leaves()
        if isinstance(field.setting.kind, Kind) and "[]" not in path and path != "version"
    }


class _Reader:
    """Turns raw values into the tree's and notes what is wrong with them; None stands for a wrong value."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors

    def section(self, section: type[S], raw: Raw) -> S | None:
        """A mapping with the keys of `section`; what is absent or empty keeps its default."""
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
        return section(**values) if required <= values.keys() else None

    def value(self, kind: Kind | Listed | type[Struct], raw: Raw) -> Any:
        """A value of whatever kind."""
        if isinstance(kind, Kind):
            return self.scalar(kind, raw)
        return self.items(kind, raw) if isinstance(kind, Listed) else self.section(kind, raw)

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

    def wrong(self, raw: Raw, message: str) -> None:
        """Note an error at the place where the value was written."""
        self.errors.append(f"{raw.where}: {message}")


def _contradictions(root: Raw, config: Config) -> Iterator[str]:
    """What is wrong between settings that are each right. A wrong value was replaced by its default."""
    models, endpoints = root.each("models"), root.each("endpoints")
    if not models and not endpoints:
        yield f"{root.where}: no engine is named; write models: or endpoints:"
    if models and endpoints:
        yield f"{endpoints[0].where}: both endpoints and models are set; leave one out"
    names: dict[str, str] = {}
    for model in models:
        for name in (*model.each("name"), *model.each("aliases")):
            if isinstance(name.value, str) and names.setdefault(name.value, name.where) != name.where:
                place = names[name.value].rpartition(" ")[2]
                yield f"{name.where}: {quote(name.value)} is already used at {place}; names must differ"
    data, admin = config.listen.data, config.admin.listen
    if (written := root.at("listen.data")) and not data.is_loopback and not root.at("auth"):
        yield (
            f"{written.where}: {data} is open to other machines and auth is not set; "
            "write auth: none to let everybody in, or listen on 127.0.0.1"
        )
    if (written := root.at("admin.listen")) and not admin.is_loopback:
        yield (
            f"{written.where}: {admin} is open to other machines and the admin port asks for no token; "
            f"write 127.0.0.1:{admin.port}"
        )


def _nearest(key: str, known: list[str]) -> str:
    """Advice for a key nobody knows."""
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _example(setting: Setting) -> str:
    kind = setting.kind
    if isinstance(kind, Listed) and isinstance(kind.item, Kind):
        return f"[{kind.item.example}]"
    return kind.example if isinstance(kind, Kind) else "…"
