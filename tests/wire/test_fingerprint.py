"""Fingerprints: the same for the same body, in this process only."""

from __future__ import annotations

import subprocess
import sys

from maitred.wire.fingerprint import fingerprint


def test_the_same_body_has_the_same_and_another_has_another() -> None:
    bodies = [b"", b"{}", b'{"model":"m"}', b'{"model":"n"}', bytes(1 << 20)]
    marks = [fingerprint(body) for body in bodies]
    assert marks == [fingerprint(bytes(body)) for body in bodies]
    assert len(set(marks)) == len(bodies)
    assert all(0 < mark < 1 << 64 for mark in marks)


def test_another_process_has_another_key() -> None:
    code = "from maitred.wire.fingerprint import fingerprint as f; print(f(b'{}'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert int(other) != fingerprint(b"{}")
