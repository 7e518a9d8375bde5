"""A file of endpoints: the addresses of one model's engines, kept by whatever starts and stops them.

It is read again whenever it changes, so it holds the whole set: a YAML or JSON list of URLs, or a mapping
with the single key `endpoints`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import ENDPOINT
from maitred.config.raw import ConfigError, read_file
from maitred.config.reader import Reader
from maitred.config.setting import Listed, Setting

_URLS = Listed(ENDPOINT, distinct=True)


class _Content(Struct, frozen=True):
    endpoints: Annotated[tuple[str, ...], Setting("endpoints", _URLS)]


def read_endpoints(path: Path) -> tuple[str, ...]:
    """The URLs in the file, normalised; an empty list is none. ConfigError lists everything that is wrong.

    An empty file is an error: it is more often being written than meant.
    """
    root, errors = read_file(path)
    reader = Reader(errors)
    urls: tuple[str, ...] | None = None
    if isinstance(root.value, list):
        urls = reader.items(_URLS, root)
    elif isinstance(root.value, dict):
        content = reader.section(_Content, root)
        urls = content.endpoints if content else None
    else:
        reader.wrong(root, f"must be a list of URLs such as [{ENDPOINT.example}]; write [] for none")
    if errors or urls is None:
        raise ConfigError(errors)
    return urls
