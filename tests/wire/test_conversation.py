"""What of a body becomes the prompt: as engines hand it to a template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.core.words import Api
from maitred.wire.conversation import SENT, TOOL_FORMS, Conversation, Prompt, ToolForm, Unsupported, prompt

USER = {"role": "user", "content": "a"}
TEXT_A, TEXT_B = {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}


def asked(api: Api = Api.CHAT, parts: bool = False, form: ToolForm = SENT, **body: Any) -> Prompt:
    return prompt(api, json.dumps(body).encode(), parts=parts, form=form)


def chat(*messages: Any, parts: bool = False, form: ToolForm = SENT, **body: Any) -> Conversation:
    said = asked(parts=parts, form=form, messages=messages, **body)
    assert isinstance(said, Conversation)
    return said


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        ("a", "a", [TEXT_A]),
        ("", "", [{"type": "text", "text": ""}]),
        (None, "", []),
        ([TEXT_A, TEXT_B, "a"], "a\nb\na", [TEXT_A, {"type": "text", "text": "b"}, TEXT_A]),
        ([{"type": "refusal", "refusal": "a"}, {"type": "text", "text": None}], "a", [TEXT_A]),
    ],
)  # fmt: skip
def test_a_content_is_a_text_or_a_list_of_parts(content: Any, text: str, parts: list[Any]) -> None:
    message = {"role": "user", "content": content}
    assert chat(message).messages == [{"role": "user", "content": text}]
    assert chat(message, parts=True).messages == [{"role": "user", "content": parts}]


def test_what_a_tool_said_is_a_text() -> None:
    message = {"role": "tool", "tool_call_id": "1", "content": [TEXT_A, TEXT_B], "more": 1}
    assert chat(message, parts=True).messages == [{"role": "tool", "content": "a\nb", "tool_call_id": "1"}]


@pytest.mark.parametrize(
    ("said", "arguments"),
    [('{"a": 1}', {"a": 1}), ("", {}), ("{", {}), (None, {}), ({"a": 1}, {"a": 1}), ("[1]", [1])],
)
def test_arguments_of_a_call_become_an_object(said: Any, arguments: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": said}}
    [message] = chat({"role": "assistant", "tool_calls": [call]}).messages
    called = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert message == {"role": "assistant", "content": "", "tool_calls": [called]}


@pytest.mark.parametrize("member", ["reasoning", "reasoning_content"])
def test_thoughts_are_told_by_both_their_names(member: str) -> None:
    [message] = chat({"role": "assistant", "content": "a", "tool_calls": [], member: "hm"}).messages
    assert message == {"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_content": "hm"}


def test_names_and_a_developers_tools_are_told() -> None:
    developer, user = {"role": "developer", "content": "a", "tools": [1]}, {**USER, "name": "n"}
    assert chat(developer, user).messages == [developer, user]


def test_a_template_gets_what_it_is_told_by_the_request() -> None:
    assert chat(USER).extras == {"add_generation_prompt": True}
    said = chat(
        USER,
        add_generation_prompt=False,
        reasoning_effort="low",
        documents=None,
        chat_template_kwargs={"enable_thinking": False, "reasoning_effort": "high"},
    )
    assert said.extras == {
        "enable_thinking": False,
        "reasoning_effort": "high",
        "add_generation_prompt": False,
    }


def test_tools_have_one_of_the_forms_that_engines_give_them() -> None:
    function = {"parameters": {}, "name": "f", "x": 1}
    told = [json.dumps(chat(USER, tools=[{"function": function}], form=form).tools) for form in TOOL_FORMS]
    nothing = {"description": None}
    assert told == [
        tools({"name": "f", **nothing, "parameters": {}, "x": 1}),
        tools({"name": "f", "parameters": {}, "x": 1}),
        tools({"name": "f", **nothing, "parameters": {}, "strict": None, "defer_loading": None, "x": 1}),
        tools({**nothing, "name": "f", "parameters": {}, "strict": False, "x": 1}),
        json.dumps([{"function": function}]),
    ]


def tools(function: dict[str, Any]) -> str:
    """A list of one tool."""
    return json.dumps([{"type": "function", "function": function}])


def test_no_tools_are_not_an_empty_list_of_tools() -> None:
    assert chat(USER).tools is None
    assert chat(USER, tools=[]).tools == []


@pytest.mark.parametrize(
    "body",
    [
        {"chat_template": "x"},
        {"chat_template_kwargs": {"chat_template": "x"}},
        {"chat_template_kwargs": {"tokenize": True}},
        {"continue_final_message": True},
        {"add_special_tokens": True},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        {"messages": [{"role": "user", "content": [{"image_url": {"url": "u"}}]}]},
    ],
)
def test_what_cannot_be_rendered_here_is_said(body: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        asked(**{"messages": [USER], **body})


@pytest.mark.parametrize(
    ("said", "text"), [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ([], [])]
)
def test_a_prompt_is_a_text_or_ids(said: Any, text: Any) -> None:
    assert asked(Api.COMPLETIONS, prompt=said) == text


@pytest.mark.parametrize(
    "body",
    [{"prompt": ["a", "b"]}, {"prompt": "a", "suffix": "b"}, {"prompt": "a", "add_special_tokens": False}],
)
def test_other_prompts_are_not_supported(body: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        asked(Api.COMPLETIONS, **body)


def test_anthropics_messages_become_a_chat() -> None:
    """As vLLM makes one of them."""
    tool = {"name": "f", "input_schema": {"type": "object"}}
    said = asked(
        Api.MESSAGES,
        system=[{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be"}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "system", "content": " brief."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "text", "text": ""},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "b"}]},
                    {"type": "text", "text": "c"},
                    {"type": "text", "text": "d"},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2"}]},
        ],
        tools=[tool],
        output_config={"effort": "low"},
        form=TOOL_FORMS[0],
    )
    function = {"name": "f", "arguments": {"a": 1}}
    assert said == Conversation(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
                "reasoning": "hm",
                "reasoning_content": "hm",
            },
            {"role": "tool", "tool_call_id": "1", "content": "b"},
            {"role": "user", "content": "c\nd"},
            {"role": "tool", "tool_call_id": "2", "content": ""},
        ],
        [
            {
                "type": "function",
                "function": {"name": "f", "description": None, "parameters": {"type": "object"}},
            }
        ],
        {"add_generation_prompt": True, "reasoning_effort": "low"},
    )


def test_images_in_anthropics_messages_are_not_supported() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    for content in ([image], [{"type": "tool_result", "tool_use_id": "1", "content": [image]}]):
        with pytest.raises(Unsupported):
            asked(Api.MESSAGES, messages=[{"role": "user", "content": content}])
