"""What one core of `maitred bench` can drive: requests a second, and events of streams, flat out and paced.

    .venv/bin/python benchmarks/bench_load.py

The server is `dataplane/upstream.c` on a core of its own; this process is pinned to the other. Needs gcc,
Linux and two cores. `closed` finds the ceiling, with users who ask again at once; the rates after it are what
one core has to hold, and for these lag and CPU say how well it does.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import uvloop
from msgspec import Struct

from maitred.bench.load import Load, LoadOptions
from maitred.bench.shot import Ending, Run
from maitred.bench.targets import Target
from maitred.net.seams import Sockets
from maitred.sim.lengths import Fixed
from maitred.sim.prompts import Alone
from maitred.sim.stages import Arrivals, RateStage, Stage, UserStage
from maitred.sim.traffic import Generated
from maitred.sim.workload import File, Spec

SOURCE = Path(__file__).parent / "dataplane" / "upstream.c"
PORT = 18765
PROMPT_TOKENS = 500
SECONDS = 8.0
OURS, THEIRS = 0, 1


class Case(Struct, frozen=True):
    """One measurement. `pace_us`: between two events of a stream; 0 is as fast as the server can."""

    name: str
    stage: Stage
    output_tokens: int
    stream: bool = True
    pace_us: int = 0


CASES = (
    Case("requests, closed", UserStage(users=64, duration_s=SECONDS), 1, stream=False),
    Case("requests, 3,000/s", RateStage(rate=3000, duration_s=SECONDS), 1, stream=False),
    Case("streams of 20 events, closed", UserStage(users=64, duration_s=SECONDS), 20),
    Case("flat out, 16 streams", UserStage(users=16, duration_s=SECONDS), 2000),
    Case("paced, 400 streams of 50/s", UserStage(users=400, duration_s=SECONDS), 200, pace_us=20_000),
    Case("paced, 800 streams of 50/s", UserStage(users=800, duration_s=SECONDS), 200, pace_us=20_000),
)


async def measure(case: Case) -> None:
    """Run one case and print its line."""
    kind = Generated(
        name="load",
        model="mock",
        prompts=Alone(Fixed(PROMPT_TOKENS)),
        output=Fixed(case.output_tokens),
        stream=case.stream,
    )
    spec = Spec(File(1, (kind,), Arrivals((case.stage,))), {})
    extra: dict[str, object] = {"seed": case.pace_us} if case.pace_us else {}
    target = Target(f"http://127.0.0.1:{PORT}", ignore_eos=False, extra=extra)
    load = Load(target, spec.workload(Random(1)), LoadOptions(), Sockets())
    before = time.process_time()
    print(line(case, await load.run(), time.process_time() - before))


def line(case: Case, run: Run, cpu_s: float) -> str:
    """What a run comes to."""
    done = [shot for shot in run.shots if shot.ending is Ending.COMPLETED]
    unit = sum(shot.tokens for shot in done) if case.stream else len(done)
    lags_ms = sorted(1000 * shot.lag_s for shot in run.shots)
    lag_ms = lags_ms[int(0.99 * len(lags_ms))]
    return (
        f"{case.name:30} {len(done) / run.duration_s:8,.0f} {unit / run.duration_s:8,.0f}  "
        f"{1e6 * cpu_s / unit:7.1f} {100 * run.own.cpu_share:5.0f}% {lag_ms:7.1f} "
        f"{1000 * run.own.stall_s:7.1f} {len(run.shots) - len(done):6}"
    )


def main() -> None:
    """Measure all cases."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "upstream"
        subprocess.run(["gcc", "-O2", "-w", "-o", binary, SOURCE], check=True)
        server = subprocess.Popen([binary, str(PORT)])
        with suppress(OSError):  # fewer cores
            os.sched_setaffinity(server.pid, {THEIRS})
            os.sched_setaffinity(0, {OURS})
        print(f"{'':30} requests  units/s  us/unit   CPU  lag p99 ms  stall failed")
        try:
            time.sleep(0.3)
            for case in CASES:
                uvloop.run(measure(case))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
