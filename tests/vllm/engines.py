"""Real vLLM engines on the CPU, of a small model with random weights: their caches are as real as any."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from maitred.engines.llamacpp import bundled_model
from tests.door import gguf

MODEL = "m"
BLOCK_TOKENS = 32
START_S = 400.0
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def folder(where: Path) -> Path:
    """A model's folder, with everything but weights."""
    gguf.folder(bundled_model(), where)
    vocabulary = json.loads((where / "tokenizer.json").read_text())["model"]["vocab"]
    (where / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": len(vocabulary)}))
    said = json.loads((where / "tokenizer_config.json").read_text())
    said |= {"eos_token": said["eos_token"]["content"], "tokenizer_class": "PreTrainedTokenizerFast"}
    (where / "tokenizer_config.json").write_text(json.dumps(said))
    return where


@contextmanager
def engines(model: Path, *ports: int) -> Iterator[list[str]]:
    """Engines at these ports, that tell events at the next one and again what was missed at that after it."""
    with ExitStack() as stack:
        started = []
        for port in ports:
            log = stack.enter_context((model / f"{port}.log").open("wb"))
            process = subprocess.Popen(_argv(model, port), stdout=log, stderr=log, env=_environ())
            stack.callback(process.wait)
            stack.callback(process.terminate)
            started.append(process)
        for port, process in zip(ports, started, strict=True):
            _await(process, port, model / f"{port}.log")
        yield [f"http://127.0.0.1:{port}" for port in ports]


def _argv(model: Path, port: int) -> list[str]:
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{port + 1}",
        "replay_endpoint": f"tcp://*:{port + 2}",
        "topic": f"kv@127.0.0.1:{port}@{MODEL}",
    }
    options = {
        "--model": str(model),
        "--served-model-name": MODEL,
        "--load-format": "dummy",
        "--block-size": str(BLOCK_TOKENS),
        "--max-model-len": "2048",
        "--max-num-seqs": "8",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--kv-events-config": json.dumps(events),
    }
    flags = ["--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
    module = "vllm.entrypoints.openai.api_server"
    return [
        os.environ["VLLM_PYTHON"],
        "-m",
        module,
        *flags,
        *(word for pair in options.items() for word in pair),
    ]


def _environ() -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**os.environ, **offline, "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"no engine at {port}:\n" + log.read_text(errors="replace")[-4000:])
