"""Recorded traffic, read for replay: Mooncake's traces, Azure's of 2023, and our own access log.

A row that cannot be used is counted, and the first few are kept to be shown, because a trace with holes may
still say what one wants to know. Some traces note times on a coarse grid; played as they are, requests
would come in bursts that never were, so such times are recognised, and spread when they are played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from random import Random
from statistics import median_low
from typing import Annotated

import msgspec
from msgspec import Struct

from maitred.config.kinds import FILE, NUMBER, choice
from maitred.config.raw import ConfigError
from maitred.config.setting import Setting
from maitred.observe.access import Line
from maitred.sim.job import Segments
from maitred.sim.kinds import FACTOR

ROWS_MAX = 1_000_000
LINE_BYTES_MAX = 1024 * 1024
TOKENS_MAX = 10_000_000
BAD_SHOWN = 3
MOONCAKE_BLOCK_TOKENS = 512
"""What one of a row's `hash_ids` stands for, by the traces' own description."""
IDS_FROM_FILE = 1 << 39
"""Ids below this are the file's own, those above are given to pieces that nobody shares."""

DAY_S = 86_400.0
SPAN_S_MAX = 366 * DAY_S
"""A trace over more than a year has a time in it that is none."""

GRID_STAMPS_MIN = 10
GRID_ROWS_PER_STAMP = 2
"""Fewer rows at each time than this, on average, and times are taken to be exact."""
GRID_TOLERANCE = 0.02
"""Of a step: Mooncake's of 3 s are a few milliseconds off."""


class TraceFile(Struct, frozen=True):
    """A trace and how it is played."""

    file: Annotated[Path, Setting("file", FILE, "The file, seen from the workload's folder.")]
    format: Annotated[
        str,
        Setting(
            "format", choice("auto", "mooncake", "azure", "access_log"), "`auto` looks at the first line."
        ),
    ] = "auto"
    speed: Annotated[float, Setting("speed", FACTOR, "2 plays it twice as fast.")] = 1.0
    rows_max: Annotated[int, Setting("limit", NUMBER, "Only so many rows from its begin.")] = ROWS_MAX


class Row(Struct):
    """One request; `at_s` counts from the first. `model` and `tenant` are "" where the trace names none."""

    at_s: float
    prompt: Segments
    prompt_tokens: int
    output_tokens: int
    answer: int
    model: str = ""
    tenant: str = ""
    stream: bool = True


class Trace(Struct, frozen=True):
    """What was read, in order of time.

    `bad` rows could not be used; `bad_first` says of the first few where they are and why. `spread_s` is the
    grid that times stand on, over which they are spread; 0 where they are fine as they are.
    """

    rows: list[Row]
    bad: int = 0
    bad_first: tuple[str, ...] = ()
    spread_s: float = 0.0

    def times_s(self, rng: Random) -> list[float]:
        """When each row comes, in order, counted from the first; times on a grid are spread at random."""
        if not self.spread_s:
            return [row.at_s for row in self.rows]
        rows_at = Counter(row.at_s for row in self.rows)
        ends = [*list(rows_at)[1:], float("inf")]
        times: list[float] = []
        for (stamp, rows), end in zip(rows_at.items(), ends, strict=True):
            width_s = min(self.spread_s, end - stamp)
            times += sorted(stamp + width_s * rng.random() for _ in range(rows))
        return times


Parse = Callable[[bytes, Iterator[int]], Row | None]
"""One line becomes a row with its time in the trace's own clock, or None where it is none.

ValueError or msgspec's errors say what is wrong. Pieces that no other row shares get an id from the second
argument.
"""


def read_trace(
    path: Path, form: str = "auto", rows_max: int = ROWS_MAX, *, strict: bool = False, first_id: int = 0
) -> Trace:
    """Read a trace; ConfigError where it is none, and where `strict` and a row is bad.

    The ids of its pieces begin at `first_id`, so that two traces can be kept apart.
    """
    rows: list[Row] = []
    bad, bad_first = 0, []
    own = count(first_id + IDS_FROM_FILE)
    parse: Parse | None = None
    for number, line in enumerate(_lines(path), 1):
        if line.isspace():
            continue
        if parse is None:
            parse = _parser(path, line, form, first_id)
        try:
            row = parse(line, own)
        except (ValueError, msgspec.MsgspecError) as error:
            bad += 1
            if bad <= BAD_SHOWN:
                bad_first.append(f"{path}:{number}: {error}")
            continue
        if row is not None:
            rows.append(row)
        if len(rows) >= rows_max:
            break
    if bad and strict:
        raise ConfigError([*bad_first, f"{path}: {bad} of {bad + len(rows)} rows cannot be used"])
    if not rows:
        raise ConfigError([*bad_first, f"{path}: holds no row that can be used"])
    rows.sort(key=lambda row: row.at_s)
    if rows[-1].at_s - rows[0].at_s > SPAN_S_MAX:
        days = (rows[-1].at_s - rows[0].at_s) / DAY_S
        raise ConfigError([f"{path}: its times span {days:,.0f} days; one of them must be wrong"])
    began_at = rows[0].at_s
    for row in rows:
        row.at_s -= began_at
    return Trace(rows, bad, tuple(bad_first), _grid_s(rows))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                if len(line) > LINE_BYTES_MAX:
                    raise ConfigError(
                        [f"{path}: has a line of more than {LINE_BYTES_MAX} bytes; is it a trace?"]
                    )
                yield line
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error


def _grid_s(rows: list[Row]) -> float:
    """The grid that times stand on: many rows at each of few times, and whole steps between these."""
    stamps = list(dict.fromkeys(row.at_s for row in rows))
    if len(stamps) < GRID_STAMPS_MIN or len(rows) < GRID_ROWS_PER_STAMP * len(stamps):
        return 0.0
    gaps = [after - before for before, after in pairwise(stamps)]
    step_s = median_low(gaps)
    steps = (gap / step_s for gap in gaps)
    return step_s if all(abs(n - round(n)) <= GRID_TOLERANCE * max(1, round(n)) for n in steps) else 0.0


def _parser(path: Path, line: bytes, form: str, first_id: int) -> Parse:
    """The parser of a format, or of what the first line looks like."""
    if form == "auto":
        if line.startswith(b"TIMESTAMP,"):
            form = "azure"
        elif b'"input_length"' in line:
            form = "mooncake"
        elif b'"ts"' in line:
            form = "access_log"
        else:
            raise ConfigError([f"{path}: its first line looks like no known trace; write its format"])
    parsers: dict[str, Parse] = {"mooncake": _Mooncake(first_id), "azure": _azure, "access_log": _access_log}
    return parsers[form]


class _MooncakeLine(Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


class _Mooncake:
    """JSON lines; ids stand for blocks of the prompt, and equal ids for equal text up to there."""

    def __init__(self, first_id: int) -> None:
        self._first_id = first_id
        self._decode = msgspec.json.Decoder(_MooncakeLine).decode
        self._pieces: dict[tuple[int, int], tuple[int, int]] = {}

    def __call__(self, text: bytes, own: Iterator[int]) -> Row:
        line = self._decode(text)
        tokens = _tokens("input_length", line.input_length)
        blocks = -(-tokens // MOONCAKE_BLOCK_TOKENS)
        if len(line.hash_ids) != blocks:
            raise ValueError(f"input_length {tokens} takes {blocks} hash_ids, not {len(line.hash_ids)}")
        if not all(0 <= id_ < IDS_FROM_FILE for id_ in line.hash_ids):
            raise ValueError(f"hash_ids must be 0 to {IDS_FROM_FILE - 1}")
        prompt = tuple(
            self._piece(id_, min(MOONCAKE_BLOCK_TOKENS, tokens - MOONCAKE_BLOCK_TOKENS * place))
            for place, id_ in enumerate(line.hash_ids)
        )
        output_tokens = _tokens("output_length", line.output_length)
        return Row(line.timestamp / 1000, prompt, tokens, output_tokens, next(own))

    def _piece(self, id_: int, tokens: int) -> tuple[int, int]:
        """The piece; the same object each time, because long prompts share most of theirs."""
        piece = (self._first_id + id_, tokens)
        return self._pieces.setdefault(piece, piece)


def _azure(text: bytes, own: Iterator[int]) -> Row | None:
    """CSV with a head: wall time, prompt tokens, output tokens."""
    cells = text.decode().strip().split(",")
    if cells[0] == "TIMESTAMP":
        return None
    if len(cells) != 3:
        raise ValueError(f"has {len(cells)} values, not 3")
    at_s = datetime.fromisoformat(cells[0]).replace(tzinfo=UTC).timestamp()
    prompt_tokens = _tokens("ContextTokens", int(cells[1]))
    output_tokens = _tokens("GeneratedTokens", int(cells[2]))
    return Row(at_s, ((next(own), prompt_tokens),), prompt_tokens, output_tokens, next(own))


_decode_log = msgspec.json.Decoder(Line).decode


def _access_log(text: bytes, own: Iterator[int]) -> Row | None:
    """JSON lines of the access log, written when a request was over; other lines of a log are no rows."""
    if b'"logger":' in text and b'"outcome":' not in text:
        return None
    line = _decode_log(text)
    if line.duration_s is None or line.prompt_tokens is None or line.output_tokens is None:
        raise ValueError(f"a request that ended as {line.outcome} has no token counts")
    prompt_tokens = _tokens("prompt_tokens", line.prompt_tokens)
    output_tokens = _tokens("output_tokens", line.output_tokens)
    at_s = line.ts / 1000 - line.duration_s
    prompt = ((next(own), prompt_tokens),)
    return Row(at_s, prompt, prompt_tokens, output_tokens, next(own), line.model, line.tenant, line.stream)


def _tokens(name: str, tokens: int) -> int:
    if not 1 <= tokens <= TOKENS_MAX:
        raise ValueError(f"{name} {tokens} must be 1 to {TOKENS_MAX}")
    return tokens
