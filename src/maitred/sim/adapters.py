"""LoRA adapters of one rank: few fit at once, and loading one takes a while."""

from __future__ import annotations


class Adapters:
    """At most `most` are loaded or being loaded; the one that is longest unused makes room for another."""

    __slots__ = ("_load_s", "_most", "_ready_at", "_users")

    def __init__(self, most: int, load_s: float) -> None:
        self._most = most
        self._load_s = load_s
        self._ready_at: dict[str, float] = {}  # in the order of their last use
        self._users: dict[str, int] = {}

    def ready(self, name: str, now: float) -> bool:
        """Whether a job may run with this one now; if not, loading starts as soon as there is room."""
        if name not in self._ready_at and self._has_room(now):
            self._ready_at[name] = now + self._load_s
        return self._ready_at.get(name, now + 1) <= now

    def _has_room(self, now: float) -> bool:
        if len(self._ready_at) < self._most:
            return True
        for name, at in self._ready_at.items():
            if at <= now and not self._users.get(name):
                del self._ready_at[name]
                return True
        return False

    def begin(self, name: str) -> None:
        """A sequence runs with it."""
        self._users[name] = self._users.get(name, 0) + 1
        self._ready_at[name] = self._ready_at.pop(name)

    def end(self, name: str) -> None:
        """A sequence has stopped running with it."""
        self._users[name] -= 1
        if not self._users[name]:
            del self._users[name]

    def next_at(self, now: float) -> float | None:
        """When the next one is loaded; None while none is being loaded."""
        return min((at for at in self._ready_at.values() if at > now), default=None)

    def loaded(self, now: float) -> list[str]:
        """Those that jobs may run with, the longest unused first."""
        return [name for name, at in self._ready_at.items() if at <= now]
