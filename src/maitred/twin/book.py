"""The text of the twin's answers: three letters and a space a token, the same for the same prompt and seed.

All answers are read from one long page, each from a place that its prompt decides. The words need no escape
in JSON, and each is exactly one token.
"""

from __future__ import annotations

from random import Random

import xxhash
from msgspec import Struct

from maitred.twin.tokens import TOKEN_BYTES

PAGE_TOKENS = 8192
SEED_MASK = 2**64 - 1
WORDS = (
    b"ale ash bay bee bow box bun cab cap cod cup dew dog ebb eel egg elm fig fir fog fox gem gin ham hay "
    b"hen hut ice ink ivy jam jar jug keg key kit lid log map mat mug net nut oak oar oat orb owl pan pea "
    b"pie pot ram ray rib rye sky sun tap tea tin urn van web "
)


class Plan(Struct, frozen=True):
    """An answer before it is made: its text, its tokens, and why it will end.

    The text is shorter than its tokens where a stop string is left out of it.
    """

    text: bytes
    tokens: int
    finish: str
    stop_reason: str | None = None


class Book:
    """Where answers are read. `mean_tokens`: of those that end by themselves, from half to one and a half."""

    def __init__(self, seed: int, mean_tokens: int) -> None:
        words = [WORDS[at : at + TOKEN_BYTES] for at in range(0, len(WORDS), TOKEN_BYTES)]
        self._page = b"".join(Random(seed).choices(words, k=PAGE_TOKENS))
        self._mean_tokens = mean_tokens

    def plan(
        self,
        prompt: bytes,
        nth: int,
        tokens_max: int,
        tokens_min: int = 0,
        stops: tuple[str, ...] = (),
        *,
        endless: bool = False,
    ) -> Plan:
        """The nth answer to packed tokens, of at most so many tokens; `endless`: of exactly so many."""
        place = xxhash.xxh3_64_intdigest(prompt, nth & SEED_MASK)
        whole = self._mean_tokens // 2 + (place >> 32) % (self._mean_tokens + 1)
        whole = max(1, whole, tokens_min)
        tokens = tokens_max if endless else min(whole, tokens_max)
        text = self._read(place % PAGE_TOKENS, tokens)
        found = [(at, stop) for stop in stops if (at := text.find(stop.encode())) >= 0]
        if found:
            at, stop = min(found)
            tokens = -(-(at + len(stop.encode())) // TOKEN_BYTES)
            return Plan(text[:at], tokens, "stop", stop)
        return Plan(text, tokens, "stop" if tokens == whole and not endless else "length")

    def _read(self, place: int, tokens: int) -> bytes:
        pages = self._page * (1 + (place + tokens) // PAGE_TOKENS)
        return pages[place * TOKEN_BYTES : (place + tokens) * TOKEN_BYTES]
