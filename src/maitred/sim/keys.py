"""Block keys of requests: a prompt that many have in common is read once."""

from __future__ import annotations

from collections import OrderedDict
from zlib import crc32

from maitred.sim.arrival import Arrival
from maitred.sim.job import Chain, Segments

KEYS_MAX = 1 << 18
"""Keys of prompts remembered, in all; the least recently used prompts are forgotten."""


class Keys:
    """The keys of arrivals, answers included, for engines of any block size."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Segments, int, str], Chain] = OrderedDict()
        self._size = 0

    def of(self, arrival: Arrival, block_tokens: int) -> list[int]:
        """The chained keys of the full blocks of prompt and answer."""
        wanted = arrival.prompt, block_tokens, arrival.adapter
        chain = self._known.get(wanted)
        if chain is None:
            chain = Chain(block_tokens, crc32(arrival.adapter.encode()))
            for segment, tokens in arrival.prompt:
                chain.add(segment, tokens)
            self._known[wanted] = chain
            self._size += len(chain.keys)
            while self._size > KEYS_MAX:
                _, oldest = self._known.popitem(last=False)
                self._size -= len(oldest.keys)
        else:
            self._known.move_to_end(wanted)
        whole = chain.copy()
        whole.add(arrival.answer, arrival.output_tokens)
        return whole.keys
