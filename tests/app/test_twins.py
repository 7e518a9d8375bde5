"""A fleet of twins: faults in time, and what it says and leaves, as processes of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from maitred.app.twins import Ills, argv
from maitred.cli.main import main
from maitred.config.simulate import Fault
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from maitred.sim.node import Node
from maitred.sim.simulate import SimulationError
from tests.e2e.children import MAITRED, Child, children_of, get, watched
from tests.net.http import turns
from tests.ports import free_ports
from tests.proxy.place import in_virtual_time
from tests.twin.place import PROFILE, Place, serving


def test_a_twin_stands_where_its_endpoint_is() -> None:
    line = argv(Node("m", "http://127.0.0.1:8101", PROFILE), "ours.yaml")
    assert line[2:] == [
        "maitred", "twin", "--profile", "ours.yaml", "--model", "m", "--host", "127.0.0.1", "--port", "8101",
    ]  # fmt: skip
    for url in ("http://gpu1:8000", "https://127.0.0.1:8101", "http://127.0.0.1"):
        with pytest.raises(SimulationError, match="write http://127"):
            argv(Node("m", url, PROFILE), "ours.yaml")


# -- faults -------------------------------------------------------------------------------------------


@asynccontextmanager
async def struck(*faults: tuple[float, str, float | None]) -> AsyncIterator[Place]:
    """A twin with faults to come: when, what, for how long."""
    async with serving() as place:
        sweep = Sweep(asyncio.get_running_loop().time)
        sweep.start()
        pool = Pool(place.network, sweep, Patience())
        ills = Ills(pool)
        planned = [Fault(at_s, place.url, fault, for_s, factor=4) for at_s, fault, for_s in faults]
        tasks = [asyncio.create_task(ills.strike(fault)) for fault in planned]
        yield place
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pool.close()
        sweep.stop()
        await turns()


async def told(place: Place, *waits_s: float) -> list[str]:
    """What is wrong with a twin, after each wait."""
    words = []
    for wait_s in waits_s:
        await asyncio.sleep(wait_s)
        words.append(place.twin.fault.words)
    return words


@in_virtual_time()
async def test_faults_add_up_and_end_one_by_one() -> None:
    async with struck((1, "slow", 10), (2, "mute", 3), (4, "crash", None), (0, "cut", None)) as place:
        seen = await told(place, 0.5, 1, 1, 2, 1)
        assert place.twin.phase == "weights", "it died, and what is wrong with it stayed"
        last = await told(place, 6)
    assert seen == ["", "slow=4", "slow=4,metrics-stop", "slow=4,metrics-stop", "slow=4"]
    assert last == [""]


@in_virtual_time()
async def test_a_hang_ends_as_in_the_simulator_with_another_process() -> None:
    async with struck((1, "hang", 5), (2, "slow", None)) as place:
        assert await told(place, 1.5, 1, 4) == ["hang", "hang,slow=4", "slow=4"]
        assert place.twin.phase == "process"
        await asyncio.sleep(3)
        assert (await place.chat(max_tokens=1)).status == 200


@in_virtual_time()
async def test_a_crash_ends_a_hang() -> None:
    async with struck((1, "hang", None), (2, "crash", None)) as place:
        assert await told(place, 1.5, 1) == ["hang", ""]
        assert place.twin.phase == "process"


# -- processes ----------------------------------------------------------------------------------------


def fleet(folder: Path, *ports: int) -> Path:
    """A configuration of twins at these ports, the first of which is mute from the beginning."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    faults = [{"at": "0s", "endpoint": urls[0], "fault": "mute"}]
    config = {
        "version": 1,
        "models": [{"name": "m", "endpoints": urls}],
        "simulate": {"profile": "cpu-smollm2-135m", "faults": faults},
    }
    file = folder / "fleet.yaml"
    file.write_text(json.dumps(config))
    return file


def test_faults_begin_once_all_twins_answer_and_lines_name_their_process(tmp_path: Path) -> None:
    ports = free_ports(2)
    with Child(*MAITRED, "twin", "-c", str(fleet(tmp_path, *ports))) as child:
        child.expect(rf"twins at http://127\.0\.0\.1:{ports[0]}, http://127\.0\.0\.1:{ports[1]}; Ctrl-C")
        child.expect(rf"^maitred\.twins: http://127\.0\.0\.1:{ports[0]}: metrics-stop \(200\)$")
        child.expect(rf"^maitred\.engine\.127\.0\.0\.1:{ports[1]}: a twin of cpu-smollm2-135m serves m")
        assert [get(port, "/metrics")[0] for port in ports] == [500, 200]
        with watched(children_of(child.process.pid)) as ended:
            child.signal(signal.SIGINT)
            assert child.wait() == 0
            assert ended() == 2
    assert "Traceback" not in child.output


def test_a_taken_port_names_the_endpoint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = CliRunner().invoke(main, ("twin", "-c", str(fleet(tmp_path, port))))
    assert result.exit_code == 2
    assert f"cannot listen at http://127.0.0.1:{port}: Address already in use" in result.output
    assert "--port" not in result.output
