"""The one list of what the gateway may change in a body; every byte not named here passes untouched.

A request is changed by splices: the range of one top-level member gives way to new bytes, or a new member is
put in, and the rest goes out as views of what came in. An answer is changed by `Renamer` alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct
from msgspec.json import decode, encode

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.members import AGAIN, Member, Scanned, members, scan
from maitred.wire.requests import KEYS_READ, N_PREDICT


class Edits(Struct, frozen=True):
    """What to change. `model`: the name the engine knows. `include_usage`: have the engine count tokens.

    `output_tokens`: bound the answer by so many, 0 for as it is. Those of `output_keys` that say more, or
    null, are lowered to it; where none is there that all engines know, the first is put in. A client that
    wants less gets less, and who wants none (0) none. `cache_salt`: what the engine keeps the cache apart by,
    "" for as it is.
    """

    model: str | None = None
    include_usage: bool = False
    output_tokens: int = 0
    output_keys: tuple[str, ...] = ()
    cache_salt: str = ""


USAGE = Edits(include_usage=True)
"""What most streams need, and nothing else."""

_Splice = tuple[int, int, bytes]


def apply(body: bytes, edits: Edits) -> list[bytes | memoryview]:
    """Return `body` with `edits` made, as parts for `writelines`; `[body]` when nothing changes.

    `body` has passed `requests.decode`. Raise Refusal when a key we read comes twice (which of the two the
    engine obeys is then not ours to guess), and when `wire/members.py` will not walk the body.
    """
    if edits.model is None and not (edits.include_usage or edits.output_tokens or edits.cache_salt):
        return [body]
    scanned = scan(body)
    names, _, spare = scanned
    if spare >= AGAIN:
        _refuse_duplicates(list(names), KEYS_READ)
    new, more = _inserted(names, edits)
    splices = _replacements(body, scanned, edits) if more else ()
    view, done = memoryview(body), 0
    parts: list[bytes | memoryview] = []
    if new:
        done = body.index(b"{") + 1
        parts.append(body[:done] + new)
    elif not splices:
        return [body]
    for start, end, value in splices:
        parts += (view[done:start], value)
        done = end
    parts.append(view[done:])
    return parts


def _inserted(names: Collection[str], edits: Edits) -> tuple[bytes, bool]:
    """Return the members that are not there yet, and whether there may be others to replace."""
    new, more = b"", edits.model is not None
    if edits.include_usage:
        if "stream_options" in names:
            more = True
        else:
            new = b'"stream_options":{"include_usage":true},'
    if edits.cache_salt:
        if "cache_salt" in names:
            more = True
        else:
            new += b'"cache_salt":%b,' % encode(edits.cache_salt)
    if edits.output_tokens:
        keys = [key for key in edits.output_keys if key in names]
        more = more or bool(keys)
        if all(key == N_PREDICT for key in keys):
            new += b'"%b":%d,' % (edits.output_keys[0].encode(), edits.output_tokens)
    return new, more


def _replacements(body: bytes, scanned: Scanned, edits: Edits) -> list[_Splice]:
    """Return the splices of members that are there, in the order of the body."""
    splices = []
    for member in members(body, scanned):
        if member.key == "model" and edits.model is not None:
            splices.append((member.value_start, member.end, encode(edits.model)))
        elif member.key == "cache_salt" and edits.cache_salt:
            splices.append((member.value_start, member.end, encode(edits.cache_salt)))
        elif edits.output_tokens and member.key in edits.output_keys:
            said = decode(memoryview(body)[member.value_start : member.end])
            if said is None or not 0 <= said <= edits.output_tokens:
                splices.append((member.value_start, member.end, b"%d" % edits.output_tokens))
        elif member.key == "stream_options" and edits.include_usage:
            splices += _include_usage(body, member)
    return splices


def _include_usage(body: bytes, options: Member) -> list[_Splice]:
    """Return the splice that makes `include_usage` true and leaves the client's other options alone."""
    at = options.value_start
    if body.startswith(b"null", at):
        return [(at, options.end, b'{"include_usage":true}')]
    inner = members(memoryview(body)[at : options.end])
    _refuse_duplicates([member.key for member in inner], ("include_usage",), "stream_options.")
    for member in inner:
        if member.key == "include_usage":
            if body.startswith(b"true", at + member.value_start):
                return []
            return [(at + member.value_start, at + member.end, b"true")]
    return [(at + 1, at + 1, b'"include_usage":true,' if inner else b'"include_usage":true')]


def _refuse_duplicates(names: list[str], read: tuple[str, ...], within: str = "") -> None:
    for name in read:
        if names.count(name) > 1:  # no set, since hashing a key that fills the body takes as long as reading
            param = within + name
            raise Refusal(Outcome.BAD_REQUEST, f"{param}: the key comes more than once", param=param)


class Renamer:
    """Puts the alias back for the served model name, in an answer that arrives in pieces cut anywhere.

    It looks for the member `"model":"<served>"`, with or without one blank, in the raw bytes. Generated text
    that holds the same characters can never match: inside a JSON string every quote is written `\\"`, so
    text has a backslash before the quotes of `model`, where a match has none.
    """

    __slots__ = ("_alias", "_held", "_longest", "_openings", "_search")

    def __init__(self, served: str, alias: str) -> None:
        name = encode(served)
        self._alias = encode(alias)
        self._search = re.compile(rb'"model":( ?)' + re.escape(name)).search
        self._openings = (b'"model":' + name, b'"model": ' + name)
        self._longest = len(self._openings[1])
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can go out by now: all but a tail that may be the start of a match."""
        if self._held:
            data = self._held + data
        parts: list[bytes] = []
        done = 0
        match = self._search(data)
        while match:
            start = match.start()
            if data[start - 1 : start] == b"\\":  # a key that only ends in these characters
                match = self._search(data, start + 1)
                continue
            parts += (data[done : match.end(1)], self._alias)
            done = match.end()
            match = self._search(data, done)
        cut = self._cut(data, done)
        self._held = data[cut:]
        parts.append(data[done:cut])
        return b"".join(parts)

    def flush(self) -> bytes:
        """Return the held tail at the end of the answer."""
        held, self._held = self._held, b""
        return held

    def _cut(self, data: bytes, done: int) -> int:
        """Return where the tail begins that must wait for more."""
        end = len(data)
        if data.endswith(b"\n"):  # no match has one inside: whole events never wait
            return end
        at = data.find(b'"', max(done, end - self._longest + 1))
        while at >= 0:
            tail = data[at:]
            if data[at - 1 : at] != b"\\" and any(opening.startswith(tail) for opening in self._openings):
                return at
            at = data.find(b'"', at + 1)
        # A backslash waits for what it escapes, so that a tail never begins behind one.
        return end - 1 if data.endswith(b"\\") else end
