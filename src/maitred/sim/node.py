"""One simulated endpoint: an engine model, what is wrong with it, and whose requests it has."""

from __future__ import annotations

from maitred.core.words import Facts, Load
from maitred.sim.engine import Engine
from maitred.sim.heard import Heard
from maitred.sim.job import Job
from maitred.sim.profile import Profile

INFINITY = float("inf")


class Node:
    """The engine behind one URL. `before`: the engines that ran here until they crashed.

    `up`: its process runs; `hung_at`: since then it takes requests and tells nothing; `cut`: nothing passes
    between it and the gateway; `mute`: its metrics cannot be read. `due`: the instant for which its next
    advance is on the agenda. `heard`: what its engine tells of its cache, None where nobody listens.
    """

    __slots__ = (
        "before", "cut", "due", "engine", "heard", "hung_at", "jobs", "mute", "pool", "profile", "requests",
        "started_at", "up", "url",
    )  # fmt: skip

    def __init__(self, pool: str, url: str, profile: Profile, heard: Heard | None = None) -> None:
        self.pool = pool
        self.url = url
        self.profile = profile
        self.heard = heard
        self.engine = Engine(profile, listener=heard)
        self.before: list[Engine] = []
        self.jobs: dict[int, Job] = {}
        self.due = INFINITY
        self.up = True
        self.hung_at = INFINITY
        self.cut = self.mute = False
        self.started_at = 0.0
        self.requests = 0

    @property
    def name(self) -> str:
        """As the core calls the endpoint."""
        return f"{self.pool}/{self.url.partition('://')[2]}"

    @property
    def hung(self) -> bool:
        """Whether it takes requests and tells nothing."""
        return self.hung_at < INFINITY

    @property
    def telling(self) -> bool:
        """Whether what its engine does is heard."""
        return self.up and not self.hung and not self.cut

    def restart(self, now: float) -> None:
        """Another process begins, with nothing in its cache, on the same hardware."""
        self.before.append(self.engine)
        speed = self.engine.speed
        self.engine = Engine(self.profile, listener=self.heard)
        if self.heard is not None:
            self.heard.restarted()
        self.engine.speed = speed
        self.due = self.hung_at = INFINITY
        self.started_at = now

    def facts(self) -> Facts:
        """What it tells a probe."""
        profile = self.profile
        return Facts(
            engine="vllm",
            model=self.pool,
            context_tokens=profile.context_tokens_max,
            kv_tokens=profile.kv_blocks * profile.block_tokens * profile.ranks,
            prefix_caching=profile.prefix_caching,
            slots=profile.sequences_max,
            started_at=self.started_at,
        )

    def load(self) -> Load:
        """What its metrics say."""
        engine = self.engine
        return Load(engine.running, engine.waiting, engine.kv_use, engine.preemptions)
