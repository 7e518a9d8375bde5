"""Chat and text completions: the answers of OpenAI's API in vLLM's words, member for member."""

from __future__ import annotations

from typing import Any

from maitred.twin import tokens
from maitred.twin.answers import FINGERPRINT, Answer, Choice, encode

DONE = b"data: [DONE]\n\n"


class Completion(Answer):
    """What chat and text completions share: usage, the end of a stream, token ids on request.

    `object_name` is what an event calls itself.
    """

    object_name = ""

    def event(self, choice: Choice) -> tuple[bytes, bytes]:
        """See Answer."""
        head = self.event_head()
        variable = self.ask.usage_always or self.ask.token_ids
        return self.text_head(head, choice), b"" if variable else self.text_end(choice, b"null", b"")

    def tail(self, choice: Choice, index: int) -> bytes:
        """See Answer."""
        return self.text_end(choice, self._ids(choice, index), self._usage_now(choice, index + 1))

    def last(self, choice: Choice) -> bytes:
        """See Answer."""
        ids = self._ids(choice, choice.made - 1)
        return self.text_end(choice, ids, self._usage_now(choice, choice.made), finished=True)

    def text_head(self, head: bytes, choice: Choice) -> bytes:
        """An event up to the text of its token."""
        raise NotImplementedError

    def text_end(self, choice: Choice, ids: bytes, usage: bytes, *, finished: bool = False) -> bytes:
        """An event from there on."""
        raise NotImplementedError

    def closing(self) -> bytes:
        """See Answer."""
        if not self.ask.usage:
            return DONE
        details = {"cached_tokens": self.cached_tokens, **self.more_details()}
        usage = {**self._usage(self.output_tokens), "prompt_tokens_details": details}
        end = b'[],"usage":%b,"system_fingerprint":%b}\n\n' % (encode(usage), encode(FINGERPRINT))
        return self.event_head() + end + DONE

    def more_details(self) -> dict[str, Any]:
        """What this API's streams tell of the cache besides hits."""
        return {}

    def event_head(self) -> bytes:
        """An event up to its choices."""
        head = {
            "id": self.id,
            "object": self.object_name,
            "created": self.created,
            "model": self.ask.model,
        }
        return b'data: %b,"choices":' % encode(head)[:-1]

    def whole_of(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """An answer that is no stream, around its choices."""
        details = {
            "cached_tokens": self.cached_tokens,
            "created_cache_tokens": None,
            "multimodal_tokens": None,
            **self.more_details(),
        }
        usage = {
            **self._usage(self.output_tokens),
            "prompt_tokens_details": details,
            "completion_tokens_details": None,
        }
        return {
            "id": self.id,
            "object": self.object_name.removesuffix(".chunk"),
            "created": self.created,
            "model": self.ask.model,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage,
            **more,
            "kv_transfer_params": self.transfer_params(),
            "ec_transfer_params": None,
            "metrics": None,
        }

    def ids_of(self, choice: Choice) -> list[int] | None:
        """The ids of a whole answer, where they were asked for."""
        return list(choice.token_ids) if self.ask.token_ids else None

    def prompt_ids(self, choice: Choice) -> list[int] | None:
        """The ids of a prompt, where they were asked for."""
        return list(tokens.ids(choice.prompt)) if self.ask.token_ids else None

    def _usage(self, made: int) -> dict[str, int]:
        prompt = self.prompt_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}

    def _usage_now(self, choice: Choice, made: int) -> bytes:
        """The usage of every event, where it was asked for."""
        if not self.ask.usage_always:
            return b""
        others = self.output_tokens - choice.made
        usage = {**self._usage(others + made), "completion_tokens_details": None}
        return b',"usage":%b' % encode(usage)

    def _ids(self, choice: Choice, index: int) -> bytes:
        return (
            encode(tokens.ids(tokens.encode(choice.text(index).decode()))) if self.ask.token_ids else b"null"
        )


class Chat(Completion):
    """A chat completion."""

    prefix = "chatcmpl-"
    object_name = "chat.completion.chunk"

    def opening(self, choice: Choice) -> bytes:
        """See Answer."""
        delta = (
            b'[{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            % choice.index
        )
        usage, ids = self._usage_now(choice, 0), encode(self.prompt_ids(choice))
        end = b'%b,"prompt_token_ids":%b,"prompt_text":null}\n\n' % (usage, ids)
        return self.event_head() + delta + end

    def text_head(self, head: bytes, choice: Choice) -> bytes:
        """See Completion."""
        return b'%b[{"index":%d,"delta":{"content":"' % (head, choice.index)

    def text_end(self, choice: Choice, ids: bytes, usage: bytes, *, finished: bool = False) -> bytes:
        """See Completion."""
        plan = choice.plan
        finish = b"null"
        if finished:
            finish = b'"%b","stop_reason":%b' % (plan.finish.encode(), encode(plan.stop_reason))
        end = b'"},"logprobs":null,"finish_reason":%b,"token_ids":%b}]%b}\n\n'
        return end % (finish, ids, usage)

    def more_details(self) -> dict[str, Any]:
        """See Completion."""
        return {"created_cache_tokens": self.stored_tokens}

    def whole(self) -> dict[str, Any]:
        """See Answer."""
        choices = [self._choice(choice) for choice in self.choices]
        ids = self.prompt_ids(self.choices[0])
        return self.whole_of(choices, prompt_logprobs=None, prompt_token_ids=ids, prompt_text=None)

    def _choice(self, choice: Choice) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": choice.plan.text.decode(),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        return {
            "index": choice.index,
            "message": message,
            "logprobs": None,
            "finish_reason": choice.plan.finish,
            "stop_reason": choice.plan.stop_reason,
            "token_ids": self.ids_of(choice),
            "routed_experts": None,
        }


class TextCompletion(Completion):
    """A text completion."""

    prefix = "cmpl-"
    object_name = "text_completion"

    def text_head(self, head: bytes, choice: Choice) -> bytes:
        """See Completion."""
        return b'%b[{"index":%d,"text":"' % (head, choice.index)

    def text_end(self, choice: Choice, ids: bytes, usage: bytes, *, finished: bool = False) -> bytes:
        """See Completion."""
        plan = choice.plan
        finish = encode(plan.finish) if finished else b"null"
        reason = encode(plan.stop_reason) if finished else b"null"
        end = (
            b'","logprobs":null,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":null,'
            b'"token_ids":%b}]%b}\n\n'
        )
        return end % (finish, reason, ids, usage)

    def whole(self) -> dict[str, Any]:
        """See Answer."""
        return self.whole_of([self._choice(choice) for choice in self.choices])

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": choice.plan.text.decode(),
            "logprobs": None,
            "finish_reason": choice.plan.finish,
            "stop_reason": choice.plan.stop_reason,
            "token_ids": self.ids_of(choice),
            "prompt_logprobs": None,
            "prompt_token_ids": self.prompt_ids(choice),
            "routed_experts": None,
        }
