"""Why a prompt's token ids are not known, so that it is known by its bytes alone."""

from __future__ import annotations

from enum import IntEnum


class NoTokens(IntEnum):
    """The reasons, a closed list; receipts and metrics say them by `label`."""

    OFF = 0
    """Nobody was to tell them: the model has no source, or the API makes no answer out of a prompt."""
    BUSY = 1
    """Too many requests waited for theirs."""
    FAILED = 2
    """The source could not be loaded, reached or understood, or would not take the request."""
    TIMEOUT = 3
    TEMPLATE_MISMATCH = 4
    """An engine's own token ids are others than ours."""
    TOO_LONG = 5
    UNSUPPORTED = 6
    """The request has what we cannot render: images and the like, several prompts, a template of its own."""

    @property
    def label(self) -> str:
        """Name in receipts, metrics and logs."""
        return self.name.lower()
