"""The commands that work on the store: keys, and the tables themselves.

Only what `--help` needs is imported at the top; the rest comes when a command is called.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from maitred.config.tree import Config
    from maitred.core.limits import Limits
    from maitred.store.rows import KeyRow

MAY_SET = ("tenant", "band", "slo", "receipt")
KEY_BYTES_MAX = 8192

file = click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="Configuration file; else ./maitred.yaml."
)


@click.group()
def keys() -> None:
    """Make, list and revoke the keys that clients send."""


@keys.command()
@file
@click.option("--tenant", required=True, help="Who it is for; limits and shares are counted by tenant.")
@click.option("--model", "models", multiple=True, help="A model it may use; all unless given.")
@click.option("--band", "bands", multiple=True, help="A band it may wait in; the first counts unless asked.")
@click.option("--expires", help="When it ends: a duration such as 720h, or a day such as 2027-01-31 (UTC).")
@click.option("--limit", "limits", multiple=True, metavar="NAME=N", help="Such as requests_per_min=60.")
@click.option(
    "--may-set", multiple=True, type=click.Choice(MAY_SET), help="What its headers may say, or ask for."
)
@click.option("--note", default="", help="What it is for.")
@click.option("--import", "imports", is_flag=True, help="Keep a key in use elsewhere, read from stdin.")
def add(
    path: Path | None,
    tenant: str,
    models: tuple[str, ...],
    bands: tuple[str, ...],
    expires: str | None,
    limits: tuple[str, ...],
    may_set: tuple[str, ...],
    note: str,
    imports: bool,
) -> None:
    """Make a key and print it: once, for it is not kept itself.

    \b
      maitred keys add --tenant support --model qwen3-32b --expires 2160h
      maitred keys add --tenant legacy --import < key.txt
    """
    from maitred.app.keys import add as add_key
    from maitred.app.keys import left_out
    from maitred.store.rows import KeyRow

    try:
        asked = KeyRow(
            id="",
            digest=b"",
            tenant=_word(tenant),
            created_ms=0,
            models=tuple(map(_word, models)),
            bands=tuple(map(_word, bands)),
            may_set=may_set,
            limits=_limits(limits),
            expires_ms=_instant(expires) if expires else None,
            note=note[:1000],
        )
        imported = sys.stdin.read(KEY_BYTES_MAX) if imports else None
        with _store_errors():
            config = _load(path)
            id_, key = add_key(config, asked, imported)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{id_} is added" if imports else key)
    if said := left_out(config, asked):
        click.echo(said, err=True)


@keys.command("list")
@file
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON, for programs.")
def list_(path: Path | None, as_json: bool) -> None:
    """List the keys; what is kept of them does not tell the keys themselves."""
    from maitred.app.keys import listed

    with _store_errors():
        rows = listed(_load(path))
    if as_json:
        click.echo(json.dumps([_plain(row) for row in rows], indent=2, ensure_ascii=False))
        return
    if not rows:
        click.echo("There are no keys.")
    for row in rows:
        click.echo(_line(row))


@keys.command()
@file
@click.argument("id_", metavar="ID")
def revoke(path: Path | None, id_: str) -> None:
    """Take the key of this ID back; gateways stop taking it within `auth.refresh`."""
    from maitred.app.keys import revoke as revoke_key

    with _store_errors():
        if not revoke_key(_load(path), id_):
            raise click.ClickException(f"no key of the id {id_} is in force; maitred keys list has them all")
    click.echo(f"{id_} is revoked")


@click.group()
def db() -> None:
    """Look after the store's tables."""


@db.command()
@file
def upgrade(path: Path | None) -> None:
    """Bring the tables to this version of maitred. A SQLite file is brought to it at each start by itself."""
    from maitred.app.keys import upgrade as upgrade_store

    with _store_errors():
        click.echo(f"the tables are of version {upgrade_store(_load(path))}")


@db.command()
@file
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, for programs.")
def stats(path: Path | None, as_json: bool) -> None:
    """Tell how many conversations, responses and items each tenant has, and of how many bytes."""
    from msgspec import to_builtins

    from maitred.app.keys import stats as stats_of
    from maitred.cli.text import columns, plain

    with _store_errors():
        place, rows = stats_of(_load(path))
    if as_json:
        click.echo(json.dumps(to_builtins(rows), indent=2, ensure_ascii=False))
        return
    lines = [(plain(row.tenant), row.table, f"{row.rows:,}", f"{row.bytes:,}") for row in rows]
    click.echo(columns([("tenant", "table", "rows", "bytes"), *lines]) if lines else f"{place} holds nothing")


def _load(path: Path | None) -> Config:
    """The configuration, of which engines matter nothing here."""
    from maitred.app.outside import load

    default = Path("maitred.yaml")
    if path is None and default.exists():
        path = default
    return load(path, {} if path else {"endpoints": ["http://127.0.0.1:1"]})


@contextmanager
def _store_errors() -> Iterator[None]:
    """Exit 2 with one line for each thing wrong in the configuration, 1 when the store cannot be used.

    What the store says, such as that it is a new file, is for whoever called.
    """
    from maitred.app.keys import NoKeys
    from maitred.config.raw import ConfigError
    from maitred.store.rows import StoreError

    log, said = logging.getLogger("maitred.store"), logging.StreamHandler()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(said)
    try:
        yield
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except (NoKeys, StoreError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        log.removeHandler(said)
        log.setLevel(level)


def _word(text: str) -> str:
    from maitred.config.kinds import TEXT

    return str(TEXT.parse(text))


def _limits(written: tuple[str, ...]) -> Limits:
    from maitred.config.kinds import NUMBER
    from maitred.core.limits import Limits

    given: dict[str, int] = {}
    for text in written:
        name, _, number = text.partition("=")
        if name not in Limits.__struct_fields__:
            known = ", ".join(Limits.__struct_fields__)
            raise ValueError(f"there is no limit {name!r}; known are {known}")
        try:
            given[name] = NUMBER.parse(number)
        except ValueError as error:
            raise ValueError(f"--limit {name}: {error}") from error
    return Limits(**given)


def _instant(text: str) -> int:
    """The end of a day that is not over, or a duration from now, as UTC in ms."""
    from maitred.app.keys import now_ms
    from maitred.config.units import parse_duration

    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        end_ms = now_ms() + int(parse_duration(text) * 1000)
    else:
        end_ms = int(day.timestamp() * 1000) + 24 * 3600 * 1000
    if end_ms <= now_ms():
        raise ValueError(f"--expires: {text} is over; write a later day")
    return end_ms


def _plain(row: KeyRow) -> dict[str, Any]:
    from msgspec import structs, to_builtins

    said = structs.asdict(row)
    del said["digest"]
    limits = {name: bound for name, bound in to_builtins(row.limits).items() if bound}
    return {**said, "limits": limits}


def _line(row: KeyRow) -> str:
    said = _plain(row)
    words = [row.id, row.tenant]
    words += [f"{name}={','.join(said[name])}" for name in ("models", "bands", "may_set") if said[name]]
    words += [f"{name}={bound}" for name, bound in said["limits"].items()]
    words += [f"{name} {_day(at)}" for name, at in _instants(row) if at is not None]
    return "  ".join([*words, *([row.note] if row.note else [])])


def _instants(row: KeyRow) -> list[tuple[str, int | None]]:
    return [("added", row.created_ms), ("expires", row.expires_ms), ("revoked", row.revoked_ms)]


def _day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}"
