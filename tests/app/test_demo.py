"""The demonstration says once that it is ready, and only when it is."""

from __future__ import annotations

import pytest

from maitred.app.demo import Announcement
from maitred.core.events import EndpointMoved
from maitred.core.words import Endpoint, EndpointState

PROBING, READY, EJECTED, *_ = EndpointState


def test_it_is_ready_when_each_engine_has_been(capsys: pytest.CaptureFixture[str]) -> None:
    said = Announcement("http://127.0.0.1:8000", 2)
    one, two = (Endpoint(f"p/127.0.0.1:{port}", "p", f"http://127.0.0.1:{port}") for port in (1, 2))
    for endpoint, before, after in (
        (one, PROBING, READY),
        (one, READY, EJECTED),
        (one, EJECTED, READY),
    ):
        said(EndpointMoved(1.0, endpoint, before, after, ""))
    assert capsys.readouterr().out == ""
    said(EndpointMoved(2.0, two, PROBING, READY, ""))
    assert "Ready: 2 engines" in capsys.readouterr().out
    said(EndpointMoved(3.0, two, EJECTED, READY, ""))
    assert capsys.readouterr().out == ""
