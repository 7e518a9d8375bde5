"""A receipt as a header: short, and nothing in it that a header cannot hold."""

from __future__ import annotations

from msgspec import structs

from maitred.core.receipt import Candidate, Receipt
from maitred.wire.receipts import NAME, VALUE_BYTES_MAX, line

CHOSEN = Candidate("m/a:1", "", 0.2104, {"read_s": 0.3}, cached=5120)
HOME = Receipt(
    policy="default",
    measure="cost",
    endpoint="m/a:1",
    home="m/a:1",
    index="approximate",
    index_why="",
    attempt=1,
    wait_s=0.0123,
    prompt_tokens=6144,
    candidates=(
        CHOSEN,
        Candidate("m/b:1", "full", 0.1),
        Candidate("m/c:1", "", 0.5),
        Candidate("m/d:1", "", 0.35),
    ),
)


def test_what_it_says() -> None:
    assert line(HOME) == (
        b"x-maitred-receipt: policy=default; endpoint=m/a:1; home=m/a:1; cached=5120/6144; "
        b"index=approximate; attempt=1; wait=0.012; cost=0.2104,0.35\r\n"
    )


def test_the_next_best_score_is_the_highest() -> None:
    assert line(structs.replace(HOME, measure="score")).endswith(b"; score=0.2104,0.5\r\n")


def test_what_is_not_known_is_not_said() -> None:
    alone = structs.replace(HOME, home="", index_why="timeout", measure="", candidates=(Candidate("m/a:1"),))
    assert line(alone) == (
        b"x-maitred-receipt: policy=default; endpoint=m/a:1; home=none; cached=0/6144; "
        b"index=approximate; reason=timeout; attempt=1; wait=0.012\r\n"
    )
    assert b"; cost=0.2104\r\n" in line(structs.replace(HOME, candidates=(CHOSEN,)))


def test_no_name_is_too_long_or_ends_the_line() -> None:
    odd = "Größe\r\nx: y; z" + "n" * 1000
    told = line(
        structs.replace(
            HOME, policy=odd, endpoint=odd, home=odd, attempt=10**6, wait_s=1e6, prompt_tokens=10**9
        )
    )
    assert len(told) <= len(NAME) + 4 + VALUE_BYTES_MAX
    assert told.count(b"\r\n") == 1
    assert b"endpoint=Gr??e??x:?y??zn" in told
    assert b"cost=0.2104,0.35" in told
