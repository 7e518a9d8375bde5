"""What an engine says when it refuses a request, in whatever shape it says so.

vLLM and llama.cpp have OpenAI's shape, SGLang and older vLLM one of their own, frameworks another. A prompt
that is too long is worth knowing by its numbers: agents shorten their conversation where they are told of it
in words they know.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

WORDS_MAX = 1024
"""More of an engine's text is not passed on (in bytes) and not searched (in characters)."""

_PROMPT, _OUTPUT, _MOST = (rf"(?P<{name}>\d{{1,9}})" for name in ("prompt", "output", "most"))
_SENTENCES = (
    # vLLM, which stops counting a prompt where it no longer fits beside the output asked for
    rf"length is {_MOST} tokens\. However, you requested {_OUTPUT} .*?(?:at least|bound for) {_PROMPT} input",
    rf"passed {_PROMPT} input tokens and requested {_OUTPUT} .*?length is only {_MOST} tokens",
    # vLLM where no output was asked for, and older ones, which counted to the end
    rf"length is {_MOST} tokens.*?\b{_PROMPT} (?:input tokens|in the messages)",
    # SGLang
    rf"input \({_PROMPT} tokens\) is longer than the model's context length \({_MOST} tokens\)",
    rf"length of {_MOST} tokens.*?\b{_PROMPT} tokens from the input",
    # llama.cpp, which has both numbers as members too
    rf"request \({_PROMPT} tokens\) exceeds the available context size \({_MOST} tokens\)",
)
_searches = tuple(re.compile(sentence, re.DOTALL).search for sentence in _SENTENCES)


def words(body: bytes) -> str:
    """What the body of an error says to people: its message wherever it stands, else its text; may be ""."""
    return _words(_members(body)) or body[:WORDS_MAX].decode(errors="replace").strip()


def overflow(body: bytes) -> tuple[int, int] | None:
    """The tokens of a prompt that is too long, and the most there may be; None for any other error.

    The first is always the greater. It includes the output asked for where the engine has not counted the
    prompt to its end. A prompt that would fit beside a smaller output is another error.
    """
    said = _members(body)
    prompt, most, output = said.get("n_prompt_tokens"), said.get("n_ctx"), 0
    if not (isinstance(prompt, int) and isinstance(most, int)):
        text = _words(said)[:WORDS_MAX]
        match = next(filter(None, (search(text) for search in _searches)), None)
        if match is None:
            return None
        counts = {name: int(count) for name, count in match.groupdict().items()}
        prompt, most, output = counts["prompt"], counts["most"], counts.get("output", 0)
    if output >= most or prompt + output < most:
        return None
    return max(prompt + output, most + 1), most  # one that fills the context leaves no room for an answer


def _members(body: bytes) -> dict[str, Any]:
    """The members of the error within, over those of the body itself."""
    try:
        said = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    error = said.get("error")
    return said | error if isinstance(error, dict) else said


def _words(said: dict[str, Any]) -> str:
    texts = (said.get(name) for name in ("message", "error", "detail"))
    return next((text for text in texts if isinstance(text, str) and text), "")
