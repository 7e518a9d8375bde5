"""What a request gets that vLLM would refuse: status, sentence and shape, as vLLM 0.32 has them."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

BAD_REQUEST, NOT_FOUND, INTERNAL = "BadRequestError", "NotFoundError", "InternalServerError"
INVALID = "Bad Request"
"""The type of what does not even validate, a word of its own."""


class Wrong(Exception):  # noqa: N818 - the request is
    """A request that is answered with an error. `kind` is the error's type; `param` the member at fault."""

    def __init__(
        self, message: str, param: str | None = None, kind: str = BAD_REQUEST, status: int = 400
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.kind = kind
        self.status = status

    def body(self, *, anthropic: bool = False) -> bytes:
        """The error as JSON. What is invalid is told in OpenAI's shape on every path."""
        if anthropic and self.kind != INVALID:
            return msgspec.json.encode(
                {"type": "error", "error": {"type": self.kind, "message": self.message}}
            )
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


def detail(text: str) -> bytes:
    """The body of errors that come from the web framework: unknown paths and methods."""
    return msgspec.json.encode({"detail": text})


def invalid(kind: str, path: str, message: str, given: Any, **more: Any) -> Wrong:
    """One failed validation. `kind` is its name, `path` where it failed, `given` what stands there."""
    if isinstance(given, dict):
        given = f"<dict of {len(given)} items>"
    problem = {"type": kind, "loc": path, "msg": message, "input": given, **more}
    return Wrong(f"1 validation error:\n  {problem}", path, INVALID)


def refuse(param: str, value: Any, sentence: str) -> NoReturn:
    """Raise for a member whose value will not do."""
    raise Wrong(f"{sentence} (parameter={param}, value={value})", param)


def unknown_model(name: str, served: str) -> Wrong:
    """No such model, nor an adapter of that name."""
    sentence = f"The model `{name}` does not exist. Valid aliases: {served}."
    return Wrong(sentence, "model", NOT_FOUND, 404)


def check_room(prompt_tokens: int, output_tokens: int | None, context_tokens: int, param: str) -> int:
    """The most tokens an answer may have beside its prompt, `output_tokens` where they were asked for.

    Raises Wrong where there is no room. vLLM counts a prompt only as far as it could fit, and so does this.
    `param`: what the API calls the output tokens.
    """
    if output_tokens is not None and output_tokens > context_tokens:
        refuse(
            param,
            output_tokens,
            f"{param}={output_tokens} cannot be greater than max_model_len={context_tokens}. "
            "Please request fewer output tokens.",
        )
    most = f"This model's maximum context length is {context_tokens} tokens. However,"
    room = context_tokens - prompt_tokens
    if room < 1:
        least = context_tokens + 1
        refuse(
            "input_tokens",
            least,
            f"{most} your prompt contains at least {least} input tokens, which exceeds this limit even "
            "without any output tokens. Please reduce the length of the input prompt.",
        )
    if output_tokens is not None and output_tokens > room:
        least = context_tokens - output_tokens + 1
        refuse(
            "input_tokens",
            least,
            f"{most} you requested {output_tokens} output tokens and your prompt contains at least {least} "
            f"input tokens, for a total of at least {context_tokens + 1} tokens. Please reduce the length of "
            "the input prompt or the number of requested output tokens.",
        )
    return room if output_tokens is None else output_tokens
