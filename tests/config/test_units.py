"""Units: what people write, what is refused, and that a printed value reads as itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.config.units import (
    parse_count,
    parse_duration,
    parse_percent,
    parse_size,
    parse_usd,
    print_duration,
    print_percent,
    print_size,
    print_usd,
    quote,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("50ms", 0.05), ("2s", 2.0), ("2m", 120.0), ("24h", 86400.0), ("0s", 0.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert print_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 * 1024**2), ("64KiB", 65536), ("1GB", 10**9), ("3GiB", 3 * 1024**3), ("7B", 7), ("0B", 0)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert print_size(size) == text


@pytest.mark.parametrize(("text", "count"), [("256", 256), ("32k", 32_000), ("2M", 2_000_000)])
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "micro_usd", "again"),
    [("2000", 2_000_000_000, 2000), ("0.15", 150_000, "0.15"), ("1.50", 1_500_000, "1.5"), ("0", 0, 0)],
)
def test_money(text: str, micro_usd: int, again: str | int) -> None:
    assert parse_usd(text) == micro_usd
    assert print_usd(micro_usd) == again


@pytest.mark.parametrize("text", ["", "$5", "-1", "1.", ".5", "1e3", "0.0000001", "2k", "1,5", "9999999999"])
def test_what_is_no_money(text: str) -> None:
    with pytest.raises(ValueError, match="is no sum of USD; write a number such as 2000 or"):
        parse_usd(text)


@pytest.mark.parametrize(("text", "part"), [("0%", 0.0), ("10%", 0.1), ("100%", 1.0)])
def test_percentages(text: str, part: float) -> None:
    assert parse_percent(text) == part
    assert print_percent(part) == text


@pytest.mark.parametrize("text", ["", "%", "101%", "1.5%", "-1%", "10 %"])
def test_what_is_no_percentage(text: str) -> None:
    with pytest.raises(ValueError, match="is no percentage; write 0% to 100%"):
        parse_percent(text)


def test_a_bare_number_is_told_its_unit() -> None:
    for parse, text, message in [
        (parse_duration, "2", "2 has no unit; write 2s"),
        (parse_percent, "10", "10 has no unit; write 10%"),
        (parse_size, "64", "64 has no unit; write 64MiB"),
        (parse_size, "67108864", "67108864 has no unit; write 67108864B"),
    ]:
        with pytest.raises(ValueError) as caught:
            parse(text)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["", "s", "1.5s", "-2s", "2 s", "2d", "2S", "1e3s", "٢s", "2s\n", "inf", "1000000000s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write|larger unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["64mib", "64M", "64 MiB", "-1B", "0x10B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a size; write a whole number with B, KB, KiB, MB, MiB, GB or GiB"
    ):
        parse_size(text)


@pytest.mark.parametrize("text", ["1_000", "2K", "2G", "-1", "+1", "many"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ValueError, match="is not a count; write a whole number with no unit, k or M"):
        parse_count(text)


@given(st.integers(0, 10**9 - 1), st.sampled_from(["ms", "s", "m", "h"]))
def test_a_printed_duration_reads_as_itself(number: int, unit: str) -> None:
    duration_s = parse_duration(f"{number}{unit}")
    assert parse_duration(print_duration(duration_s)) == duration_s


@given(st.integers(0, 10**9 - 1), st.sampled_from(["B", "KB", "KiB", "MB", "MiB", "GB", "GiB"]))
def test_a_printed_size_reads_as_itself(number: int, unit: str) -> None:
    size = parse_size(f"{number}{unit}")
    assert parse_size(print_size(size)) == size


def test_quoting_keeps_messages_on_one_line() -> None:
    assert quote("a\nb") == "'a\\nb'"
    assert len(quote("x" * 1000)) < 64
