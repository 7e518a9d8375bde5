"""The commands that talk to a running gateway, over its admin port.

Only what `--help` needs is imported at the top; the rest comes when a command is called.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from maitred.cli.text import columns, plain

ADMIN = "http://127.0.0.1:9000"
VARIABLE = "MAITRED_ADMIN_TOKEN"
"""Holds the token for a gateway and for these commands alike."""

ANSWER_S = 15.0

Command = Callable[..., Any]


def reach(command: Command) -> Command:
    """The flags that say where the gateway is and how its answer is printed."""
    flags = [
        click.option(
            "--admin",
            default=ADMIN,
            show_default=True,
            envvar="MAITRED_ADMIN_URL",
            show_envvar=True,
            metavar="URL",
            help="The gateway's admin port.",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            help=f"File with the admin token; {VARIABLE} may hold it instead.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON, for programs."),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.command()
@click.argument("action", type=click.Choice(["drain", "undrain"]), required=False)
@click.argument("name", required=False)
@reach
def endpoints(
    action: str | None, name: str | None, admin: str, token_file: Path | None, as_json: bool
) -> None:
    """List a running gateway's endpoints, take one out, let it in again.

    `drain` gives an endpoint no more work; answers that run there end by themselves. `undrain` lets it in
    again. Both need admin.token to be set on the gateway.

    \b
      maitred endpoints
      maitred endpoints drain qwen3-32b/gpu1:8000
      maitred endpoints undrain qwen3-32b/gpu1:8000
    """
    if action is None:
        _say(_ask("GET", "/admin/v1/endpoints", admin, token_file), as_json, _table)
        return
    if name is None:
        raise click.UsageError(f"{action} which endpoint? Write maitred endpoints {action} NAME.")
    from urllib.parse import quote

    path = f"/admin/v1/endpoints/{quote(name)}/{action}"
    done = "gets no more work" if action == "drain" else "is let in again"
    _say(_ask("POST", path, admin, token_file), as_json, lambda answer: f"{answer['name']} {done}")


@click.command()
@reach
def findings(admin: str, token_file: Path | None, as_json: bool) -> None:
    """List what is wrong with a running gateway and its engines, and what to do about it.

    \b
      maitred findings
    """
    _say(_ask("GET", "/admin/v1/findings", admin, token_file), as_json, _list_findings)


@click.command()
@click.argument("request_id", metavar="ID")
@reach
def explain(request_id: str, admin: str, token_file: Path | None, as_json: bool) -> None:
    """Tell why a request of a running gateway went where it went.

    ID is what its answer says in x-request-id, and its line in the access log. Only some decisions are kept:
    those of requests that ask for a receipt, and as many others as decisions.sample says.

    \b
      maitred explain req-5d0c6e9f0a-31
    """
    from urllib.parse import urlencode

    from maitred.cli.receipts import explained

    path = f"/admin/v1/decisions?{urlencode({'id': request_id})}"
    decisions = _ask("GET", path, admin, token_file)["decisions"]
    if not decisions:
        raise click.ClickException(
            f"no decision of {plain(request_id)} is kept; decisions.sample says how many are"
        )
    _say(decisions, as_json, explained)


@click.command()
@reach
def reload(admin: str, token_file: Path | None, as_json: bool) -> None:
    """Have a running gateway read its configuration again.

    No request is dropped. If anything is wrong with it, every error is printed and the configuration before
    stays in force. Needs admin.token to be set on the gateway; SIGHUP does the same without.

    \b
      maitred reload
    """
    _say(_ask("POST", "/admin/v1/reload", admin, token_file), as_json, _reloaded)


def _ask(method: str, path: str, admin: str, token_file: Path | None) -> Any:
    """What the admin port answers, decoded. Ends the program with 1 and what is wrong when it cannot."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    from maitred.config.kinds import parse_endpoint

    try:
        url = urlsplit(parse_endpoint(admin, ADMIN))
        token = _token(token_file)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    # Not by urlopen: it would hand the token to proxies and to whom it is redirected.
    connect = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = connect(str(url.hostname), url.port, timeout=ANSWER_S)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        status, decoded = answer.status, json.loads(answer.read())
    except OSError as error:
        raise click.ClickException(
            f"no gateway answers at {admin}: {error.strerror or error}; "
            "--admin or MAITRED_ADMIN_URL says where its admin port is"
        ) from error
    except (HTTPException, ValueError) as error:
        raise click.ClickException(f"what answers at {admin} is no admin port of maitred") from error
    finally:
        connection.close()
    if status != 200:
        _give_up(status, decoded, admin, token)
    return decoded


def _token(token_file: Path | None) -> str | None:
    """Raises ValueError."""
    from maitred.config.secret import EnvSecret, FileSecret

    if token_file is None and VARIABLE not in os.environ:
        return None
    place = VARIABLE if token_file is None else "--token-file"
    secret = EnvSecret(VARIABLE) if token_file is None else FileSecret(token_file)
    try:
        return secret.reveal(os.environ)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _give_up(status: int, answer: Any, admin: str, token: str | None) -> None:
    """End with 1 and one line, or one for each error of a configuration."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        raise click.ClickException(f"what answers at {admin} is no admin port of maitred")
    if status == 401:
        does = "does not take this token" if token else "asks for a token"
        raise click.ClickException(
            f"{admin} {does}; give that of its admin.token with --token-file or {VARIABLE}"
        )
    for line in error.get("errors", ()):
        click.echo(plain(line), err=True)
    raise click.ClickException(f"{plain(error.get('message'))} ({admin})")


def _say(answer: Any, as_json: bool, words: Callable[[Any], str]) -> None:
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else words(answer))


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "There are no endpoints."
    head = ("name", "state", "running", "waiting", "engine", "model", "why")
    return columns([head, *(_cells(row) for row in rows)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    state = f"{row['state']} (held)" if row["held"] else row["state"]
    engine = f"{row['engine']} {row['version']}".strip()
    cells = (row["name"], state, row["running"], row["engine_waiting"], engine, row["model"], row["why"])
    return tuple("-" if cell in (None, "") else plain(cell) for cell in cells)


def _list_findings(found: list[dict[str, Any]]) -> str:
    if not found:
        return "Nothing is wrong."
    return "\n".join(
        f"{datetime.fromtimestamp(finding['since_ms'] / 1000).astimezone():%Y-%m-%d %H:%M:%S}  "
        f"{plain(finding['kind'])}  {plain(finding['where'])}\n"
        f"  {plain(finding['what'])}\n  {plain(finding['do'])}"
        for finding in found
    )


def _reloaded(answer: dict[str, Any]) -> str:
    waiting = [plain(path) for path in answer["restart_needed"]]
    return "\n".join(["The configuration is in force.", *(f"{path}: after a restart" for path in waiting)])
