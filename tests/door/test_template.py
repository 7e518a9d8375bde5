"""Chat templates: what they may use, and how contents are handed to them."""

from __future__ import annotations

import pytest
from jinja2 import TemplateError

from maitred.door.template import Template
from maitred.wire.conversation import Conversation

MESSAGES = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def rendered(text: str, with_tools: str | None = None, **extras: object) -> str:
    tools = [{"name": "<b>é"}] if with_tools else None
    return Template(text, with_tools, {"bos_token": "<s>"}).render(Conversation(MESSAGES, tools, extras))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ bos_token }}{{ eos_token }}{{ messages[1].content }}", "<s>b"),
        ("{% if tools is none and documents is none %}\n  x\n  {% endif %}\n y", "  x\n y"),
        (
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m['role'] }}{% endfor %}",
            "user",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}c", "ac"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ add_generation_prompt }}{{ enable_thinking }}", "TrueFalse"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_what_templates_are_written_with(text: str, said: str) -> None:
    assert rendered(text, add_generation_prompt=True, enable_thinking=False) == said


def test_a_template_for_tools_is_used_where_there_are_some() -> None:
    assert rendered("plain") == "plain"
    assert rendered("plain", "{{ tools[0] | tojson }}") == '{"name": "<b>é"}'


def test_a_request_cannot_put_other_messages_in_the_place_of_its_own() -> None:
    assert rendered("{{ messages[0].content }}{{ tools }}", messages=[{"content": "x"}], tools=[1]) == "aNone"


def test_a_template_may_refuse() -> None:
    with pytest.raises(TemplateError, match="odd roles"):
        rendered("{{ raise_exception('odd roles') }}")


@pytest.mark.parametrize("text", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_is_kept_in_its_box(text: str) -> None:
    with pytest.raises(TemplateError):
        rendered(text + "{{ ''.__class__.__mro__[1].__subclasses__() }}")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages[1:] %}{% for part in m['content'] | list %}{% endfor %}{% endfor %}", True),
        (
            """{% set rest = messages[1:] %}{% set all = rest %}
            {% for m in all %}{% for part in m['content'] %}{% endfor %}{% endfor %}""",
            True,
        ),
        ("{% for m in messages %}{% for call in m.tool_calls %}{% endfor %}{% endfor %}", False),
        ("{% for m in others %}{% for part in m.content %}{% endfor %}{% endfor %}", False),
    ],
)
def test_a_template_that_loops_over_contents_gets_parts(text: str, parts: bool) -> None:
    assert Template(text, None, {}).parts is parts
