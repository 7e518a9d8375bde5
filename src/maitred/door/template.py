"""Chat templates: from a conversation to the text that a model reads, as Hugging Face's library renders it.

A template is a program that came with a model. It runs sandboxed, and sees nothing but the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from maitred.wire.conversation import Conversation


class _Generation(Extension):
    """`{% generation %}` marks what a model said, for training; here its body is all there is of it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own form

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Template:
    """A model's templates: the one for conversations `with_tools` where that is another.

    `special` names its special tokens, such as `bos_token`. Raises TemplateError where one is no template.
    """

    def __init__(self, text: str, with_tools: str | None, special: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now, **special}
        self.text = text
        self._plain = environment.from_string(text)
        self._with_tools = environment.from_string(with_tools) if with_tools else self._plain
        self.parts = _takes_parts(environment.parse(text))
        """Whether it takes contents as lists of parts, by how engines judge it: it loops over them."""

    def render(self, conversation: Conversation) -> str:
        """The text. What a template raises may be anything."""
        template = self._with_tools if conversation.tools else self._plain
        arguments = {"documents": None, **conversation.extras}
        arguments |= {"messages": conversation.messages, "tools": conversation.tools}
        return template.render(arguments)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **form: Any) -> str:
    """JSON as templates expect it: plain, where jinja2's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **form)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - local time, as engines say it


# -- whether contents are looped over --------------------------------------------------------------


def _takes_parts(tree: nodes.Template) -> bool:
    names = {"messages"}
    before = 0
    while len(names) > before:  # until no further name stands for the messages
        before = len(names)
        names |= {
            assign.target.name
            for assign in tree.find_all(nodes.Assign)
            if isinstance(assign.target, nodes.Name) and _is(assign.node, names)
        }
    each = {name for loop, name in _loops(tree) if _is(loop.iter, names)}
    return any(_is_content(loop.iter, each) for loop, _ in _loops(tree))


def _loops(tree: nodes.Template) -> Iterator[tuple[nodes.For, str]]:
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            yield loop, loop.target.name


def _is(node: nodes.Node | None, names: set[str]) -> bool:
    node = _bare(node)
    return isinstance(node, nodes.Name) and node.name in names


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    node = _bare(node)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and _is(node.node, names)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == "content" and _is(node.node, names)
    return False


def _bare(node: nodes.Node | None) -> nodes.Node | None:
    """What is left without filters, tests and slices."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node
