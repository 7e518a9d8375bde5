"""Request bodies as clients may write them: odd blanks, escapes, duplicates and numbers."""

from __future__ import annotations

import json

from hypothesis import strategies as st

BLANKS = st.text(" \t\r\n", max_size=2)
NAMES = st.sampled_from(["model", "stream", "stream_options", "n", "input", "x", 'say "model', "é", ""])


def escaped(text: str, rounds: int) -> str:
    """Write `text` as a JSON string, its first `rounds` characters as `\\u` escapes."""
    head = "".join(f"\\u{ord(char):04x}" for char in text[:rounds])
    return f'"{head}{json.dumps(text[rounds:], ensure_ascii=False)[1:]}'


def strings(content: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON strings of such content, spelled in any way."""
    return st.builds(escaped, content, st.sampled_from([0, 0, 1, 3]))


TEXTS = strings(NAMES | st.text('{}[]",:\\u006d é漢\n', max_size=8))
NUMBERS = st.sampled_from(["0", "-0.0", "1e5", "12345678901234567890123", "1.5E-3", "true", "false", "null"])


def member(names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One member with blanks around everything."""
    return st.builds("{}{}{}:{}{}{}".format, BLANKS, strings(names), BLANKS, BLANKS, values, BLANKS)


def objects(values: st.SearchStrategy[str], names: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[str]:
    """JSON objects; keys may come twice."""
    return st.lists(member(names, values), max_size=5).map(lambda members: "{" + ",".join(members) + "}")


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON arrays."""
    return st.lists(values, max_size=3).map(lambda items: "[" + " ,\n".join(items) + "]")


VALUES = st.recursive(TEXTS | NUMBERS, lambda inner: objects(inner) | arrays(inner), max_leaves=6)
OBJECTS = objects(VALUES).map(str.encode)


@st.composite
def holed(
    draw: st.DrawFn, name: str, values: st.SearchStrategy[str], *others: str
) -> tuple[bytes, bytes, bytes]:
    """One object cut into what precedes the value of member `name`, that value, and what follows it.

    `others` are members written as they are; the rest has names the gateway does not read.
    """
    unread = member(st.sampled_from(["x", "x", 'say "model', "é", "metadata"]), VALUES)
    members = [*others, *draw(st.lists(unread, max_size=4))]
    at = draw(st.integers(0, len(members)))
    key = draw(BLANKS) + draw(strings(st.just(name))) + draw(BLANKS) + ":" + draw(BLANKS)
    before = draw(BLANKS) + "{" + ",".join([*members[:at], key])
    after = ",".join([draw(BLANKS), *members[at:]]) + "}" + draw(BLANKS)
    return before.encode(), draw(values).encode(), after.encode()
