"""Profiles of models on GPUs: measured where a run exists, published where someone did, else computed.

A profile is called `<gpu>-<model>`, like `h100-llama-3.1-8b`, on as few GPUs (1, 2, 4 or 8) as leave room for
a useful cache. Three tables in `data/` hold what is known of GPUs, of models, and of pairs. The rest follows
from memory and compute rates. On 1,360 published measurements of NVIDIA's server GPUs the time per token that
is computed so was 34 % off in the mean (dense models 18 %, mixtures of experts 37 %), and neither too long
nor too short on the whole. The speed of prompts may be wrong by a factor of 2 on other GPUs.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from maitred.sim.profile import Profile, StepTime

GIB = 1024**3
GPUS = (1, 2, 4, 8)
KV_TOKENS_MIN = 65_536
"""Fewer tokens of cache, and one more GPU is taken."""

MEMORY_EFFICIENCY, COMPUTE_EFFICIENCY = 0.9, 0.5
LAYER_S = 80e-6
"""Efficiencies and time per layer that fit published measurements best, as one set for all of them."""

BATCH = 32
"""Sequences that count where it depends on them: the experts a step reads, the cache of sliding windows."""

OUTSIDE_TORCH_GIB, OUTSIDE_TORCH_GIB_MANY = 0.27, 2.10
"""Memory that vLLM's GPUs use outside torch, alone and together (llm-d-planner 0.3.3, 49 runs)."""

START = (("process", 10.0), ("compile", 20.0), ("graphs", 12.0))
WEIGHTS_BYTES_PER_S = 1.5e9
"""A cold start of Qwen3-32B on H100 then takes the 86 s that are published; how they divide is a guess."""

COMPUTED = {
    "step": (
        "computed, 18 % (dense) or 37 % (mixtures) off: weights read / (memory rate x 0.9) + 80 us a layer; "
        "the cache of a token / (memory rate x 0.9); 2 x active parameters / (compute rate x 0.5)"
    ),
    "kv_blocks": (
        "computed: (memory x use - weights - activation - 0.27 GiB, 2.1 on several GPUs) / cache of a token"
    ),
    "sequences_max": "vLLM's default for this memory",
    "step_tokens_max": "vLLM's default for this memory",
    "context_tokens_max": "published: the model's configuration, unless the cache is smaller",
    "kv_token_bytes": "computed: from the model's configuration, in bf16",
    "transfer_bytes_per_s": "published: what a network between machines carries for each GPU",
    "start": "published: 86 s for Qwen3-32B on H100; the split is a guess, weights at 1.5 GB/s",
}

_T = TypeVar("_T")


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `gpus.yaml`; at most `most` of them work together."""

    title: str
    memory_gib: float
    memory_tb_per_s: float
    tflops: float
    network_gb_per_s: float
    fp8_tflops: float | None = None
    most: int = 8
    sequences_max: int = 1024
    step_tokens_max: int = 8192


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `models.yaml`; a dense model has one expert."""

    title: str
    layers: int
    kv_heads: int
    parameters: float
    kv_token_bytes: int
    context_tokens_max: int
    activation_gib: float
    active: float | None = None
    experts: int = 1
    experts_per_token: int = 1
    weight_bytes: float = 2.0
    sequence_bytes: int = 0

    def read_bytes(self, sequences: int) -> float:
        """Weights that a step for so many sequences reads: of a mixture, the experts that any chose."""
        if self.active is None:
            return self.parameters * 1e9 * self.weight_bytes
        expert = (self.parameters - self.active) / (self.experts - self.experts_per_token)
        shared = self.active - self.experts_per_token * expert
        touched = self.experts * (1 - (1 - self.experts_per_token / self.experts) ** sequences)
        return (shared + touched * expert) * 1e9 * self.weight_bytes


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `profiles.yaml`."""

    gpus: int | None = None
    memory_use: float = 0.9
    figures: dict[str, Any] = {}
    sources: dict[str, str] = {}


@cache
def _table(name: str, row: type[_T]) -> dict[str, _T]:
    text = files("maitred.sim").joinpath("data", f"{name}.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=dict[str, row])  # type: ignore[valid-type]


def names() -> list[str]:
    """All profiles there are."""
    pairs = [(gpu, model) for gpu in _table("gpus", Gpu) for model in _table("models", Model)]
    return [f"{gpu}-{model}" for gpu, model in pairs if _gpus(gpu, model)]


def load(name: str) -> Profile:
    """The profile of this name, or in this file (*.yaml). Raises ValueError, naming the nearest."""
    if name.endswith(".yaml"):
        return read(Path(name))
    gpu, _, model = name.partition("-")
    gpus = _gpus(gpu, model) if gpu in _table("gpus", Gpu) and model in _table("models", Model) else None
    if gpus is None:
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.3)
        raise ValueError(f"no profile {name!r}; near it are {', '.join(near) or 'none'}")
    return _profile(name, _table("gpus", Gpu)[gpu], _table("models", Model)[model], gpus)


def read(path: Path) -> Profile:
    """A profile from a file, as `write` writes it. Raises ValueError."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"no profile in {path}: {getattr(error, 'strerror', None) or error}") from error


def write(profile: Profile, path: Path) -> None:
    """Keep a profile in a file. Raises OSError."""
    path.write_bytes(msgspec.yaml.encode(profile))


def _known(name: str) -> Known:
    known: dict[str, Known] = _table("profiles", Known)
    return known.get(name, Known())


def _gpus(gpu: str, model: str) -> int | None:
    """How many GPUs a rank of the profile has; None if eight are too few."""
    known, of_gpu, of_model = (
        _known(f"{gpu}-{model}"),
        _table("gpus", Gpu)[gpu],
        _table("models", Model)[model],
    )
    if known.gpus is not None:
        return known.gpus
    for gpus in GPUS:
        if gpus <= of_gpu.most and _kv_tokens(of_gpu, of_model, gpus, known.memory_use) >= KV_TOKENS_MIN:
            return gpus
    return None


def _kv_tokens(gpu: Gpu, model: Model, gpus: int, memory_use: float) -> int:
    """Tokens that the cache holds. More GPUs than KV heads hold copies."""
    split = min(gpus, model.kv_heads)
    outside_gib = OUTSIDE_TORCH_GIB if gpus == 1 else OUTSIDE_TORCH_GIB_MANY
    free_bytes = (gpu.memory_gib * memory_use - model.activation_gib - outside_gib) * GIB
    free_bytes -= model.parameters * 1e9 * model.weight_bytes / gpus + model.sequence_bytes * BATCH / split
    return int(free_bytes * split / model.kv_token_bytes)


def _step(gpu: Gpu, model: Model, gpus: int) -> StepTime:
    """Weights, caches and compute one after the other, each at its rate."""
    bytes_per_s = gpu.memory_tb_per_s * 1e12 * MEMORY_EFFICIENCY
    peak = gpu.fp8_tflops if model.weight_bytes == 1 and gpu.fp8_tflops else gpu.tflops
    token_s = 2 * (model.active or model.parameters) * 1e9 / (gpus * peak * 1e12 * COMPUTE_EFFICIENCY)
    return StepTime(
        base_s=model.read_bytes(BATCH) / (gpus * bytes_per_s) + LAYER_S * model.layers,
        per_sequence_s=token_s,
        per_token_s=model.kv_token_bytes / (min(gpus, model.kv_heads) * bytes_per_s),
        prefill_tokens_per_s=1 / token_s,
    )


def _profile(name: str, gpu: Gpu, model: Model, gpus: int) -> Profile:
    known = _known(name)
    kv_tokens = _kv_tokens(gpu, model, gpus, known.memory_use)
    block_tokens = known.figures.get("block_tokens", 16)
    together = gpus * known.figures.get("ranks", 1)
    weights_s = model.parameters * 1e9 * model.weight_bytes / WEIGHTS_BYTES_PER_S
    figures = {
        "name": name,
        "model": model.title,
        "gpu": gpu.title if together == 1 else f"{together} x {gpu.title}",
        "step": msgspec.to_builtins(_step(gpu, model, gpus)),
        "kv_blocks": kv_tokens // block_tokens,
        "sequences_max": gpu.sequences_max,
        "step_tokens_max": gpu.step_tokens_max,
        "context_tokens_max": min(model.context_tokens_max, kv_tokens),
        "kv_token_bytes": model.kv_token_bytes,
        "transfer_bytes_per_s": gpus * gpu.network_gb_per_s * 1e9,
        "start": [START[0], ("weights", weights_s), *START[1:]],
    }
    return msgspec.convert({**figures, **known.figures, "sources": {**COMPUTED, **known.sources}}, Profile)
