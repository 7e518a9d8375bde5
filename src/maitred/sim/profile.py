"""What a model on a GPU can do, as data: how long a step takes, how much it remembers, how it starts."""

from __future__ import annotations

from msgspec import Struct


class StepTime(Struct, frozen=True):
    """How long one step of an engine takes, in seconds.

    base_s + per_sequence_s x sequences decoding + per_token_s x tokens in their contexts
    + prompt tokens computed / prefill_tokens_per_s
    """

    base_s: float
    per_sequence_s: float
    per_token_s: float
    prefill_tokens_per_s: float

    def seconds(self, sequences: int, context_tokens: int, prefill_tokens: int) -> float:
        """The duration of one step."""
        return (
            self.base_s
            + self.per_sequence_s * sequences
            + self.per_token_s * context_tokens
            + prefill_tokens / self.prefill_tokens_per_s
        )


class Profile(Struct, frozen=True):
    """One engine: a model on its GPUs, as it is started.

    `kv_blocks` of `block_tokens` tokens each, for every one of `ranks` (data parallel, in lockstep). At most
    `sequences_max` run at once, and a step computes at most `step_tokens_max`. `by_priority`: jobs are
    scheduled by their priority, else first come first served. `asynchronous`: a step is scheduled while the
    one before it runs. `kv_token_bytes` and `transfer_bytes_per_s` (0: at once) are for engines that pass
    caches on. `adapters_max` LoRA adapters fit at once (0: none), loading one takes `adapter_load_s`.
    `start`: the phases of a cold start with their seconds. `sources` says where each figure is from.
    """

    name: str
    model: str
    gpu: str
    step: StepTime
    kv_blocks: int
    block_tokens: int = 16
    ranks: int = 1
    sequences_max: int = 1024
    step_tokens_max: int = 8192
    context_tokens_max: int = 32_768
    prefix_caching: bool = True
    asynchronous: bool = True
    by_priority: bool = False
    kv_token_bytes: int = 0
    transfer_bytes_per_s: float = 0.0
    adapters_max: int = 0
    adapter_load_s: float = 0.0
    start: tuple[tuple[str, float], ...] = ()
    sources: dict[str, str] = {}

    @property
    def request_tokens_max(self) -> int:
        """The longest prompt with its answer that it can ever hold; the last token is never read again."""
        return min(self.context_tokens_max, self.kv_blocks * self.block_tokens + 1)

    @property
    def start_s(self) -> float:
        """The whole cold start."""
        return sum(seconds for _, seconds in self.start)
