"""Where engines publish, and whom a topic names."""

from __future__ import annotations

import pytest

from maitred.control.kv_places import events_at, named_by, topic_place

A, B, C = "http://127.0.0.1:8001", "http://127.0.0.1:8002", "http://gpu-3:8001"


@pytest.mark.parametrize(
    ("url", "port", "offset", "rank", "address"),
    [
        (A, 5557, None, 0, "tcp://127.0.0.1:5557"),
        (A, 5557, None, 3, "tcp://127.0.0.1:5560"),
        (A, None, 1000, 0, "tcp://127.0.0.1:9001"),
        ("https://gpu-3", None, 1000, 1, "tcp://gpu-3:1444"),
        ("http://[::1]:8001", 5557, None, 0, "tcp://[::1]:5557"),
    ],
)
def test_where_a_rank_publishes(
    url: str, port: int | None, offset: int | None, rank: int, address: str
) -> None:
    assert events_at(url, port, offset, rank) == address


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        (b"kv@127.0.0.1:8001@smollm2", "127.0.0.1:8001"),
        (b"kv@[::1]:8001@org/model@main", "[::1]:8001"),
        (b"kv@10.0.0.1:8001", "10.0.0.1:8001"),
        (b"kv@pod-7@smollm2", ""),
        (b"kv@:http@smollm2", ""),
        (b"metrics@127.0.0.1:8001@smollm2", ""),
        (b"", ""),
        (b"\xff\xfe@a:1", ""),
    ],
)
def test_what_a_topic_names(topic: bytes, place: str) -> None:
    assert topic_place(topic) == place


@pytest.mark.parametrize(
    ("topic", "urls", "named"),
    [
        (b"kv@127.0.0.1:8002@m", [A, B], B),
        (b"kv@127.0.0.1:8001@m", [A, C], A),
        (b"kv@localhost:8002@m", [A, B], B),
        (b"kv@localhost:8001@m", [A, B, C], None),
        (b"kv@127.0.0.1:8003@m", [A, B], None),
        (b"kv@127.0.0.1:8003@m", [A], None),
        (b"kv@pod-7@m", [A, B], None),
        (b"kv@pod-7@m", [A, A], A),
        (b"", [A], A),
        (b"", [], None),
    ],
)
def test_whom_a_topic_names(topic: bytes, urls: list[str], named: str | None) -> None:
    assert named_by(topic, urls) == named
