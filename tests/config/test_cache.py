"""Where KV events are: one way to say it, and a port that follows from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from maitred.config.cache import EVENTS_PORT, Events
from maitred.config.kinds import Address
from maitred.config.load import load
from maitred.config.raw import ConfigError


def events(tmp_path: Path, written: str) -> Events:
    path = tmp_path / "maitred.yaml"
    path.write_text(
        f"version: 1\nmodels: [{{name: q, endpoints: [http://h], cache: {{events: {written}}}}}]\n"
    )
    found = load(path, environ={}).models[0].cache.events
    assert found is not None
    return found


def test_each_way_to_say_where_events_are(tmp_path: Path) -> None:
    assert events(tmp_path, "{}") == Events(port=EVENTS_PORT)
    both = events(tmp_path, "{port: 5557, replay: 5558}")
    assert (both.port, both.replay, both.ranks) == (5557, 5558, 1)
    near = events(tmp_path, "{offset: 1000, replay_offset: 2000}")
    assert (near.port, near.offset, near.replay_offset) == (None, 1000, 2000)
    ours = events(tmp_path, "{bind: '0.0.0.0:5557', replay: 5558, ranks: 2}")
    assert (ours.port, ours.bind) == (None, Address("0.0.0.0", 5557))


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        (
            "{port: 5557, offset: 1000}",
            "port, offset and bind are three ways to say the same; write one of them",
        ),
        ("{offset: 1, bind: '[::1]:5557'}", "port, offset and bind are three ways to say the same"),
        ("{replay: 5558, replay_offset: 1}", "replay and replay_offset are two ways to say the same"),
        ("{replay: 5557}", "replay is one of the ports of events, 5557 to 5557; write another one"),
        ("{port: 5000, replay: 5003, ranks: 4}", "replay is one of the ports of events, 5000 to 5003"),
        ("{port: 0}", "'0' is no number from 1 to 65535"),
        ("{ranks: 65}", "'65' is no number from 1 to 64"),
    ],
)
def test_what_cannot_be(tmp_path: Path, written: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        events(tmp_path, written)
    [error] = caught.value.errors
    assert wrong in error
    assert "cache.events" in error
