"""Secrets: what is revealed, and that what is wrong is said without saying the secret."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from maitred.config.secret import EnvSecret, FileSecret

TOKEN = "0123456789abcdef"


def test_a_secret_in_the_environment() -> None:
    assert EnvSecret("T").reveal({"T": TOKEN}) == TOKEN
    with pytest.raises(ValueError, match=r"^the environment variable named there is not set$"):
        EnvSecret("T").reveal({})


@pytest.mark.parametrize("content", [TOKEN, TOKEN + "\n", TOKEN + "\r\n", "x" * 4096 + "\r\n"])
def test_a_secret_in_a_file_ends_before_its_newline(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content.encode())
    assert FileSecret(path).reveal({}) == content.strip()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "canary-89abcde",
        "x" * 4097,
        "x" * 4096 + "\r\nx",
        "canary canary canary",
        "canary-canary-ä-canary",
        f"{TOKEN}\n\n",
    ],
)
def test_what_is_no_secret_is_not_repeated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    for secret, place in ((FileSecret(path), "file"), (EnvSecret("T"), "environment variable")):
        with pytest.raises(ValueError) as caught:
            secret.reveal({"T": content})
        assert str(caught.value).startswith(f"the {place} named there must hold 16 to 4096 printable")
        assert "canary" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    gone = FileSecret(tmp_path / "canary")
    with pytest.raises(ValueError, match=r"^the file named there: No such file or directory$") as caught:
        gone.reveal({})
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ValueError, match=r"^the file named there: Is a directory$"):
        FileSecret(tmp_path).reveal({})
