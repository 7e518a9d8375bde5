"""Where addresses come from: lists, watched files and names, in virtual time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from maitred.config.endpoints_file import read_endpoints
from maitred.config.tree import EndpointsDns, EndpointsFile
from maitred.control.sources import Sources, resolve
from maitred.net import virtual
from maitred.observe.findings import Findings

A, B = "http://a:8000", "http://b:8000"
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class Watch:
    """Sources at work, what they told, and a resolver whose `addresses` the test sets."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self.findings = Findings()
        self.addresses: list[str] | Exception | None = []
        self.asked: list[float] = []
        self.takes_s = 0.0
        self.sources = Sources(
            lambda model, urls: self.told.append((model, urls)), self.findings, self._resolve
        )

    async def _resolve(self, host: str) -> list[str]:
        """None: no answer ever comes."""
        loop = asyncio.get_running_loop()
        assert host == "engines"
        self.asked.append(loop.time() - virtual.START_S)
        await asyncio.sleep(self.takes_s)
        if isinstance(self.addresses, Exception):
            raise self.addresses
        if self.addresses is None:
            await loop.create_future()
            raise AssertionError
        return self.addresses

    def found(self) -> list[tuple[str, str, str]]:
        return [(finding.kind, finding.where, finding.what) for finding in self.findings.current()]


@asynccontextmanager
async def watch() -> AsyncIterator[Watch]:
    it = Watch()
    task = asyncio.create_task(it.sources.run())
    yield it
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def dns(url: str = "http://engines:8000", ttl_s: float = 10.0) -> EndpointsDns:
    return EndpointsDns(dns=url, ttl_s=ttl_s)


def write(file: Path, text: str) -> None:
    """Replace it, as those who mean well do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_list_is_told_at_once_and_once() -> None:
    it = Watch()
    it.sources.follow("q", (A, B))
    it.sources.follow("q", (A, B))
    assert it.told == [("q", (A, B))]
    it.sources.follow("q", (B,))
    assert it.told[1:] == [("q", (B,))]
    it.sources.forget("q")
    it.sources.follow("q", (B,))
    assert it.told[2:] == [("q", (B,))]


def test_a_file_is_told_at_once_and_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    write(file, f"[{A}, {B}]")

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=file))
            assert it.told == [("q", (A, B))]
            await asyncio.sleep(5)
            write(file, f"endpoints:\n  - {B}\n")
            await asyncio.sleep(2.5)
            assert it.told[1:] == [("q", (B,))]
            write(file, f"# the same\n- {B}\n")
            await asyncio.sleep(2.5)
            assert len(it.told) == 2
            write(file, "[]")
            await asyncio.sleep(2.5)
            assert it.told[2:] == [("q", ())]
            assert it.found() == []

    virtual.run(main())


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "must be a list of URLs"),
        (f"- {A}\n- htp://b:8000\n", 2, "scheme must be http"),
        (f"- {A}\n- {A}\n", 2, ""),
        (f"- {A}\n- [\n", 3, "is not YAML"),
        ("hosts: []", 1, ""),
        ("7", 1, "must be a list of URLs"),
        ("null", 1, "must be a list of URLs"),
        ("endpoints:", 1, ""),
    ],
)
def test_a_bad_file_leaves_the_last_good_one_in_force_and_says_where_it_is_wrong(
    tmp_path: Path, text: str, line: int, why: str
) -> None:
    file = tmp_path / "q.yaml"
    write(file, f"[{A}]")

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=file))
            write(file, text)
            await asyncio.sleep(5)
            ((kind, where, what),) = it.found()
            assert (kind, where) == ("endpoints_file", "q")
            assert f"{file}:{line}" in what
            assert why in what
            assert len(it.told) == 1
            write(file, f"[{B}]")
            await asyncio.sleep(2.5)
            assert it.found() == []
            assert it.told[1:] == [("q", (B,))]

    virtual.run(main())


def test_a_file_that_goes_and_comes_back_as_it_was_is_good_again(tmp_path: Path) -> None:
    """Its whole folder does, so that nothing of the file itself changes."""
    folder, away = tmp_path / "here", tmp_path / "away"
    file = folder / "q.yaml"
    folder.mkdir()
    write(file, f"[{A}]")

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=file))
            folder.rename(away)
            await asyncio.sleep(1.5)
            assert it.found() == [("endpoints_file", "q", f"{file}: No such file or directory")]
            away.rename(folder)
            await asyncio.sleep(2.5)
            assert it.found() == []
            assert it.told == [("q", (A,))]

    virtual.run(main())


def test_a_file_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=file))
            assert (it.told, [kind for kind, _, _ in it.found()]) == ([], ["endpoints_file"])
            write(file, f"[{A}]")
            await asyncio.sleep(2.5)
            assert (it.told, it.found()) == ([("q", (A,))], [])

    virtual.run(main())


def test_a_file_is_read_only_when_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying tools set its times back, Kubernetes turns a link to another file."""
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "q.yaml"
    old.write_text(f"[{A}]")
    new.write_text(f"[{B}]")
    os.utime(new, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns))
    link.symlink_to(old)
    reads: list[Path] = []

    def counted(path: Path) -> tuple[str, ...]:
        reads.append(path)
        return read_endpoints(path)

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=link))
            await asyncio.sleep(10)
            assert reads == [link]
            link.unlink()
            link.symlink_to(new)
            await asyncio.sleep(2.5)
            assert [urls for _, urls in it.told] == [(A,), (B,)]
            seen = new.stat()
            new.write_text(f"[{A}]")
            os.utime(new, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            await asyncio.sleep(2.5)
            assert [urls for _, urls in it.told] == [(A,), (B,), (A,)]

    monkeypatch.setattr("maitred.control.sources.read_endpoints", counted)
    virtual.run(main())


def test_a_file_that_is_still_being_written_is_not_used(tmp_path: Path) -> None:
    """Its first half would do, and take an engine out."""
    file = tmp_path / "q.yaml"
    file.write_text(f"- {A}\n- {B}\n")

    async def main() -> None:
        async with watch() as it:
            it.sources.follow("q", EndpointsFile(file=file))
            await asyncio.sleep(0.5)
            for text in (f"- {A}\n", f"- {A}\n- {B}", f"- {B}\n- {A}\n"):
                file.write_text(text)
                await asyncio.sleep(1)
            assert it.told == [("q", (A, B))]
            await asyncio.sleep(1)
            assert it.told[1:] == [("q", (B, A))]

    virtual.run(main())


def test_a_bug_in_following_one_is_logged_and_ends_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"

    async def main() -> None:
        async with watch() as it:

            def broken(model: str, urls: tuple[str, ...]) -> None:
                if model == "bad" or "http://10.0.0.9:8000" in urls:
                    raise ZeroDivisionError
                it.told.append((model, urls))

            it.sources._changed = broken
            for file in (bad, good):
                write(file, f"[{A}]")
                it.sources.follow(file.stem, EndpointsFile(file=file))
            it.addresses = ["10.0.0.9"]
            it.sources.follow("named", dns(ttl_s=5.0))
            await asyncio.sleep(3)
            assert caplog.messages == [
                "the endpoints of bad could not be followed",
                "the endpoints of named could not be followed",
            ]
            assert all(record.exc_info for record in caplog.records)
            it.addresses = ZeroDivisionError("resolver")
            await asyncio.sleep(5)
            assert len(caplog.messages) == 3
            it.addresses = ["10.0.0.1"]
            write(good, f"[{B}]")
            await asyncio.sleep(6)
            assert it.told == [("good", (A,)), ("good", (B,)), ("named", ("http://10.0.0.1:8000",))]

    with caplog.at_level("ERROR", "maitred"):
        virtual.run(main())


def test_a_name_is_all_its_addresses_in_order() -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = ["10.0.0.2", "2001:db8::1", "10.0.0.1", "10.0.0.2"]
            it.sources.follow("q", dns())
            it.sources.follow("default-port", dns("http://engines"))
            await asyncio.sleep(1.5)
            assert it.told == [
                ("q", ("http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[2001:db8::1]:8000")),
                ("default-port", ("http://10.0.0.1", "http://10.0.0.2", "http://[2001:db8::1]")),
            ]

    virtual.run(main())


def test_a_name_is_resolved_again_when_its_time_has_passed_and_told_when_it_changed() -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = ["10.0.0.1"]
            it.sources.follow("q", dns(ttl_s=10.0))
            await asyncio.sleep(25)
            assert it.asked == [0, 10, 20]
            assert len(it.told) == 1
            it.addresses = ["10.0.0.2"]
            await asyncio.sleep(6)
            assert it.told[1:] == [("q", ("http://10.0.0.2:8000",))]

    virtual.run(main())


def test_a_failed_endpoint_has_the_name_resolved_within_a_second_and_no_oftener() -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = ["10.0.0.1"]
            it.sources.follow("q", dns(ttl_s=1000.0))
            await asyncio.sleep(4.25)
            for _ in range(20):
                it.sources.renew("q")
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
            assert it.asked == [0, 5, 6, 7]
            it.sources.renew("nobody")
            it.sources.follow("list", (A,))
            it.sources.renew("list")

    virtual.run(main())


@pytest.mark.parametrize(
    ("failure", "what"),
    [
        (UNKNOWN, "engines does not resolve: Name or service not known"),
        (OSError("broken"), "engines does not resolve: broken"),
        (UnicodeError("label empty or too long"), "engines can be no name in DNS"),
        (None, "engines did not resolve within 5 s"),
    ],
)
def test_a_name_that_does_not_resolve_keeps_its_addresses(failure: Exception | None, what: str) -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = ["10.0.0.1"]
            it.sources.follow("q", dns(ttl_s=10.0))
            await asyncio.sleep(5)
            it.addresses = failure
            await asyncio.sleep(15)
            assert it.found() == [("endpoints_dns", "q", what)]
            assert len(it.told) == 1
            it.addresses = ["10.0.0.2"]
            await asyncio.sleep(11)
            assert it.found() == []
            assert it.told[1:] == [("q", ("http://10.0.0.2:8000",))]

    virtual.run(main())


def test_a_name_that_does_not_resolve_is_tried_again_soon() -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = UNKNOWN
            it.sources.follow("q", dns(ttl_s=1000.0))
            await asyncio.sleep(12)
            assert it.asked == [0, 5, 10]

    virtual.run(main())


def test_a_resolver_that_hangs_is_asked_once_at_a_time_and_holds_nobody_up(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    write(file, f"[{A}]")

    async def main() -> None:
        async with watch() as it:
            it.addresses = None
            it.sources.follow("named", dns(ttl_s=10.0))
            it.sources.follow("q", EndpointsFile(file=file))
            await asyncio.sleep(2)
            it.sources.renew("named")
            write(file, f"[{B}]")
            await asyncio.sleep(2.5)
            assert it.told[-1] == ("q", (B,))
            assert len(it.asked) == 1

    virtual.run(main())


@pytest.mark.parametrize("answer", [["10.0.0.1"], UNKNOWN])
def test_what_comes_for_a_model_that_was_forgotten_is_told_to_nobody(answer: list[str] | Exception) -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = answer
            it.sources.follow("q", dns())
            it.takes_s = 2.0
            await asyncio.sleep(1.5)
            assert it.asked
            it.sources.follow("q", (A,))
            await asyncio.sleep(20)
            assert it.told == [("q", (A,))]
            assert it.found() == []
            assert len(it.asked) == 1

    virtual.run(main())


def test_findings_go_with_the_source(tmp_path: Path) -> None:
    async def main() -> None:
        async with watch() as it:
            it.addresses = UNKNOWN
            it.sources.follow("file", EndpointsFile(file=tmp_path / "none"))
            it.sources.follow("name", dns())
            await asyncio.sleep(1.5)
            assert sorted(kind for kind, _, _ in it.found()) == ["endpoints_dns", "endpoints_file"]
            it.sources.forget("file")
            it.sources.follow("name", (A,))
            assert it.found() == []
            await asyncio.sleep(20)
            assert it.found() == []

    virtual.run(main())


def test_this_machines_resolver_knows_this_machine() -> None:
    assert "127.0.0.1" in asyncio.run(resolve("localhost"))
    with pytest.raises((OSError, UnicodeError)):
        asyncio.run(resolve("a..b"))
