"""Secrets: the configuration says where one is kept, never what it is.

So a configuration can be shown, committed and mailed. Whoever needs the secret reveals it; the loader does
so once, so that a start without it fails at the start. Errors do not even repeat where it is said to be: who
writes the secret itself there, by mistake, should not find it in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import HIDDEN_FILE, VARIABLE
from maitred.config.setting import Forms, Setting

LENGTH_MIN, LENGTH_MAX = 16, 4096


class EnvSecret(Struct, frozen=True):
    """A secret in an environment variable."""

    env: Annotated[str, Setting("env", VARIABLE, "The environment variable that holds it.")]

    def reveal(self, environ: Mapping[str, str], length_min: int = LENGTH_MIN) -> str:
        """The secret; ValueError says what is missing, and never what is there."""
        place = "the environment variable named there"
        if self.env not in environ:
            raise ValueError(f"{place} is not set")
        return checked(environ[self.env], place, length_min)


class FileSecret(Struct, frozen=True):
    """A secret in a file, with or without a newline at its end."""

    file: Annotated[Path, Setting("file", HIDDEN_FILE, "The file that holds it.")]

    def reveal(self, _environ: Mapping[str, str], length_min: int = LENGTH_MIN) -> str:
        """The secret; ValueError says what is missing, and never what is there."""
        place = "the file named there"
        try:
            with self.file.open("rb") as file:
                content = file.read(LENGTH_MAX + 3)
        except OSError as error:
            raise ValueError(f"{place}: {error.strerror}") from None  # the error itself holds the name
        return checked(content.decode("latin-1"), place, length_min)


Secret = EnvSecret | FileSecret

SECRET = Forms(
    (EnvSecret, FileSecret), "{env: NAME} or {file: PATH}; the secret itself is never written here"
)


def checked(text: str, place: str, length_min: int = LENGTH_MIN) -> str:
    """The secret in this text; ValueError names the place where it was found."""
    secret = text.removesuffix("\n").removesuffix("\r")
    fits = length_min <= len(secret) <= LENGTH_MAX
    if not fits or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError(
            f"{place} must hold {length_min} to {LENGTH_MAX} printable ASCII characters without spaces"
        )
    return secret
