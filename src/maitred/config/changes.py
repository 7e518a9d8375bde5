"""What a reload can change only at the next start."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from maitred.config.setting import fields_of
from maitred.config.tree import Config

AT_START_ONLY = ("listen", "admin", "store", "log", "journal")
"""Sections that are put to use once, when the process starts."""


def restart_needed(old: Config, new: Config) -> list[str]:
    """Paths of the settings that differ and take effect only after a restart: `["listen.data"]`."""
    return [path for path in _differing(Config, old, new) if path.partition(".")[0] in AT_START_ONLY]


def _differing(section: type[Struct], old: Struct, new: Struct, at: str = "") -> Iterator[str]:
    for field in fields_of(section):
        before, after = getattr(old, field.name), getattr(new, field.name)
        path, kind = at + field.setting.key, field.setting.kind
        if before == after:
            continue
        if isinstance(kind, type) and isinstance(before, kind) and isinstance(after, kind):
            yield from _differing(kind, before, after, f"{path}.")
        else:
            yield path
