"""The Responses API as vLLM has it, without its store: created, streamed or whole, and forgotten."""

from __future__ import annotations

from typing import Any

from maitred.twin.answers import Answer, Choice
from maitred.twin.anthropic import sse

DELTAS_FROM = 4
"""The sequence number of the first delta: four events come before it."""


def _told(number: int, name: str, **members: Any) -> bytes:
    """An event with its number; vLLM has the members in order of the alphabet."""
    return sse(dict(sorted({**members, "sequence_number": number, "type": name}.items())))


class Response(Answer):
    """A response of one message with one text."""

    prefix = "resp_"

    def prelude(self) -> bytes:
        """See Answer."""
        response = self._response("in_progress")
        return _told(0, "response.created", response=response) + _told(
            1, "response.in_progress", response=response
        )

    def opening(self, choice: Choice) -> bytes:  # noqa: ARG002 - there is one
        """See Answer."""
        item = self._item("in_progress", [])
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return _told(2, "response.output_item.added", item=item, output_index=0) + _told(
            3, "response.content_part.added", **self._place, part=part
        )

    def event(self, choice: Choice) -> tuple[bytes, bytes]:  # noqa: ARG002
        """See Answer; each event has a number, so none ends like another."""
        return b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"', b""

    def tail(self, choice: Choice, index: int) -> bytes:  # noqa: ARG002
        """See Answer."""
        end = (
            b'","item_id":"%b","logprobs":[],"output_index":0,"sequence_number":%d,'
            b'"type":"response.output_text.delta"}\n\n'
        )
        return end % (self._item_id.encode(), DELTAS_FROM + index)

    def last(self, choice: Choice) -> bytes:
        """See Answer."""
        text, number = choice.plan.text.decode(), DELTAS_FROM + choice.made
        part, item = self._part(text), self._item("completed", [self._part(text)])
        told = (
            _told(number, "response.output_text.done", **self._place, logprobs=[], text=text),
            _told(number + 1, "response.content_part.done", **self._place, part=part),
            _told(number + 2, "response.output_item.done", item=item, output_index=0),
            _told(number + 3, "response.completed", response=self.whole()),
        )
        return self.tail(choice, choice.made - 1) + b"".join(told)

    def whole(self) -> dict[str, Any]:
        """See Answer."""
        choice = self.choices[0]
        item = self._item("completed", [self._part(choice.plan.text.decode())])
        return self._response("incomplete" if self._cut else "completed", [item], self._usage())

    @property
    def _cut(self) -> bool:
        return self.choices[0].plan.finish == "length"

    @property
    def _place(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self._item_id, "output_index": 0}

    @property
    def _item_id(self) -> str:
        return f"msg_{self.unique}"

    def _part(self, text: str) -> dict[str, Any]:
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _usage(self) -> dict[str, Any]:
        prompt, made = self.prompt_tokens, self.output_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": self.cached_tokens,
                "cache_write_tokens": self.stored_tokens,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": made,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": prompt + made,
        }

    def _response(
        self, status: str, output: list[dict[str, Any]] | None = None, usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": cut,
            "instructions": None,
            "metadata": None,
            "model": self.ask.model,
            "object": "response",
            "output": output or [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self.ask.output_tokens_max,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": self.transfer_params() if usage else None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }
