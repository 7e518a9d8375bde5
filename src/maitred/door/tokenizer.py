"""A model's own tokenizer, from its folder: from a request's body to the token ids the engine will compute.

Needs `tokenizers`, and is imported only where a model has a folder. Everything here is made for one thread
beside the loop, which goes on meanwhile: the library lets it in a batch, and in nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import json

from maitred.core.words import Api
from maitred.door.template import Template
from maitred.engines.tokenize import packed
from maitred.wire.conversation import Conversation, ToolForm, prompt

os.environ.setdefault(
    "TOKENIZERS_PARALLELISM", "false"
)  # threads of its own would only take cores from others
from tokenizers import AddedToken, Tokenizer

PIECES_BYTES_MAX = 32 * 1024 * 1024
"""Memory for pieces of conversations that were tokenised before."""

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

_ROLES = ("system", "user", "assistant")


class NoTokenizer(Exception):  # noqa: N818 - says what is missing
    """A folder cannot be used; the message says why in one line."""


class Pieces:
    """A tokenizer that knows the pieces of text it has met before: those between marks.

    A mark is a special token of the template. Tokenizers look for those first of all and take what lies
    between them for itself, so a piece that begins with a mark has the same ids wherever it stands. That
    holds only for tokens that take no blanks around them along, and that no other token can overlap.
    """

    def __init__(self, tokenizer: Tokenizer, template_text: str, bytes_max: int = PIECES_BYTES_MAX) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        marks = [text for text in _marks(tokenizer) if text in template_text]
        self._mark = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._bytes_max = bytes_max
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0

    def whole(self, text: str, *, special: bool) -> bytes:
        """The ids of a text; `special`: with those put around it, such as one for its beginning."""
        return self._encode([text], special=special)[0]

    def ids(self, text: str) -> bytes:
        """The ids of a text that a template made."""
        known = self._known
        pieces = self._cut(text)
        new = [piece for piece in dict.fromkeys(pieces) if piece not in known]
        found = dict(zip(new, self._encode(new, special=False), strict=True)) if new else {}
        answer = b"".join([found[piece] if piece in found else known[piece] for piece in pieces])
        for piece in pieces:
            if piece in known:
                known.move_to_end(piece)
            else:
                known[piece] = found[piece]
                self.bytes += _size(piece, found[piece])
        while self.bytes > self._bytes_max:
            self.bytes -= _size(*known.popitem(last=False))
        return answer

    def _cut(self, text: str) -> list[str]:
        if self._mark is None:
            return [text]
        starts = [match.start() for match in self._mark.finditer(text)]
        edges = [0, *(at for at in starts if at), len(text)]
        return [text[start:end] for start, end in pairwise(edges)]

    def _encode(self, texts: list[str], *, special: bool) -> list[bytes]:
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=special)
        return [packed(one.ids) for one in encoded]


def _size(piece: str, ids: bytes) -> int:
    return sys.getsizeof(piece) + sys.getsizeof(ids)


def _marks(tokenizer: Tokenizer) -> list[str]:
    """Special tokens before which a text may be cut."""
    added: list[AddedToken] = list(tokenizer.get_added_tokens_decoder().values())
    if any(token.single_word for token in added):
        return []  # whether one counts then depends on what stands around it
    texts = [token.content for token in added]
    whole = [token.content for token in added if not (token.normalized or token.lstrip or token.rstrip)]
    return [mark for mark in whole if mark and not any(_covers(text, mark) for text in texts if text != mark)]


def _covers(other: str, mark: str) -> bool:
    """Whether `other` could begin before a mark and reach into it, or begin with it and reach further."""
    reaches = any(other[-size:] == mark[:size] for size in range(1, min(len(other), len(mark) + 1)))
    return mark in other or reaches


class Folder:
    """A model's tokenizer and template. `has_template`: whether it can render conversations."""

    def __init__(self, path: Path) -> None:
        """Read it, which may take seconds. Raises NoTokenizer."""
        with _reading("its chat template"):
            self._template = _template(path)
        with _reading("tokenizer.json"):
            text = (path / "tokenizer.json").read_text()
            self._pieces = Pieces(Tokenizer.from_str(text), self._template.text if self._template else "")

    def ids(self, api: Api, body: bytes, form: ToolForm) -> bytes:
        """The ids of what the model is to read. Raises Unsupported, and anything else for what is odd."""
        parts = self._template is not None and self._template.parts
        asked = prompt(api, body, parts=parts, form=form)
        if isinstance(asked, Conversation):
            if self._template is None:
                raise NoTokenizer("there is no chat template")
            return self._pieces.ids(self._template.render(asked))
        return self._pieces.whole(asked, special=True) if isinstance(asked, str) else packed(asked)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the library has no errors of its own, and templates may raise anything
        raise NoTokenizer(f"{what}: {error}") from error


def _template(path: Path) -> Template | None:
    """The folder's template: a file of its own, or a member of the tokenizer's configuration."""
    config = _read(path / "tokenizer_config.json")
    special = {name: _content(config[name]) for name in SPECIAL if config.get(name)}
    file = path / "chat_template.jinja"
    said = file.read_text() if file.exists() else config.get("chat_template")
    said = said or _read(path / "chat_template.json").get("chat_template")
    if isinstance(said, list):
        named = {entry["name"]: entry["template"] for entry in said}
        return Template(named["default"], named.get("tool_use"), special)
    return Template(said, None, special) if said else None


def _read(path: Path) -> dict[str, Any]:
    return json.decode(path.read_bytes(), type=dict[str, Any]) if path.exists() else {}


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else token["content"]
