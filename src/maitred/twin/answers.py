"""Answers on their way: what is common to all of vLLM's APIs, whole or streamed, token by token.

An answer has one choice for each prompt and sequence; each is a job at the engine. A stream's events are made
of bytes prepared once, around the few that are a token's text: an event costs one formatting and one write.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from maitred.net.exchange import HttpExchange
from maitred.sim.job import Job
from maitred.twin import tokens
from maitred.twin.bodies import Ask
from maitred.twin.book import Plan
from maitred.twin.live import LiveEngine, Track

BASE_LINES = b"server: uvicorn\r\nvary: Origin\r\n"
JSON_LINES = BASE_LINES + b"content-type: application/json\r\n"
STREAM_LINES = BASE_LINES + b"content-type: text/event-stream; charset=utf-8\r\n"
FINGERPRINT = "vllm-0.32.0-maitred"

PIECE_TOKENS = 256
"""Tokens of a choice that are written at once: a client that was slow is not given all it missed."""

encode = msgspec.json.encode


class Choice(Track):
    """One answer to one prompt. `before` and `after` are an event's bytes around a token's text.

    `told` of its tokens have been written to a stream.
    """

    __slots__ = ("after", "answer", "before", "index", "over", "plan", "prompt", "told")

    def __init__(self, answer: Answer, index: int, prompt: bytes, plan: Plan, job: Job) -> None:
        super().__init__(job)
        self.answer = answer
        self.index = index
        self.prompt = prompt
        self.plan = plan
        self.over = False
        self.told = 0
        self.before = self.after = b""

    def out(self, made: int, *, over: bool) -> None:
        """See Track."""
        self.made = made
        self.answer.out(self, over=over)

    def text(self, index: int) -> bytes:
        """The text of one token; it may be empty, or cut short, at a stop string."""
        return self.plan.text[tokens.TOKEN_BYTES * index : tokens.TOKEN_BYTES * (index + 1)]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All its tokens."""
        return tokens.ids(tokens.encode(self.plan.text.decode()))


class Answer:
    """One request being answered; formats are its subclasses.

    `unique` is what its id is made of, unless the request brought one; `created` is wall time in seconds.
    `reset_tokens`: a fault, after how many tokens the connection is reset. A stream is the `Flow` of its
    exchange, and writes nothing while the client is slow: what that misses meanwhile is a number.
    """

    prefix = ""
    """What its id begins with."""
    plan: Plan | None = None
    """What every choice will be, where that is known."""

    def __init__(self, live: LiveEngine, exchange: HttpExchange, ask: Ask, unique: str, created: int) -> None:
        self._live = live
        self._open = 0  # choices of a stream whose end is not written
        self._paused = False
        self.exchange = exchange
        self.ask = ask
        self.id = self.prefix + (ask.request_id or unique)
        self.unique = unique
        self.created = created
        self.choices: list[Choice] = []
        self.reset_tokens: float = math.inf

    def start(self, choices: list[Choice]) -> None:
        """Hand the choices to the engine, each of which can serve them."""
        self.choices = choices
        self._open = len(choices)
        for choice in choices:
            self._live.submit(choice)
        if not self.ask.stream:
            self.exchange.watch(self.drop)
            return
        self.exchange.flow = self
        for choice in choices:
            choice.before, choice.after = self.event(choice)
        self.exchange.start(200, STREAM_LINES, None, self.prelude())

    def out(self, choice: Choice, *, over: bool) -> None:
        """More of a choice is out."""
        broken = self.output_tokens >= self.reset_tokens
        choice.over = over and not broken
        if choice.over:
            self._live.counts.ends[choice.plan.finish] += 1
        if self.ask.stream:
            self._tell(choice)
        elif choice.over and all(other.over for other in self.choices):
            self.exchange.respond(200, JSON_LINES, encode(self.whole()))
        if broken:
            self.exchange.reset()

    def pause(self) -> None:
        """See Flow."""
        self._paused = True

    def resume(self) -> None:
        """See Flow: go on where it stopped."""
        self._paused = False
        for choice in self.choices:
            self._tell(choice)

    def drop(self) -> None:
        """See Flow: nobody wants it any more."""
        for choice in self.choices:
            if not choice.over:
                choice.over = True
                self._live.abort(choice)

    def _tell(self, choice: Choice) -> None:
        """Write what is out and was not told, as long as the client takes it."""
        while choice.told < choice.made and not self._paused:
            told, until = choice.told, min(choice.made, choice.told + PIECE_TOKENS)
            choice.told = until
            self._write(choice, told, until, last=choice.over and until == choice.made)

    def _write(self, choice: Choice, told: int, until: int, *, last: bool) -> None:
        """Write the events of tokens from `told` up to `until`; `last`: these are the last ones."""
        if last:
            until -= 1
        before, after = choice.before, choice.after
        if after and until - told == 1:
            data = b"%b%b%b" % (before, choice.text(told), after)
        else:
            parts = [before + choice.text(i) + (after or self.tail(choice, i)) for i in range(told, until)]
            data = b"".join(parts)
        if not told:
            data = self.opening(choice) + data
        if not last:
            self.exchange.write(data)
            return
        self._open -= 1
        data += before + choice.text(until) + self.last(choice)
        if self._open:
            self.exchange.write(data)
        else:
            self.exchange.end(data + self.closing())

    # -- what a format says -----------------------------------------------------------------------

    def prelude(self) -> bytes:
        """What a stream begins with at once."""
        return b""

    def opening(self, choice: Choice) -> bytes:  # noqa: ARG002
        """What comes before a choice's first token."""
        return b""

    def event(self, choice: Choice) -> tuple[bytes, bytes]:
        """A token's event around its text; the second is b"" where `tail` makes it anew for each."""
        raise NotImplementedError

    def tail(self, choice: Choice, index: int) -> bytes:
        """What comes behind the text of this token."""
        raise NotImplementedError

    def last(self, choice: Choice) -> bytes:
        """What comes behind the text of the last token."""
        raise NotImplementedError

    def closing(self) -> bytes:
        """What a stream ends with."""
        return b""

    def whole(self) -> Any:
        """The answer that is no stream."""
        raise NotImplementedError

    # -- what formats have in common --------------------------------------------------------------

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts; a prompt with several answers counts once."""
        return sum(choice.job.prompt_tokens for choice in self.choices[:: self.ask.sequences])

    @property
    def cached_tokens(self) -> int:
        """Of all prompts, found in the cache."""
        return sum(choice.job.cached_tokens for choice in self.choices[:: self.ask.sequences])

    @property
    def stored_tokens(self) -> int:
        """Of all prompts, new in the cache: those that fill blocks and were not found."""
        block = self._live.engine.profile.block_tokens
        firsts = (choice.job for choice in self.choices[:: self.ask.sequences])
        return sum(
            max(0, job.prompt_tokens // block * block - job.cached_tokens - job.remote_tokens)
            for job in firsts
        )

    @property
    def output_tokens(self) -> int:
        """Of all answers, so far."""
        return sum(choice.made for choice in self.choices)

    def transfer_params(self) -> dict[str, Any] | None:
        """`kv_transfer_params` of an answer whose prompt another engine is to fetch, as NIXL has them."""
        transfer = self.ask.transfer
        if not transfer or not transfer.get("do_remote_decode"):
            return None
        job = self.choices[0].job
        blocks = -(-job.prompt_tokens // self._live.engine.profile.block_tokens)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(range(1, blocks + 1))],
            "remote_engine_id": self._live.name,
            "remote_request_id": f"{self.id}-{job.number:08x}",
            "remote_host": "127.0.0.1",
            "remote_port": 15601,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": job.prompt_tokens,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": job.cached_tokens,
        }
