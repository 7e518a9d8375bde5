"""Anthropic's API as vLLM has it: the same answers in other words, and each event named twice."""

from __future__ import annotations

from typing import Any

from maitred.twin.answers import Answer, Choice, encode


def sse(event: dict[str, Any]) -> bytes:
    """An event that is named by its type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode(event))


class Message(Answer):
    """A message. Its id is a chat completion's, as in vLLM."""

    prefix = "chatcmpl-"

    def opening(self, choice: Choice) -> bytes:
        """See Answer."""
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.ask.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self.prompt_tokens, "output_tokens": 0},
        }
        block = {"type": "text", "text": ""}
        return sse({"type": "message_start", "message": message}) + sse(
            {"type": "content_block_start", "content_block": block, "index": choice.index}
        )

    def event(self, choice: Choice) -> tuple[bytes, bytes]:
        """See Answer."""
        name = b"content_block_delta"
        before = b'event: %b\ndata: {"type":"%b","delta":{"type":"text_delta","text":"' % (name, name)
        return before, b'"},"index":%d}\n\n' % choice.index

    def last(self, choice: Choice) -> bytes:
        """See Answer."""
        delta = {"stop_reason": self._reason(choice), "stop_sequence": choice.plan.stop_reason}
        return (
            choice.after
            + sse({"type": "content_block_stop", "index": choice.index})
            + sse({"type": "message_delta", "delta": delta, "usage": self._usage()})
        )

    def closing(self) -> bytes:
        """See Answer."""
        return sse({"type": "message_stop"})

    def whole(self) -> dict[str, Any]:
        """See Answer."""
        choice = self.choices[0]
        said: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": choice.plan.text.decode()}],
            "model": self.ask.model,
            "stop_reason": self._reason(choice),
        }
        if choice.plan.stop_reason is not None:
            said["stop_sequence"] = choice.plan.stop_reason
        return {**said, "usage": self._usage()}

    def _reason(self, choice: Choice) -> str:
        if choice.plan.stop_reason is not None:
            return "stop_sequence"
        return "max_tokens" if choice.plan.finish == "length" else "end_turn"

    def _usage(self) -> dict[str, int]:
        cached = self.cached_tokens
        return {
            "input_tokens": self.prompt_tokens - cached,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
        }
