"""The command: what it prints and refuses, and that it leaves nothing behind, as processes of their own."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maitred.cli.main import main
from maitred.twin.run import CRASHED
from tests.e2e.children import MAITRED, Child, get

FLEET = Path(__file__).parents[2] / "examples" / "lost-node" / "fleet.yaml"


def say(*words: str) -> Result:
    return CliRunner().invoke(main, ("twin", *words))


@contextmanager
def twin(*words: str) -> Iterator[tuple[Child, int]]:
    """A twin on a port of its own choice."""
    with Child(*MAITRED, "twin", "--profile", "cpu-smollm2-135m", "--port", "0", *words) as child:
        yield child, int(child.expect(r"at http://127\.0\.0\.1:(\d+); try")[1])


def test_it_says_where_it_listens_and_how_to_ask_and_ends_on_ctrl_c() -> None:
    with twin("--model", "small", "--max-num-seqs", "3", "--kv-events", "tcp://127.0.0.1:1") as (child, port):
        child.expect(f"curl -N http://127.0.0.1:{port}/v1/chat/completions")
        body = json.loads(child.expect(r"-d '(.*)'")[1])
        info = json.loads(get(port, "/server_info")[2])["vllm_config"]
        child.signal(signal.SIGINT)
        assert child.wait() == 0
    assert (body["model"], body["stream"]) == ("small", True)
    assert "max_num_seqs=3" in info
    assert "Traceback" not in child.output


def test_a_crash_ends_it_where_it_was_told_to() -> None:
    with twin("--exit-on-crash", "--fail", "crash") as (child, _):
        assert child.wait() == CRASHED
    assert "Traceback" not in child.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--profile", "h100-qwen"), "near it are"),
        (("--fail", "explode"), "there are status=503"),
        (("--max-num-seqs", "0"), "not in the range"),
        (("-c", __file__, "--port", "1", "--cold"), "--cold, --port cannot go with -c"),
        (("--kv-replay", "tcp://*:1", "--kv-form", "array"), "--kv-form, --kv-replay cannot go without"),
        (("-c", str(FLEET), "--profile", "h100-qwen"), "no profile 'h100-qwen'; near it are"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], says: str) -> None:
    result = say(*words)
    assert result.exit_code == 2
    assert says in result.output


def test_a_taken_port_is_one_line_that_names_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = say("--port", str(port))
        events = say("--port", "0", "--kv-events", "nonsense")
        both = say("--port", str(port), "--kv-events", "tcp://*:*", "--kv-replay", "tcp://*:*")
    assert both.output == result.output
    assert result.exit_code == events.exit_code == 1
    expected = (
        f"Error: cannot listen at 127.0.0.1:{port}: Address already in use; choose another with --port\n"
    )
    assert result.output == expected
    assert "cannot publish KV events at nonsense" in events.output
    assert events.output.count("\n") == 1


def test_help_teaches() -> None:
    text = say("--help").output
    for word in ("maitred serve http://127.0.0.1:8101", "x-twin-fail", "/twin/crash", "rate=0.1"):
        assert word in text
