"""`maitred bench` as people call it: against a twin in a process of its own, and where there is no server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TextIO
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from maitred.app import bench as app
from maitred.app.bench import Plan
from maitred.bench.forms import FORMS
from maitred.bench.report import Document, document, read, to_json
from maitred.bench.targets import Facts, Target
from maitred.cli.main import main
from maitred.config.tree import Slo
from maitred.engines.metrics import samples
from tests.bench.finished import busy_day
from tests.e2e.children import MAITRED, Child

TWIN = ("twin", "--profile", "h100-llama-3.1-8b", "--model", "m", "--port", "0")
QUICK = ("--rate", "40/s", "--duration", "1s", "--prompt-tokens", "50", "--output-tokens", "8")
WORKLOAD = """
version: 1
traffic:
  - {name: chat, model: m, tenant: a, prompts: {system: 50, turns: 3, own: 20}, output: 8}
arrivals: {stages: [{rate: 20/s, duration: 1s}]}
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A twin that answers fast."""
    with Child(*MAITRED, *TWIN) as child:
        yield child.expect(r" at (http://\S+?);")[1]


class Guarded(BaseHTTPRequestHandler):
    """A server that wants a key."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def guarded() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def bench(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    command = [*MAITRED, "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def say(*words: str) -> Result:
    """In this process: what ends before anything is measured."""
    return CliRunner().invoke(main, ["bench", *words])


def answers(url: str) -> float:
    """How many requests the twin has answered."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        return sum(value for _, value in samples(answer.read(), "vllm:request_success_total"))


def test_a_quick_run_prints_its_tables_and_writes_its_files(url: str, tmp_path: Path) -> None:
    files = ("--out", "run.json", "--csv", "run.csv", "--html", "run.html")
    said = bench(url, *QUICK, "--slo", "ttft=20s,tpot=2s", *files, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"50 to 8 tokens at {url}" in said.stdout
    for words in ("SLO TTFT 20 s and TPOT 2 s", "40 requests/s", "Where the time goes", "prefill"):
        assert words in said.stdout
    run = read(tmp_path / "run.json")
    assert len(run.shots) == 40
    assert {shot.tokens for shot in run.shots} == {8}
    assert all(run.good(shot) for shot in run.shots)
    assert not any(shot.counted for shot in run.shots)
    assert (tmp_path / "run.csv").read_text().count("\n") == 41
    assert "<svg" in (tmp_path / "run.html").read_text()


def test_json_is_the_only_thing_printed(url: str) -> None:
    said = bench(url, *QUICK, "--json", "--api", "completions", "--workers", "2")
    assert (said.returncode, said.stderr) == (0, "")
    told = json.loads(said.stdout)
    assert told["figures"]["whole"]["completed"] == 40
    times = told["figures"]["whole"]["times"]
    assert times["tpot_s"]["count"] == 40
    assert 40 < times["itl_s"]["count"] <= 40 * 7  # gaps of 8 tokens: whoever reads late sees fewer
    assert told["spans"]["requests"] >= 40


def test_a_workload_with_a_command_in_its_middle(url: str, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(WORKLOAD)
    said = bench(url, "--workload", "chat.yaml", "--during", "echo rolled; exit 3", "--quiet", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"chat at {url}" in said.stdout
    assert "0 conversations were broken in all; the command ended with 3: rolled" in said.stdout
    assert "Around echo rolled; exit 3" in said.stdout
    assert "sent       60" in said.stdout


@contextmanager
def endless(url: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A long run, from when some of its requests were answered; killed where it still runs at last."""
    answered = answers(url)
    command = [*MAITRED, "bench", url, "--rate", "50/s", "--duration", "60s", "--output-tokens", "2", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            while answers(url) < answered + 20:
                assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_prints_the_report_so_far(url: str, workers: str, number: signal.Signals, code: int) -> None:
    with endless(url, "--json", "--workers", workers) as process:
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    told = json.loads(out)
    assert told["run"]["ended_early"]
    assert told["run"]["workers_lost"] == 0
    assert 0 < told["figures"]["whole"]["completed"] < 1000
    assert any("was ended early" in doubt["text"] for doubt in told["doubts"])


def test_workers_without_a_parent_end_without_a_word(url: str) -> None:
    with endless(url, "--workers", "2") as process:
        process.kill()
        # Their ends of these pipes are closed when the last of them is gone.
        assert process.communicate(timeout=60) == ("", "")


def test_a_signal_ends_a_command_that_outlasts_the_load(url: str, tmp_path: Path) -> None:
    command = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    words = ("bench", url, *QUICK, "--during", command)
    with Child(*MAITRED, *words) as child:
        child.expect("the load is over, and the command is not; Ctrl-C ends it")
        child.signal(signal.SIGINT)
        assert child.wait() == 130
    assert "broken in all; the command was ended by signal 15" in child.output
    assert "Where the time goes" in child.output
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_is_asked_for_reaches_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def search(
        plan: Plan, _facts: Facts, _out: TextIO, probe_s: float, *, quiet: bool, stopped: Callable[[], bool]
    ) -> Document:
        plans.append(plan)
        assert (probe_s, quiet, stopped()) == (9.0, True, False)
        return document(busy_day())

    monkeypatch.setenv("SOME_KEY", "c0ffee")
    monkeypatch.setattr(app, "prepare", lambda plan: (plan, Facts((), "m", 4.0)))
    monkeypatch.setattr(app, "search", search)
    words = (
        *("--engine", "http://e:9/", "--engine", "http://f:9/v1"),
        "--any-length",
        "--key-env",
        "SOME_KEY",
        "--api",
        "responses",
        "--workers",
        "3",
        "--seed",
        "7",
    )
    slo = ("--slo", "ttft=2s,tpot=50ms")
    said = say(
        "http://h:1/v1", "--workload", "trial", "--duration", "9s", *words, *slo, "--find-goodput", "--json"
    )
    assert (said.exit_code, said.stderr) == (0, "")
    assert json.loads(said.stdout)
    [plan] = plans
    assert plan.target == Target("http://h:1", "", FORMS["responses"], "", "c0ffee", ignore_eos=False)
    assert (plan.workers, plan.seed, plan.slo, plan.models) == (3, 7, Slo(2.0, 0.05), ())
    assert plan.engines == ("http://e:9", "http://f:9")


def test_two_files_are_compared(tmp_path: Path) -> None:
    for name, run in (
        ("a", busy_day(1)),
        ("b", busy_day(2)),
        ("c", busy_day(3, 3.0)),
        ("d", busy_day(4, 3.0)),
    ):
        (tmp_path / f"{name}.json").write_bytes(to_json(document(run)))
    a, b, c, d = (str(tmp_path / f"{name}.json") for name in "abcd")
    said = say("--compare", f"{a},{b}", f"{c},{d}", "--html", str(tmp_path / "page.html"))
    assert said.exit_code == 0, said.output
    assert "worse" in said.stdout
    assert "<svg" in (tmp_path / "page.html").read_text()
    told = json.loads(say("--compare", a, c, "--json").stdout)
    assert {one["said"] for one in told} <= {"better", "worse", "cannot tell"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "give the URL of a server, or two files to --compare"),
        (["http://h:1"], "give either --workload FILE (or trial), or --rate 5/s"),
        (["http://h:1", "--rate", "1/s", "--workload", "trial"], "give either --workload FILE"),
        (["http://h:1", "--rate", "5"], "--rate: 5 has no unit; write 5/s"),
        (["http://h:1", "--rate", "5/s", "--duration", "60"], "--duration: 60 has no unit; write 60s"),
        (["http://h:1", "--rate", "1/h"], "--rate: rate x duration must be 1 to "),
        (["http://h:1", "--rate", "5/s", "--slo", "ttft=2"], "--slo: 2 has no unit; write 2s"),
        (["http://h:1", "--rate", "5/s", "--slo", "ttft=0s"], "--slo: 'ttft=0s' cannot be kept; write more"),
        (["http://h:1", "--rate", "5/s", "--slo", "e2e=2s"], "--slo: 'e2e=2s' is no limit; write ttft=2s"),
        (["http://h:1", "--rate", "5/s", "--key-env", "NO_SUCH"], "--key-env: there is no NO_SUCH in the"),
        (
            ["http://h:1", "--rate", "5/s", "--find-goodput"],
            "--find-goodput needs limits to keep; write --slo",
        ),
        (["http://h:1", "--rate", "5/s", "--csv", "/no/such/x"], "--csv: there is no folder /no/such"),
        (
            ["http://h:1", "--rate", "5/s", "--csv", "./x", "--html", "x"],
            "--csv and --html name the same file",
        ),
        (["http://h:1", "--rate", "5/s", "--slo", "ttft=1s,ttft=2s"], "--slo: ttft is there twice"),
        (["http://h:1", "--rate", "5/s", "--slo", ""], "--slo is empty; give it a value, or leave it out"),
        (["http://h:1", "--rate", "5/s", "--during", ""], "--during is empty; give it a value"),
        (
            ["http://h:1", "--rate", "5/s", "--engine", "g:8000"],
            "--engine: 'g:8000' is no server; write http",
        ),
        (
            ["http://h:1", "--rate", "5/s", "--engine", "http://g:99999"],
            "--engine: 'http://g:99999': Port out",
        ),
        (["http://h:1", "--rate", "5/s", "--engine", "http://g:1/a"], "--engine: 'http://g:1/a' has a path"),
        (["http://h:1", "--workload", "trial", "--duration", "9s"], "--duration has no effect: --workload"),
        (
            ["http://h:1", "--workload", "trial", "--output-tokens", "128"],
            "--output-tokens has no effect: --workload says how long",
        ),
        (
            ["http://h:1", "--rate", "1/s", "--api", "embeddings", "--any-length"],
            "--any-length has no effect",
        ),
        (
            ["http://h:1", "--compare", "a", "b"],
            "URL has no effect: --compare measures nothing; leave it out",
        ),
        (["--compare", "a", "b", "--csv", "x"], "--csv has no effect: --compare measures nothing"),
        (["--compare", "a", "b", "--workers", "1"], "--workers has no effect: --compare measures nothing"),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_write(words: list[str], error: str) -> None:
    said = say(*words)
    assert (said.exit_code, said.stdout) == (2, "")
    last = said.stderr.splitlines()[-1]
    assert last.startswith(f"Error: {error}")


def test_a_search_and_a_command_do_not_go_together() -> None:
    said = say("http://h:1", "--rate", "5/s", "--slo", "ttft=1s", "--find-goodput", "--during", "true")
    assert "--find-goodput and --during do not go together" in said.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["ftp://h", "--rate", "5/s"], "'ftp://h' is no server; write http://host:port"),
        (["http://127.0.0.1:1", "--rate", "5/s"], "http://127.0.0.1:1: nobody listens there"),
        (["http://h:1", "--workload", "/no/such.yaml"], "/no/such.yaml: No such file or directory"),
        (["--compare", "/no/such.json", "b.json"], "/no/such.json: No such file or directory"),
    ],
)
def test_what_cannot_be_measured_is_2_and_one_line(words: list[str], error: str) -> None:
    said = say(*words)
    assert (said.exit_code, said.stdout) == (2, "")
    [line] = said.stderr.splitlines()
    assert line.startswith(error)


def test_a_file_that_nests_too_deep_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"format": 1, "more": ' + "[" * 100_000 + "]" * 100_000 + "}")
    said = say("--compare", str(path), str(path))
    assert said.exit_code == 2
    [line] = said.stderr.splitlines()
    assert line.startswith(f"{path}: is no run that --out or --json wrote")


def test_a_full_disk_loses_no_report(url: str) -> None:
    said = say(url, *QUICK, "--quiet", "--out", "/dev/full")
    assert said.exit_code == 2
    assert "Where the time goes" in said.stdout
    assert said.stderr.splitlines()[-1] == "Error: --out: /dev/full: No space left on device"


def test_whoever_reads_may_stop(url: str) -> None:
    with subprocess.Popen(
        [*MAITRED, "bench", url, *QUICK, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_what_the_system_refuses_is_told_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(_: Plan) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(app, "prepare", prepare)
    said = say("http://h:1", "--rate", "5/s")
    assert said.exit_code == 2
    assert said.stderr.splitlines()[-1] == "Error: Too many open files"


def test_an_interrupt_before_anything_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(_: Plan) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "prepare", prepare)
    said = say("http://h:1", "--rate", "5/s")
    assert (said.exit_code, said.output) == (130, "")


def test_a_server_that_wants_a_key_is_one_line(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "c0ffee")
    for more in ([], ["--key-env", "SOME_KEY"]):
        said = say(guarded, "--rate", "5/s", *more)
        assert (said.exit_code, said.stdout) == (2, "")
        [line] = said.stderr.splitlines()
        assert "401" in line
        assert "--key-env" in line
        assert "c0ffee" not in line


def test_another_model_is_one_line(url: str, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(WORKLOAD.replace("model: m", "model: other"))
    for words in (["--workload", str(tmp_path / "chat.yaml")], [*QUICK, "--model", "other"]):
        said = say(url, *words)
        assert said.exit_code == 2
        assert said.stderr.splitlines() == [f"{url} serves m, not other; name one of them with --model"]


def test_a_workload_of_users_cannot_be_searched(url: str, tmp_path: Path) -> None:
    users = WORKLOAD.replace("{rate: 20/s, duration: 1s}", "{users: 5, duration: 1s}")
    (tmp_path / "users.yaml").write_text(users)
    said = say(url, "--workload", str(tmp_path / "users.yaml"), "--slo", "ttft=1s", "--find-goodput")
    assert said.exit_code == 2
    assert said.stderr.startswith("a search changes a rate, and this workload has users")


def test_help_loads_nothing_that_measuring_needs() -> None:
    code = (
        "import sys; from maitred.cli.main import main; main(['bench', '--help'], standalone_mode=False);"
        "print({'uvloop', 'msgspec', 'rich', 'jinja2'} & set(sys.modules), file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == "set()\n"
