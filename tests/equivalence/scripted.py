"""One trace with everything in it that can become of a request, at instants that were chosen by hand."""

from __future__ import annotations

from maitred.config.simulate import Fault
from maitred.sim.arrival import Arrival
from tests.equivalence.trace import URLS, Act, Flaw, Trace, arrival, changed, config
from tests.equivalence.verbs import Verb

ONE, TWO, THREE = URLS
FAULTS = (
    Fault(16.143, TWO, "crash"),
    Fault(23.177, ONE, "slow", 2.171),
    Fault(29.119, ONE, "hang", 4.453),
    Fault(53.531, THREE, "cut", 3.1),
    Fault(62.513, ONE, "slow", 9.0),
    Fault(63.117, ONE, "crash"),
    Fault(63.891, TWO, "crash"),
)
FLAWS = (
    Flaw(8.071, 9.417, TWO, status=503),
    Flaw(9.471, 9.933, ONE, status=500),
    Flaw(9.471, 9.933, TWO, status=500),
    Flaw(12.031, 13.313, ONE, tokens=16),
)
START = config(*FAULTS)
GROWN = changed(START, endpoints=URLS, cap=3)
SHRUNK = changed(START, endpoints=URLS[1:], cap=1)
ACTS = (
    Act(38.213, GROWN),
    Act(42.117, SHRUNK),
    Act(46.391, url=TWO, held=True),
    Act(48.577, url=TWO, held=False),
    Act(58.219, START),
)
REQUESTS: tuple[tuple[float, int, float | None, bool], ...] = (
    # (at, tokens of the answer, patience in seconds, whether it is a stream)
    #
    # both engines full, the queue as well, and two at a closed door; some wait for too long
    (0.313, 230, None, True),
    (0.371, 240, None, True),
    (0.429, 250, None, False),
    (0.533, 48, None, True),
    (0.617, 33, None, True),
    (0.701, 17, None, False),
    (0.787, 190, 0.811, True),  # leaves from the queue
    (0.853, 210, None, True),
    (0.911, 40, None, True),
    (0.973, 40, None, False),
    (1.871, 170, None, True),
    (1.973, 90, None, True),
    (2.211, 90, None, False),
    # leaving before the first token, within a stream, and from an answer that is none
    (6.847, 60, 0.017, True),
    (6.989, 60, 0.613, True),
    (7.103, 60, 0.477, False),
    # an engine that answers 503, and one whose streams break
    (8.113, 20, None, True),
    (8.187, 7, None, False),
    (8.219, 33, None, True),
    (8.303, 20, None, False),
    (9.511, 16, None, True),
    (12.117, 90, None, True),
    (12.181, 40, None, True),
    (12.393, 40, None, False),
    (12.487, 40, None, False),
    (12.611, 1, None, True),
    # an engine dies with all sorts of requests, before and after their first token
    (15.511, 90, None, True),
    (15.587, 90, None, False),
    (15.613, 64, None, True),
    (16.081, 90, None, True),
    (16.117, 48, None, True),
    (16.139, 48, None, True),
    (16.307, 90, None, False),
    (20.411, 33, None, True),
    (20.503, 33, None, True),
    (20.617, 33, None, False),
    (23.011, 60, None, True),
    (23.303, 60, 1.313, True),
    (23.411, 16, None, False),
    # one that tells nothing any more, and dies in the end
    (28.711, 90, None, True),
    (28.807, 90, None, False),
    (29.107, 40, None, True),
    (29.109, 40, None, True),
    (29.311, 40, None, True),
    (29.423, 40, None, False),
    (29.587, 40, 0.901, True),
    (32.811, 40, None, True),
    (33.403, 40, None, False),
    # engines that come and go
    (37.911, 130, None, True),
    (37.983, 130, None, True),
    (38.017, 90, None, True),
    (38.133, 60, None, False),
    (38.187, 60, None, True),
    (41.711, 90, None, True),
    (41.823, 90, None, True),
    (41.931, 90, None, False),
    (42.011, 48, None, True),
    (42.061, 48, None, True),
    (42.311, 20, None, True),
    (46.217, 40, None, True),
    (46.311, 40, None, True),
    (46.411, 40, None, True),
    (48.717, 16, None, True),
    # one that cannot be reached
    (53.617, 20, None, True),
    (53.711, 20, None, False),
    (53.919, 20, None, True),
    (57.911, 20, None, True),
    (58.311, 20, None, True),
    (59.417, 20, None, False),
    # all die, one after the other
    (62.911, 90, None, True),
    (62.933, 90, None, False),
    (63.011, 90, None, False),
    (63.057, 90, None, True),
    (63.213, 16, None, True),
    (64.317, 16, None, True),
    (68.411, 16, None, False),
)


def arrivals() -> tuple[Arrival, ...]:
    """Who comes."""
    return tuple(
        arrival(number, at, output_tokens, 90 + 37 * number % 300, patience_s, stream=stream)
        for number, (at, output_tokens, patience_s, stream) in enumerate(REQUESTS)
    )


TRACE = Trace(START, arrivals(), FLAWS, ACTS)


def happened(verbs: list[Verb]) -> set[str]:
    """What became of requests and endpoints, in words."""
    words: set[str] = set()
    stood: dict[int, str] = {}
    for verb in verbs:
        match verb.name, verb.given, verb.answer:
            case "accept", [number, *_], refused:
                stood[number] = "queued"
                words.add(f"refused {refused[0]}" if refused else "accepted")
            case "release", _, effects:
                for what, number, *told in effects:
                    if what == "stop":
                        words.add(f"stopped {told[0]}")
                    else:
                        stood[number] = "seated"
                        words.update(f"incarnation {incarnation}" for _, _, incarnation in told[0])
            case "leave", _, _:
                words.add("left streaming")
            case "fail", [_, failure], again:
                words.add(f"{failure['kind']}{' final' * failure['final']}{' again' * again}")
            case "finish", [number, "client_gone", _], _:
                words.add(f"left {stood[number]}")
            case "update", [change], _:
                words.add(f"{change['type']} {change.get('ok', '')}".strip())
    return words
