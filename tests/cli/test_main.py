"""The command line: what each command teaches, and what is said when something is wrong.

Help and errors of usage are read in this process; whatever starts a gateway is a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

import maitred
from maitred.cli.main import main
from maitred.core.journal import FORMAT

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and nothing of this program's in the environment."""
    for name in [name for name in os.environ if name.startswith("MAITRED_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def say(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def maitred_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "maitred", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is shown to people, with the words that name it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from commands(child, *path, name)


COMMANDS = dict(commands(main))


def test_these_are_the_commands() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "", "serve", "demo", "config", "config show", "config schema", "replay",
        "endpoints", "explain", "findings", "reload", "bench", "twin",
        "keys", "keys add", "keys list", "keys revoke", "db", "db stats", "db upgrade",
        "simulate", "simulate calibrate", "simulate profiles",
    }  # fmt: skip


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does_and_what_each_option_means(path: tuple[str, ...], flag: str) -> None:
    said = say(*path, flag)
    assert said.exit_code == 0
    command = COMMANDS[path]
    first = (command.help or "").partition("\n")[0]
    assert len(first) > 20
    assert " ".join(first.split()) in " ".join(said.output.split())
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.opts[-1] in said.output


def test_the_help_of_serve_shows_how_to_begin() -> None:
    said = say("serve", "--help").output
    assert re.search(r"^    maitred serve http://\S+ http://\S+$", said, re.MULTILINE)
    assert re.search(r"^    curl http://127\.0\.0\.1:8000/v1/models$", said, re.MULTILINE)


def test_the_version() -> None:
    assert say("--version").output == f"maitred, version {maitred.__version__}\n"


@pytest.mark.parametrize(
    "words", [["sevre"], ["serve", "--lsten", "x"], ["demo", "--engines", "0"], ["replay"]]
)
def test_wrong_usage_is_2_with_help_at_hand(words: list[str]) -> None:
    said = say(*words)
    assert said.exit_code == 2
    assert "--help" in said.stderr
    assert said.stdout == ""


def test_serve_with_nothing_to_serve_prints_the_ways_to_start(folder: Path) -> None:
    said = say("serve")
    assert said.exit_code == 2
    for way in ("maitred serve http://", "maitred serve -c maitred.yaml", "maitred demo"):
        assert f"\n  {way}" in said.stderr


def test_the_serving_commands_take_the_same_flags() -> None:
    def flags(name: str) -> set[str]:
        options = [option for option in COMMANDS[name,].params if isinstance(option, click.Option)]
        return {flag for option in options for flag in option.opts}

    assert flags("serve") - flags("demo") == {"-c", "--config"}
    assert flags("demo") - flags("serve") == {"--engines"}


WRONG = """\
version: 1
models:
  - name: a
    endpoints: [http://127.0.0.1:1, htp://x]
    slo: {ttft: 2}
    colour: red
"""


@pytest.mark.parametrize("words", [["serve", "-c", "my.yaml"], ["config", "show", "-c", "my.yaml"]])
def test_errors_of_a_file_name_file_line_and_path_and_all_are_told(folder: Path, words: list[str]) -> None:
    (folder / "my.yaml").write_text(WRONG)
    said = say(*words)
    assert (said.exit_code, said.stdout) == (2, "")
    first, second, third = said.stderr.splitlines()
    assert first == "my.yaml:4 models[0].endpoints[1]: 'htp://x': scheme must be http or https"
    assert second == "my.yaml:5 models[0].slo.ttft: 2 has no unit; write 2s"
    assert third.startswith("my.yaml:6 models[0].colour: unknown key; ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-c", "none.yaml"], "none.yaml: No such file or directory"),
        (["gpu1:8000"], "argument URL[0]: 'gpu1:8000': scheme must be http or https"),
        (
            ["http://h:1", "https://h:1"],
            "argument URL[1]: 'https://h:1' is in this list already as 'http://h:1'; leave one out",
        ),
        ([NOBODY, "--listen", "8000"], "flag --listen: '8000' is not an address"),
        ([NOBODY, "--listen", "0.0.0.0:8000"], "flag --listen: 0.0.0.0:8000 is open to other machines"),
        ([NOBODY, "--admin", "0.0.0.0:9000"], "flag --admin: 0.0.0.0:9000 is open to other machines"),
        ([NOBODY, "--auth", "basic"], "flag --auth: 'basic' is not known; write none"),
        ([NOBODY, "--log-format", "xml"], "flag --log-format: 'xml' is not known; write human or json"),
        ([NOBODY, "--log-level", "loud"], "flag --log-level: 'loud' is not known"),
        ([NOBODY, "--journal", ""], "flag --journal: "),
    ],
)
def test_errors_on_the_command_line_name_the_flag(folder: Path, words: list[str], error: str) -> None:
    said = say("serve", *words)
    assert (said.exit_code, said.stdout) == (2, "")
    [line] = said.stderr.splitlines()
    assert line.startswith(error)


def test_errors_of_the_environment_name_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAITRED_LOG_LEVEL", "loud")
    said = say("serve", NOBODY)
    assert said.exit_code == 2
    assert said.stderr.startswith("environment MAITRED_LOG_LEVEL: 'loud' is not known")


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
@pytest.mark.parametrize("command", [["serve", NOBODY], ["demo"]], ids=["serve", "demo"])
def test_a_taken_port_is_one_line_that_names_the_flag(
    folder: Path, taken: str, command: list[str], flag: str
) -> None:
    addresses = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"} | {flag: taken}
    words = [word for pair in addresses.items() for word in pair]
    said = maitred_process(*command, *words, "--log-level", "error")
    assert (said.returncode, said.stdout) == (1, "")
    [line] = said.stderr.splitlines()
    assert line.startswith("Error: ")
    assert taken in line
    assert ": Address already in use; " in line
    assert flag in line


def test_a_journal_that_cannot_be_written_is_one_line(folder: Path) -> None:
    said = maitred_process("serve", NOBODY, "--journal", "no/such/folder/journal")
    assert (said.returncode, said.stdout) == (1, "")
    [line] = said.stderr.splitlines()
    assert "no/such/folder/journal" in line


def test_the_configuration_in_force_is_a_file_that_gives_itself(folder: Path) -> None:
    shown = say("config", "show", NOBODY)
    assert shown.exit_code == 0
    assert yaml.safe_load(shown.stdout)["endpoints"] == [NOBODY]
    (folder / "maitred.yaml").write_text(shown.stdout)
    assert say("config", "show").stdout == shown.stdout


@pytest.mark.parametrize("kept", ["env", "file"])
@pytest.mark.parametrize("command", [["serve"], ["config", "show"]], ids=["serve", "show"])
def test_a_token_written_by_mistake_is_not_repeated(folder: Path, command: list[str], kept: str) -> None:
    content = f"version: 1\nendpoints: [{NOBODY}]\nadmin: {{token: {{{kept}: c0ffee0123456789}}}}\n"
    (folder / "maitred.yaml").write_text(content)
    said = say(*command)
    assert (said.exit_code, said.stdout) == (2, "")
    assert said.stderr.startswith("maitred.yaml:3 admin.token: the ")
    assert "c0ffee" not in said.stderr


def test_the_schema_is_one_of_json(folder: Path) -> None:
    schema = json.loads(say("config", "schema").stdout)
    assert schema["type"] == "object"
    assert {"listen", "models", "endpoints"} <= set(schema["properties"])


HEAD = b'{"format":%d,"seed":1,"settings":{},"abilities":{}}\n' % FORMAT


@pytest.mark.parametrize(
    ("journal", "error"),
    [
        pytest.param(b"", "", id="empty"),
        pytest.param(b"not a journal\n", "", id="something else"),
        pytest.param(HEAD.replace(b":%d," % FORMAT, b":99,", 1), "format 99", id="another format"),
        pytest.param(HEAD + b'["release",1.0,[],[]]\n["rel', "line 3", id="cut off"),
        pytest.param(HEAD + b'["sent",1.0,[7,null],null]\n', "line 2", id="a leg that never was"),
        pytest.param(HEAD + b'["finish",1.0,["r","completed",null],"completed"]\n', "line 2", id="no ticket"),
        pytest.param(HEAD + b'["dance",1.0,[],null]\n', "line 2", id="an unknown verb"),
        pytest.param(HEAD + b'["release",1.0,[],["go"]]\n', "line 2: release: recorded", id="a lie"),
    ],
)
def test_a_journal_that_does_not_replay_is_one_line(folder: Path, journal: bytes, error: str) -> None:
    (folder / "journal").write_bytes(journal)
    said = say("replay", "journal")
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    assert (said.exit_code, said.stdout) == (1, "")
    [line] = said.stderr.splitlines()
    assert line.startswith("Error: ")
    assert error in line


def test_a_journal_that_replays(folder: Path) -> None:
    (folder / "journal").write_bytes(HEAD + b'["release",1.0,[],[]]\n')
    said = say("replay", "journal")
    assert (said.exit_code, said.stdout) == (0, "1 decisions replayed, all the same\n")
    missing = say("replay", "none")
    assert missing.exit_code == 2
    assert "'none': No such file or directory" in missing.stderr


def test_help_loads_nothing_that_serving_needs() -> None:
    code = (
        "import sys; from maitred.cli.main import main; main(['--help'], standalone_mode=False);"
        "print({'uvloop', 'msgspec', 'starlette', 'xllamacpp'} & set(sys.modules), file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == "set()\n"
