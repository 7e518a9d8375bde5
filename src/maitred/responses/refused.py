"""What an engine refused, on its way to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maitred.engines.errors import words

if TYPE_CHECKING:
    from maitred.responses.call import ModelCall


class EngineRefused(Exception):  # noqa: N818 - names what happened
    """The engine would not take the request; `call` has what it said, in the client's shape."""

    def __init__(self, call: ModelCall) -> None:
        super().__init__()
        self.call = call

    @property
    def message(self) -> str:
        """What it said."""
        return words(self.call.answer) or "the engine refused the request"
