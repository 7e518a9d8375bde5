"""The embedded engine itself: llama.cpp's HTTP server in this process, until it is told to go.

The only module that imports xllamacpp; it runs in the child process that `llamacpp.argv` describes.
Importing it raises MissingPart when xllamacpp is not installed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NoReturn

from maitred.engines.llamacpp import NO_ENGINE, MissingPart

try:
    import xllamacpp
except ModuleNotFoundError as error:
    raise MissingPart(NO_ENGINE) from error

LOG_ERRORS = 1
"""llama.cpp's verbosity: errors only, on stderr. Warnings would repeat every bad request of a client."""

BATCH_TOKENS = 256
"""Prompt tokens computed in one step. Streams stand still for a step: a long prompt on one core holds them
for about a second by this figure, and for nine by llama.cpp's own of 2048."""

PROMPT_CACHE_MIB = 256
"""Memory for prompts that left their slot; llama.cpp's own bound is 8 GiB."""

PARENT_POLL_S = 0.5


def run(
    host: str,
    port: int,
    model_path: Path,
    alias: str,
    slots: int,
    context_tokens: int,
    threads: int,
    parent: int,
) -> NoReturn:
    """Serve until SIGTERM, SIGINT or the death of process `parent`, then exit 0; exit 1 if it cannot start.

    The socket is open at once; answers are 503 until the model is loaded. `slots` requests run at once, each
    with `context_tokens` of its own.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    Thread(target=_outlive_not, args=(parent,), daemon=True).start()
    try:
        server = xllamacpp.Server(_params(host, port, model_path, alias, slots, context_tokens, threads))
    except RuntimeError:
        sys.exit(f"llama.cpp could not serve {model_path} at {host}:{port}")
    with suppress(OSError):  # nobody listens any more; the end comes by the parent's
        sys.stderr.write(f"llama.cpp serves {alias} at {server.listening_address}\n")
    while True:
        signal.pause()


def _outlive_not(parent: int) -> NoReturn:
    """Leave once this is not the parent any more, as where it died before the first look."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    _leave()


def _leave(*_: object) -> NoReturn:
    """Exit without unwinding: llama.cpp's own end hangs while a stream is still being answered."""
    os._exit(0)


def _params(
    host: str, port: int, model_path: Path, alias: str, slots: int, context_tokens: int, threads: int
) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.hostnames = [host]
    params.port = port
    params.model.path = str(model_path)
    params.model_alias = {alias}
    params.n_parallel = slots
    params.n_ctx = slots * context_tokens  # llama.cpp divides it among the slots
    params.fit_params = False  # what was asked for, or an error; never a silently smaller context
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.ui = False
    params.cors_origins = ""  # no web page may talk to it
    params.verbosity = LOG_ERRORS
    return params
