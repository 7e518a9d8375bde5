"""What was written, before it means anything: text from file, environment and flags in one tree.

Every value remembers where it was written, so that whatever is found wrong with it later can name the place.
A file is bounded in size, depth and number of values (aliases multiply), so that reading it always ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct

from maitred.config.units import quote

FILE_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 32
VALUES_MAX = 50_000

_HALVES = re.compile("[\ud800-\udfff]")
"""What an escape may say and nobody can send: one half of a character of UTF-16."""


class ConfigError(Exception):
    """The configuration cannot be used. `errors` holds one line for each thing to put right."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


class Raw(Struct):
    """One value as written: text, nothing at all, a list or a mapping; `where` begins its error messages."""

    where: str
    value: str | list[Raw] | dict[str, Raw] | None

    def at(self, path: str) -> Raw | None:
        """What is written at a dotted path; None where nothing is, or only an empty key."""
        key, *rest = path.split(".", 1)
        child = self.value.get(key) if isinstance(self.value, dict) else None
        if child is None or child.value is None:
            return None
        return child.at(rest[0]) if rest else child

    def each(self, path: str) -> list[Raw]:
        """What is written at a dotted path: the items of a list, a lone value, or nothing."""
        found = self.at(path)
        if found is None:
            return []
        return found.value if isinstance(found.value, list) else [found]

    def put(self, path: str, value: object, where: str) -> None:
        """Set the value at a dotted path. What is no mapping on the way there stays, to be reported."""
        section, *rest = path.split(".", 1)
        if self.value is None:
            self.value = {}
        if not isinstance(self.value, dict):
            return
        if rest:
            self.value.setdefault(section, Raw(where, None)).put(rest[0], value, where)
        elif isinstance(value, list | tuple):
            items = [Raw(f"{where}[{index}]", str(item)) for index, item in enumerate(value)]
            self.value[section] = Raw(where, items)
        elif isinstance(value, dict):
            self.value[section] = Raw(where, {key: Raw(where, str(item)) for key, item in value.items()})
        else:
            self.value[section] = Raw(where, str(value).lower() if isinstance(value, bool) else str(value))


def read_file(path: Path) -> tuple[Raw, list[str]]:
    """The tree in a YAML file, and what is wrong with its shape; ConfigError when it is no YAML at all."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError([f"{path}: is larger than {FILE_BYTES_MAX} bytes"])
        node = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: is nested more than {DEPTH_MAX} deep"]) from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([f"{path}{line}: is not YAML: {error.problem}"]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two of numbers no one can mean
        raise ConfigError([f"{path}: is not YAML: {str(error).splitlines()[0]}"]) from error
    if node is None:
        return Raw(f"{path}:1", None), []
    reader = _Nodes(path)
    return reader.raw(node, "", 1), reader.errors


class _Nodes:
    """Turns YAML nodes into raw values; counts them, because an alias stands for all it refers to."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.errors: list[str] = []
        self.count = 0

    def raw(self, node: yaml.Node, at: str, line: int, depth: int = 1) -> Raw:
        """`at` is the path of the node in the file, `line` where a reader would look for it."""
        where = self.where(at, line)
        self.count += 1
        if depth > DEPTH_MAX:
            raise ConfigError([f"{where}: is nested more than {DEPTH_MAX} deep"])
        if self.count > VALUES_MAX:
            raise ConfigError([f"{where}: more than {VALUES_MAX} values, aliases counted"])
        if node.tag.startswith("!"):
            self.errors.append(f"{where}: tag {quote(node.tag)} is not known; write the value itself")
        elif isinstance(node, yaml.MappingNode):
            return Raw(where, self.mapping(node, at, depth))
        elif isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return Raw(where, [self.raw(item, f"{at}[{i}]", _line(item), depth + 1) for i, item in items])
        elif _HALVES.search(node.value):
            self.errors.append(
                f"{where}: holds half a character; write it itself, or as \\U and eight digits"
            )
        elif node.tag != "tag:yaml.org,2002:null":
            return Raw(where, str(node.value))
        return Raw(where, None)

    def where(self, at: str, line: int) -> str:
        """How messages name the place; the whole file has no path."""
        return f"{self.file}:{line} {at}".rstrip()

    def mapping(self, node: yaml.MappingNode, at: str, depth: int) -> dict[str, Raw]:
        """The mapping's values; a key is found at its own line, whatever the form of its value."""
        lines: dict[str, int] = {}
        values: dict[str, Raw] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.errors.append(f"{self.where(at, line)}: a key must be plain text")
                continue
            key = key_node.value
            path = f"{at}.{key}" if at else key
            if key in lines:
                self.errors.append(
                    f"{self.where(path, line)}: is already set in line {lines[key]}; leave one out"
                )
                continue
            lines[key] = line
            values[key] = self.raw(value_node, path, line, depth + 1)
        return values


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
