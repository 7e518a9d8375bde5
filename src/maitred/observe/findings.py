"""Findings: what is wrong in the house, where, and what to do about it.

A finding is told by whoever sees it, each time it is seen, and settled by the same hand. Here it becomes one
log line when it is new or different, a metric, and a row for whoever asks. Kinds are a closed list, so that
metric and documentation know them all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from msgspec import Struct

log = logging.getLogger("maitred.finding")

FINDINGS_MAX = 64
"""Bound of findings of one kind at once; more of them tell nobody more, and none hides another kind."""

KINDS: dict[str, str] = {
    "prefix_caching_off": "An engine computes every prompt anew.",
    "context_differs": "Endpoints of one model take prompts of different lengths.",
    "cache_shared": "An engine lets tenants find what others asked, though they are to be kept apart.",
    "events_unsalted": "An engine's KV events are of no use where tenants are kept apart.",
    "wrong_model": "An engine serves another model than the configuration says.",
    "unreachable": "An engine does not answer, or not properly.",
    "metrics_stale": "An engine's metrics cannot be read, so only our own count of its load is known.",
    "endpoints_file": "A watched file of endpoints cannot be used; the last good one is in force.",
    "endpoints_dns": "A name does not resolve; the last addresses are in force.",
    "store_unreachable": "The keys cannot be read; those known go on working.",
    "memory_unreachable": "What is remembered cannot be read or kept; all that needs none of it goes on.",
    "accounts_unwritten": "What is spent is not written down, and known to this gateway alone.",
    "unswept": "What is old in the store is not deleted, nor are turns of gateways that died ended.",
    "jwks_unreachable": "The keys of the tokens' issuer cannot be read; those known go on working.",
    "reload_failed": "A changed configuration cannot be used; the one before is in force.",
    "restart_needed": "A changed setting takes effect only after a restart.",
    "query_of_death": "A request was there when engines died twice, and is refused for a while.",
    "ttft_missed": "Most streams of a minute began later than their goal, though all were answered with 200.",
    "cap_too_low": "Requests wait although the engines could run more of them.",
    "engine_queues": "Requests wait inside an engine, where nobody can order or refuse them.",
    "cache_absent": "An engine finds far less in its cache than it was thought to have.",
    "kv_events": "An engine's KV events do not come or cannot be used, so its cache is only guessed.",
    "tokenizer_unusable": "A model's tokenizer cannot be used; prompts are known by their bytes.",
    "template_mismatch": "An engine has other token ids than we; prompts are known by their bytes.",
    "tokens_unchecked": "An engine does not tell its token ids, so ours are taken on trust.",
    "loop_lag": "The gateway itself is the bottleneck.",
}


class Finding(Struct, frozen=True):
    """One thing that is wrong. `kind` is one of KINDS, `where` the place, `since_ms` wall time in ms."""

    kind: str
    where: str
    what: str
    do: str
    since_ms: int

    def __str__(self) -> str:
        """For the log: where, what, and what to do."""
        return f"{self.where}: {self.what}; {self.do}"


class Findings:
    """All that is wrong now, each known by its kind and place."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._now: dict[tuple[str, str], Finding] = {}
        self._wall = wall

    def tell(self, kind: str, where: str, what: str, do: str) -> None:
        """This is so, again or still. Raises ValueError for a kind nobody declared."""
        if kind not in KINDS:
            raise ValueError(f"unknown kind of finding: {kind}")
        known = self._now.get((kind, where))
        if known is not None and (known.what, known.do) == (what, do):
            return
        if known is None and sum(kind == other for other, _ in self._now) >= FINDINGS_MAX:
            return
        since_ms = known.since_ms if known else int(self._wall() * 1000)
        finding = self._now[kind, where] = Finding(kind, where, what, do, since_ms)
        log.warning("%s", finding)

    def settle(self, kind: str, where: str) -> None:
        """This is so no longer, if it ever was."""
        if self._now.pop((kind, where), None) is not None:
            log.info("%s: settled (%s)", where, kind)

    def review(self, kinds: Iterable[str], told: Iterable[tuple[str, str, str, str]]) -> None:
        """These and no others of these kinds are so now; each as the arguments of `tell`."""
        seen = {(kind, where): (what, do) for kind, where, what, do in told}
        for (kind, where), (what, do) in seen.items():
            self.tell(kind, where, what, do)
        for kind, where in [key for key in self._now if key[0] in kinds and key not in seen]:
            self.settle(kind, where)

    def current(self) -> list[Finding]:
        """What is wrong now, the oldest first; from any thread."""
        return sorted(self._now.copy().values(), key=lambda finding: finding.since_ms)

    def counts(self) -> dict[str, int]:
        """How many there are of each kind; from any thread."""
        counts = dict.fromkeys(KINDS, 0)
        for kind, _ in self._now.copy():
            counts[kind] += 1
        return counts
