"""What requests say: prompts of about so many tokens, in which what was shared in the workload is shared.

A piece of text follows from its number and the run's salt alone. Pieces differ from their first words on, so
a server's prefix cache finds exactly what the workload repeats, and with another salt nothing of the run
before. Making one is a slice of a text that is there already, so nothing needs to be kept.
"""

from __future__ import annotations

from random import Random
from struct import pack

import msgspec
from xxhash import xxh3_64_intdigest

from maitred.sim.arrival import Arrival

BYTES_PER_TOKEN = 4.0
"""Where nobody has measured it."""
ANSWER_BYTES_MAX = 1024 * 1024
"""An answer beyond this is not sent back; its stand-in is."""

_VOCABULARY = """
able about after again along also answer around ask back become before begin between book bring
call case change city clear close come could day door each early earth end even every example
fact family find first follow form game give good green hand head hear help high home house
idea keep kind know large last later leave letter life light line list little
"""
_WORDS = [word.encode() + b" " for word in _VOCABULARY.split()]
_CORPUS = b"".join(Random("corpus").choices(_WORDS, k=50_000))
_OPENING_WORDS = 8

Message = tuple[bytes, bytes]
"""Role and text, the text as it stands within the quotes of JSON."""


class Texts:
    """The texts of one run.

    What a server said is sent back to it in the next turn, since only that is in its cache; where there was
    no answer, a text of the planned length stands for it. Answers are held until `forget`.
    """

    def __init__(self, bytes_per_token: float = BYTES_PER_TOKEN, salt: int = 0) -> None:
        self._bytes_per_token = bytes_per_token
        self._salt = salt & 0xFFFF_FFFF_FFFF_FFFF
        self._said: dict[int, dict[int, bytes]] = {}  # conversation -> turn -> answer

    def piece(self, segment: int, tokens: int) -> bytes:
        """A text of so many tokens; a shorter one of the same number is its begin."""
        size = max(1, round(tokens * self._bytes_per_token))
        digest = xxh3_64_intdigest(pack("<QQ", self._salt, segment))
        opening = b"".join([_WORDS[digest >> 6 * place & 63] for place in range(_OPENING_WORDS)])
        start = digest % len(_CORPUS)
        text = opening + _CORPUS[start : start + size]
        if len(text) < size:
            text += _CORPUS * (size // len(_CORPUS) + 1)
        return text[:size]

    def prompt(self, arrival: Arrival) -> bytes:
        """All of a prompt as one text."""
        return b"".join([text for _, text in self.messages(arrival)])

    def messages(self, arrival: Arrival) -> list[Message]:
        """A prompt as messages; only conversations have more than one."""
        pieces = arrival.prompt
        if not arrival.conversation:
            return [(b"user", b"".join([self.piece(*piece) for piece in pieces]))]
        told = len(pieces) - 2 * arrival.turn + 1  # pieces before the first question: 1 or none
        messages = [(b"system", self.piece(*piece)) for piece in pieces[:told]]
        said = self._said.get(arrival.conversation, {})
        for place, piece in enumerate(pieces[told:]):
            turn, answered = divmod(place, 2)
            if answered:
                messages.append((b"assistant", said.get(turn + 1) or self.piece(*piece)))
            else:
                messages.append((b"user", self.piece(*piece)))
        return messages

    def answered(self, arrival: Arrival, text: str) -> None:
        """What the server said in a turn of a conversation."""
        encoded = msgspec.json.encode(text)[1:-1]
        if 0 < len(encoded) <= ANSWER_BYTES_MAX:
            self._said.setdefault(arrival.conversation, {})[arrival.turn] = encoded

    def forget(self, conversation: int) -> None:
        """A conversation is over."""
        self._said.pop(conversation, None)
