#!/usr/bin/env python3
"""Draw the published ladder beside the simulated one, for docs/simulator.md.

    maitred simulate -c examples/published-fleet/fleet.yaml --workload examples/published-fleet/ladder.yaml \\
        --routing round-robin --seeds 4 --json > ladder.json
    .venv/bin/python benchmarks/published_fleet.py ladder.json

It prints how far they are apart, and writes docs/images/ladder-*.svg.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import yaml

from maitred.sim.report import ladder_plots
from maitred.sim.summary import StageRow

ROOT = Path(__file__).resolve().parents[1]
UNDER_LOAD = 49
"""From this rate on, in requests/s, waits are compared: below it the published ones jump."""


def rows(stages: list[dict[str, Any]]) -> list[StageRow]:
    """Published or simulated stages as the plots take them."""
    return [
        StageRow(row["rate"], row.get("ttft_p50_s"), row.get("ttft_p90_s"), row["output_tokens_per_s"])
        for row in stages
    ]


def main() -> None:
    """Compare, print and draw."""
    simulated = rows(json.loads(Path(sys.argv[1]).read_text())["stages"])
    arms = yaml.safe_load((ROOT / "examples/published-fleet/published.yaml").read_text())
    published = {f"{arm}, published": rows(stages) for arm, stages in arms.items()}
    pairs = list(zip(simulated, published["round-robin, published"], strict=True))
    errors = [math.log(one.output_tokens_per_s / other.output_tokens_per_s) for one, other in pairs]
    print(f"output rate: mean |log error| {sum(map(abs, errors)) / len(errors):.3f}")
    for one, other in pairs:
        if one.rate >= UNDER_LOAD and one.ttft_p90_s and other.ttft_p90_s:
            off = one.ttft_p90_s / other.ttft_p90_s - 1
            waits = f"{one.ttft_p90_s:.1f} s, published {other.ttft_p90_s:.1f} ({off:+.1%})"
            print(f"TTFT p90 at {one.rate:g}/s: {waits}")
    images = ROOT / "docs" / "images"
    images.mkdir(exist_ok=True)
    for name, svg in ladder_plots({"round-robin, simulated": simulated}, published).items():
        (images / name).write_text(svg)
        print(f"wrote {(images / name).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
