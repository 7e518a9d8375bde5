"""What the twin counts of its requests, for vLLM's metrics; of its own work the engine tells itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maitred.observe.histogram import Histogram
from maitred.sim.engine import Engine
from maitred.sim.job import Job

if TYPE_CHECKING:
    from maitred.twin.live import Track

TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
STEP_TOKENS = (1.0, *(float(2**power) for power in range(3, 15)))
SEQUENCES = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
FIRST_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
WHOLE_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip
"""The bounds of vLLM 0.32's histograms; those of tokens grow with the context length there."""

HISTOGRAMS: dict[str, tuple[tuple[float, ...], str]] = {
    "request_prompt_tokens": (TOKENS, "Tokens of prompts."),
    "request_generation_tokens": (TOKENS, "Tokens of answers."),
    "iteration_tokens_total": (STEP_TOKENS, "Tokens computed in one step."),
    "request_max_num_generation_tokens": (TOKENS, "The longest answer of a request, in tokens."),
    "request_params_n": (SEQUENCES, "Answers asked for in one request."),
    "request_params_max_tokens": (TOKENS, "Tokens an answer was allowed."),
    "time_to_first_token_seconds": (FIRST_S, "Arrival to first token."),
    "inter_token_latency_seconds": (TOKEN_S, "Between two tokens of an answer."),
    "request_time_per_output_token_seconds": (TOKEN_S, "Mean time for a token after the first."),
    "e2e_request_latency_seconds": (WHOLE_S, "Arrival to last token."),
    "request_queue_time_seconds": (WHOLE_S, "Waiting in the engine."),
    "request_inference_time_seconds": (WHOLE_S, "Scheduled to last token."),
    "request_prefill_time_seconds": (WHOLE_S, "Scheduled to first token."),
    "request_decode_time_seconds": (WHOLE_S, "First to last token."),
    "request_num_preemptions": (PREEMPTIONS, "How often an answer was preempted."),
    "request_prefill_kv_computed_tokens": (TOKENS, "Prompt tokens computed, not found in a cache."),
}
"""vLLM's histograms: name without prefix, bounds, help."""

ENDS = ("stop", "length", "abort", "error", "repetition")


class Counts:
    """Everything counted since the engine's start. `ends`: finished requests by reason.

    Each prompt counts once, when its first token is out: tokens `computed`, found in the cache (`cached`) and
    come from another engine (`fetched`). What a preemption has computed again is in none of them.
    """

    def __init__(self) -> None:
        self.ends = dict.fromkeys(ENDS, 0)
        self.computed = self.cached = self.fetched = 0
        self.histograms = {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}
        self._gaps = self.histograms["inter_token_latency_seconds"]
        self._steps = self.histograms["iteration_tokens_total"]
        self._stepped = 0  # tokens in all steps so far

    def asked(self, sequences: int, output_tokens_max: int) -> None:
        """A request was accepted."""
        self._observe("request_params_n", sequences)
        self._observe("request_params_max_tokens", output_tokens_max)

    def prompted(self, job: Job) -> None:
        """The first token of a job is out."""
        fetched = max(0, job.remote_tokens - job.cached_tokens)
        self.cached += job.cached_tokens
        self.fetched += fetched
        self.computed += job.prompt_tokens - job.cached_tokens - fetched

    def tokens(self, track: Track, made: int, now: float) -> None:
        """An answer has so many tokens by now."""
        if track.made:
            gap_s = (now - track.token_at) / (made - track.made)
            for _ in range(made - track.made):
                self._gaps.observe(gap_s)
        track.token_at = now

    def stepped(self, engine: Engine) -> None:
        """The engine has run; a step, when the loop is in time."""
        tokens = self.computed + engine.generated_tokens
        if tokens != self._stepped:
            self._steps.observe(tokens - self._stepped)
            self._stepped = tokens

    def finished(self, track: Track, now: float) -> None:
        """A job is over."""
        self.tokens(track, track.job.output_tokens, now)
        job, observe = track.job, self._observe
        whole_s, first_s = job.over_at - track.arrived_at, job.first_at - track.arrived_at
        scheduled_at = job.queued_at if math.isnan(job.scheduled_at) else job.scheduled_at
        observe("request_prompt_tokens", job.prompt_tokens)
        observe("request_generation_tokens", job.output_tokens)
        observe("request_max_num_generation_tokens", job.output_tokens)
        observe("e2e_request_latency_seconds", whole_s)
        observe("request_queue_time_seconds", max(0.0, scheduled_at - track.arrived_at))
        observe("request_inference_time_seconds", job.over_at - scheduled_at)
        observe("request_num_preemptions", job.preemptions)
        observe("request_prefill_kv_computed_tokens", job.prompt_tokens - job.cached_tokens)
        if not math.isnan(job.first_at):
            observe("time_to_first_token_seconds", first_s)
            observe("request_prefill_time_seconds", job.first_at - scheduled_at)
            observe("request_decode_time_seconds", job.over_at - job.first_at)
            if job.output_tokens > 1:
                tpot_s = (job.over_at - job.first_at) / (job.output_tokens - 1)
                observe("request_time_per_output_token_seconds", tpot_s)

    def aborted(self) -> None:
        """A job was given up."""
        self.ends["abort"] += 1

    def _observe(self, name: str, value: float) -> None:
        self.histograms[name].observe(value)
