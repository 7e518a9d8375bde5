"""Decisions for people: what was compared, as a table, and why the one that won did."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from maitred.cli.text import columns, plain

BEST = {
    "cost": "the least cost, in seconds",
    "requests": "the fewest requests",
    "turn": "the longest time since its last turn",
    "score": "the highest score",
}
NOT = {
    "full": "it was full",
    "failed": "it had failed this request before",
    "adapter": "it has not the adapter",
    "zone": "it is in another zone",
    "kept": "it was kept for another request",
    "gone": "it is there no more",
    "": "it was not the best",
}


def explained(decisions: list[dict[str, Any]]) -> str:
    """All decisions of one request, the first one first."""
    return "\n\n".join(_decision(each) for each in reversed(decisions))


def _decision(decision: dict[str, Any]) -> str:
    receipt = decision["receipt"]
    at = datetime.fromtimestamp(decision["ts"] / 1000).astimezone()
    index = " ".join(filter(None, (receipt["index"], receipt["index_why"])))
    left_off = receipt["left_off"]
    size = f"{receipt['prompt_tokens']} tokens of prompt"
    known = f"policy {plain(receipt['policy'])}, index {plain(index)}"
    lines = [
        f"{plain(decision['id'])}  {plain(decision['model'])}  {at:%Y-%m-%d %H:%M:%S}",
        f"attempt {receipt['attempt']}, waited {receipt['wait_s']:.3f} s, {size}; {known}",
        "",
        _table(receipt),
        *([f"and {left_off} more"] if left_off else []),
        "",
        _why(receipt),
    ]
    return "\n".join(lines)


def _table(receipt: dict[str, Any]) -> str:
    rows = receipt["candidates"]
    parts = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    measure = receipt["measure"] or "value"
    head = ["endpoint", measure, *map(plain, parts), "cached", "unread", "running", "begun", "why not"]
    return columns([head, *(_cells(row, parts) for row in rows)])


def _cells(row: dict[str, Any], parts: list[str]) -> list[str]:
    numbers = [row["value"], *(row["parts"].get(name) for name in parts)]
    counts = [str(row[name]) for name in ("cached", "unread", "running", "begun")]
    return [plain(row["endpoint"]), *map(_number, numbers), *counts, plain(row["why_not"]) or "-"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _why(receipt: dict[str, Any]) -> str:
    """Why the chosen one won; of a prompt's home, if it is another one, why it did not."""
    chosen, *others = receipt["candidates"]
    home = receipt["home"]
    said = f"{plain(receipt['endpoint'])} was chosen {_reason(receipt, chosen, others)}"
    if home == receipt["endpoint"]:
        said += f"; it is the home of this prompt, with {chosen['cached']} tokens of it cached"
    elif home:
        said += f"; the prompt's home is {plain(home)}, but {_against(home, receipt, others)}"
    elif receipt["index"] != "none":
        said += "; nobody has much of this prompt, so it has no home"
    return said + "."


def _reason(receipt: dict[str, Any], chosen: dict[str, Any], others: list[dict[str, Any]]) -> str:
    rivals = [row["value"] for row in others if not row["why_not"]]
    if not rivals and not receipt["left_off"]:
        return "as the only one that could have it"
    if receipt["policy"] == "exploration":
        return "to see whether it is as slow as it was"
    measure = receipt["measure"]
    if measure not in BEST:
        return "by a policy that does not tell what it compares"
    sign = -1 if measure == "score" else 1
    if any(sign * rival < sign * chosen["value"] for rival in rivals):
        return "by a picker that does not always take the best"
    return f"for {BEST[measure]}"


def _against(home: str, receipt: dict[str, Any], others: list[dict[str, Any]]) -> str:
    why_not = next((row["why_not"] for row in others if row["endpoint"] == home), "gone")
    if why_not == "full" and receipt["measure"] == "cost":
        return "it was full, and not worth the wait"
    return NOT.get(why_not, f"it was left out: {plain(why_not)}")
