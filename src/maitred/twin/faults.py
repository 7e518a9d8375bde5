"""What can be wrong with a twin, in one small vocabulary for its flag, its header and its admin paths.

A fault is written as words, one or several with commas between them:

  status=503     requests are answered with this status
  hang           requests are accepted and never answered
  reset=20       the connection is reset once an answer has so many tokens
  slow=3         steps of the engine take so many times as long
  crash          the engine is lost with its cache, all connections are reset, and it starts anew
  metrics-stop   /metrics is answered with 500
  rate=0.1       only so many of the requests meet status, hang or reset; drawn from the seed

As a header (x-twin-fail) the first three are about the request that carries it, which then is the one that
makes the engine slow, or kills it. By flag or admin call they are about every request from then on, until
another call says what is wrong instead; without a rate, `hang` is the whole engine's: what runs stands still
as well.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

HEADER = b"x-twin-fail"

NUMBERS: dict[str, tuple[type[int] | type[float], float, float]] = {
    "status": (int, 400, 599),
    "reset": (int, 0, 2**31),
    "slow": (float, 0.001, 1e6),
    "rate": (float, 0, 1),
}
"""Words with a value: its type, and its bounds."""
FLAGS = ("hang", "crash", "metrics-stop")
WORDS = (*NUMBERS, *FLAGS)


class Fault(Struct, frozen=True):
    """What is wrong; see the module. Falsy where nothing is."""

    status: int | None = None
    hang: bool = False
    reset: int | None = None
    slow: float | None = None
    crash: bool = False
    metrics_stop: bool = False
    rate: float = 1.0

    def __bool__(self) -> bool:
        return self != NONE

    def __or__(self, other: Fault) -> Fault:
        """Both; where they disagree, the other."""
        said = {name: getattr(other, name) for name in self.__struct_fields__}
        news = {name: value for name, value in said.items() if value != getattr(NONE, name)}
        return structs.replace(self, **news)

    @property
    def words(self) -> str:
        """As it is written."""
        said = (_word(name.replace("_", "-"), getattr(self, name)) for name in self.__struct_fields__)
        return ",".join(word for word in said if word and word != "rate=1")


NONE = Fault()


def parse(text: str) -> Fault:
    """Read words. Raises ValueError with a sentence that says what could have been written."""
    said: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, equals, value = part.partition("=")
        if word in FLAGS and not equals:
            said[word.replace("-", "_")] = True
        elif word in NUMBERS:
            said[word] = _number(word, value)
        else:
            raise ValueError(f"{part!r} is no failure; there are {', '.join(map(_example, WORDS))}")
    return Fault(**said)


def _number(word: str, value: str) -> float:
    kind, low, high = NUMBERS[word]
    try:
        number = kind(value)
    except ValueError:
        number = high + 1
    if not low <= number <= high:
        raise ValueError(f"{word} takes a number from {low:g} to {high:g}, as in {_example(word)}")
    return number


def _example(word: str) -> str:
    example = {"status": "=503", "reset": "=20", "slow": "=3", "rate": "=0.1"}
    return word + example.get(word, "")


def _word(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    return name if value is True else f"{name}={value:g}"
