#!/usr/bin/env python3
"""What a stored turn of the Responses API costs, beside agentic-api: same engine, same client, interleaved.

    .venv/bin/python benchmarks/responses.py [--quick]

Each gateway on SQLite and on PostgreSQL, all running at once; they take turns every few requests, so what the
machine does meanwhile happens to all. The engine answers at once, in either tongue. agentic-api commits to
SQLite with `synchronous NORMAL`, and has no other way; maitred is measured so, and with FULL, its default.
Prints tables:

added     a stored turn of its own over the same question put to the engine, one client
chain     turns that each go on from the one before, with the whole of it sent to the engine
history   the same last turn again and again, 200 items behind it, over the first turn
load      50 turns/s of 8 clients, chains of ten turns; CPU is of the gateway's process alone
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Self

from responses_servers import Server, all_of_them, cpu_s, peak_mib

QUESTION = "When does the ship sail, and who is on board? Answer in one sentence. " * 4
FEW = 10
"""Requests before it is the next one's turn."""
TURNS = 100
RATE, CLIENTS = 50.0, 8
CHAIN_OF_LOAD = 10


class Client:
    """One connection."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, previous: str | None = None, *, stream: bool = False) -> tuple[float, str]:
        """One turn: how long it took in seconds, and the id of the response."""
        asked = {"model": "bench", "input": QUESTION, "store": True, "stream": stream}
        body = json.dumps({**asked, "previous_response_id": previous} if previous else asked).encode()
        head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        request = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        began = time.perf_counter()
        self._socket.sendall(request)
        answer = self._read()
        took_s = time.perf_counter() - began
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b"completed" in answer, answer
        at = answer.index(b'"id":') + 5
        return took_s, answer[answer.index(b'"', at) + 1 :].split(b'"', 1)[0].decode()

    def _read(self) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        head = got.partition(b"\r\n\r\n")[0].lower()
        if b"content-length:" not in head:
            while not got.endswith(b"0\r\n\r\n"):
                got += self._more()
            return got
        whole = len(head) + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(got) < whole:
            got += self._more()
        return got

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 20)
        assert data, "closed"
        return data


def percentiles_ms(took_s: Sequence[float]) -> tuple[float, float, float]:
    """p50, p90 and p99."""
    cuts = quantiles(took_s, n=100)
    return cuts[49] * 1e3, cuts[89] * 1e3, cuts[98] * 1e3


def added(plain: Server, gateways: list[Server], rounds: int, *, stream: bool) -> None:
    """A stored turn over the engine's own answer."""
    everybody = [plain, *gateways]
    seen: dict[str, list[float]] = {server.name: [] for server in everybody}
    clients = [(server.name, Client(server)) for server in everybody]
    for at in range(-2, rounds):
        for name, client in clients:
            took = [client.ask(stream=stream)[0] for _ in range(FEW)]
            if at >= 0:  # two rounds to warm up
                seen[name] += took
    base, *_ = percentiles_ms(seen[plain.name])
    kind, each = "streamed" if stream else "whole", len(took) * rounds
    print(f"\n{kind} turn, added ms{'p50':>13}{'p90':>8}{'p99':>8}   ({each} each)")
    print(f"{'engine alone':24}{base:8.2f}")
    for server in gateways:
        p50, p90, p99 = percentiles_ms(seen[server.name])
        print(f"{server.name:24}{p50 - base:8.2f}{p90 - base:8.2f}{p99 - base:8.2f}")


def chains(gateways: list[Server], rounds: int) -> dict[str, str]:
    """A hundred turns, each going on from the one before; the ids of the last ones."""
    seen: dict[str, list[list[float]]] = {server.name: [] for server in gateways}
    last: dict[str, str] = {}
    for _ in range(rounds):
        ids: dict[str, str | None] = dict.fromkeys(seen)
        took: dict[str, list[float]] = {server.name: [] for server in gateways}
        with_clients = [(server.name, Client(server)) for server in gateways]
        for _ in range(TURNS // FEW):
            for name, client in with_clients:
                for _ in range(FEW):
                    spent, last[name] = client.ask(ids[name])
                    ids[name] = last[name]
                    took[name].append(spent)
        for name, times in took.items():
            seen[name].append(times)
    print(f"\nchain of {TURNS}, ms a turn{'mean':>10}{'first 10':>10}{'last 10':>10}   (medians of {rounds})")
    for name, runs in seen.items():
        parts = [median(sum(run[cut]) / len(run[cut]) for run in runs) * 1e3 for cut in CUTS]
        print(f"{name:24}" + "".join(f"{part:10.2f}" for part in parts))
    return last


CUTS = (slice(None), slice(FEW), slice(-FEW, None))


def history(gateways: list[Server], last: dict[str, str], rounds: int) -> None:
    """The turn after a hundred, over a first turn."""
    took: dict[tuple[str, bool], list[float]] = {(s.name, old): [] for s in gateways for old in (True, False)}
    clients = [(server.name, Client(server)) for server in gateways]
    for _ in range(rounds):
        for name, client in clients:
            for old in (True, False):
                took[name, old] += [client.ask(last[name] if old else None)[0] for _ in range(FEW)]
    print(f"\n{2 * TURNS} items behind it, ms{'p50':>10}{'over a first turn':>20}")
    for server in gateways:
        behind, first = (percentiles_ms(took[server.name, which])[0] for which in (True, False))
        print(f"{server.name:24}{behind:9.2f}{behind - first:20.2f}")


def load(server: Server, seconds: float) -> tuple[list[float], float]:
    """Latencies, from when each turn was due, and the CPU it took in ms a turn."""
    count = int(RATE * seconds)
    began, before = time.monotonic() + 0.1, cpu_s(server.pid)

    def client(number: int) -> list[float]:
        took, previous = [], None
        with Client(server) as asks:
            for at, turn in enumerate(range(number, count, CLIENTS)):
                due = began + turn / RATE
                time.sleep(max(0.0, due - time.monotonic()))
                _, previous = asks.ask(previous if at % CHAIN_OF_LOAD else None)
                took.append(time.monotonic() - due)
        return took

    with ThreadPoolExecutor(CLIENTS) as pool:
        took = [each for part in pool.map(client, range(CLIENTS)) for each in part]
    return took, (cpu_s(server.pid) - before) / count * 1e3


def loads(gateways: list[Server], rounds: int, seconds: float) -> None:
    """Fifty turns a second, one gateway after the other, again and again."""
    seen: dict[str, list[tuple[list[float], float]]] = {server.name: [] for server in gateways}
    for _ in range(rounds):
        for server in gateways:
            seen[server.name].append(load(server, seconds))
    print(f"\n{RATE:.0f} turns/s, {CLIENTS} clients, ms{'p50':>7}{'p90':>8}{'p99':>8}{'CPU':>8}{'MiB':>6}")
    for server in gateways:
        figures = percentiles_ms([each for took, _ in seen[server.name] for each in took])
        cpu_ms = median(cpu for _, cpu in seen[server.name])
        shown = "".join(f"{each:8.2f}" for each in (*figures, cpu_ms))
        print(f"{server.name:24}{shown}{peak_mib(server.pid):6.0f}")


def fsync(work: Path) -> None:
    """What the disk takes to keep 4 KB."""
    took = []
    with (work / "fsync").open("wb", buffering=0) as file:
        for _ in range(500):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    p50, p90, p99 = percentiles_ms(took)
    print(f"fdatasync of 4 KB, ms   {p50:8.2f}{p90:8.2f}{p99:8.2f}")


def main() -> None:
    """Everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="where the peer is installed")
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    rounds, chained, seconds = (6, 1, 4.0) if args.quick else (60, 5, 20.0)
    work = Path(tempfile.mkdtemp(prefix="responses-", dir="/tmp"))
    try:
        with all_of_them(work, args.work.resolve()) as (plain, gateways):
            fsync(work)
            for stream in (False, True):
                added(plain, gateways, rounds, stream=stream)
            last = chains(gateways, chained)
            history(gateways, last, max(2, rounds // 10))
            loads(gateways, 1 if args.quick else 3, seconds)
            fsync(work)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
