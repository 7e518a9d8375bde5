"""What of a reload has to wait for a restart."""

from __future__ import annotations

from pathlib import Path

from maitred.config.changes import restart_needed
from maitred.config.kinds import Address
from maitred.config.secret import EnvSecret
from maitred.config.tree import Admin, Config, Drain, Http, Journal, Listen, Log, Model

OLD = Config(endpoints=("http://a",))


def test_what_is_the_same_needs_nothing() -> None:
    assert restart_needed(OLD, Config(endpoints=("http://a",))) == []


def test_what_is_put_to_use_once_is_named_by_its_path() -> None:
    new = Config(
        endpoints=("http://a",),
        listen=Listen(Address("127.0.0.1", 1)),
        admin=Admin(token=EnvSecret("A"), hosts=("gw",)),
        log=Log(level="debug"),
        journal=Journal(Path("j")),
    )
    assert restart_needed(OLD, new) == ["listen.data", "admin.token", "admin.hosts", "log.level", "journal"]
    assert restart_needed(new, OLD) == restart_needed(OLD, new)
    other = Config(endpoints=("http://a",), journal=Journal(Path("k")))
    assert restart_needed(Config(endpoints=("http://a",), journal=Journal(Path("j"))), other) == [
        "journal.file"
    ]


def test_all_else_takes_effect_at_once() -> None:
    new = Config(
        models=(Model(name="m", endpoints=("http://b",)),),
        http=Http(body_bytes_max=1),
        drain=Drain(limit_s=1.0),
        auth="none",
    )
    assert restart_needed(OLD, new) == []
