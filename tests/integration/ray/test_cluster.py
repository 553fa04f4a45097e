"""Ray nodes of Convoy's programs on separate machines: joining, losses, drains and other people's tokens."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from e2e.drive import machines
from tests.integration.ray.keys import key

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(not machines.allowed(), reason="needs the right to create namespaces"),
    pytest.mark.timeout(850),
]
WORKER = ("-m", "convoy_workloads.ray_cluster.worker", "--folder", machines.FOLDER)


@pytest.fixture
def network() -> Iterator[list[machines.Machine]]:
    with machines.network(4) as found:
        yield found


def test_nodes_join_are_lost_drain_and_strangers_stay_out(
    network: list[machines.Machine], shared: Path
) -> None:
    head, *workers = network
    own, other = key(shared, "own", "a"), key(shared, "other", "b")
    members = shared / "members.json"
    members.write_text(json.dumps({"incarnation": 1, "members": [{"rank": 0, "address": head.address}]}))
    programs = {
        one.address: one.start(
            machines.python(*WORKER),
            shared / f"{one.address}.log",
            CONVOY_JOB_KEY_FILE=own,
            CONVOY_MEMBERS_FILE=str(members),
            CONVOY_NOTICE_FILE=str(shared / f"{one.address}.json"),
        )
        for one in workers
    }
    driver = machines.Driver(
        head,
        shared / "driver.log",
        HERE / "drive_cluster.py",
        head.address,
        machines.FOLDER,
        CONVOY_JOB_KEY_FILE=own,
    )
    assert driver.read() == {"head": True}
    joined = driver.read()
    assert joined["addresses"] == [one.address for one in workers] and joined["uids"] == [65532] * 3

    assert driver.read() == {"kill": workers[1].address}
    workers[1].kill()
    driver.go_on()
    lost = driver.read()
    assert lost["lost"] and lost["object"] == "Lost"
    assert lost["seconds"] < 40  # Ray's own health checks need 65 s.

    stranger = head.start(
        machines.python("-c", _STRANGER, head.address), shared / "stranger.log", RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=Path(other).read_text().strip(), RAY_TMPDIR="/mnt",
    )  # fmt: skip
    drain = driver.read()
    assert drain["drain"] == workers[2].address and drain["accepted"] and drain["reported"] < 60
    content = {
        "kind": "Preemption",
        "sources": ["Ray"],
        "atMs": 1,
        "deadlineMs": int(time.time() + 99) * 1000,
    }
    (shared / f"{workers[2].address}.json").write_text(json.dumps(content))
    driver.go_on()
    known = driver.read()
    assert known["reports"] == [[workers[2].address, True]]
    assert (known["notice"], known["none"]) == ("Preemption", True)
    workers[2].kill()
    driver.go_on()

    assert driver.read() == {"terminate": workers[0].address}
    sent = time.time()
    machine_terminates(programs[workers[0].address], workers[0])
    driver.go_on()
    drained = driver.read()
    assert drained["draining"] < 60 and drained["notice"] > sent and drained["gone"] < 60
    assert not drained["foreign"], "the end of a pod is no notice about its node"
    assert drained["reported"] == [workers[2].address]
    assert driver.read() == {"stopped": True}
    assert programs[workers[0].address].wait(60) == 0
    assert stranger.wait(60) != 0, "a process with another token was let in"


def machine_terminates(program: subprocess.Popen[bytes], machine: machines.Machine) -> None:
    """Send SIGTERM to the program in the machine, as its launcher does."""
    script = "kill -TERM $(pgrep -o -f ray_cluster.worker)"
    subprocess.run(machine.inside(["sh", "-c", script], restricted=False), check=True)
    assert program.poll() is None


_STRANGER = """
import sys
from ray._raylet import GcsClient
print(GcsClient(address=f"{sys.argv[1]}:6379").internal_kv_keys(b"", namespace=None, timeout=3))
"""
