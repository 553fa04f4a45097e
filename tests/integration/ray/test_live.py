"""The engine spotlight with workers in another machine, as a trainer pod and a spot pod run it."""

from __future__ import annotations

import json
import time
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
PARAMS = {
    "workers": "ray",
    "live": {"slots": 2, "pace": 0.2},
    "problem": {"kind": "grid", "side": 8, "prompts": 4, "width": 16, "layers": 1, "pretrainingSteps": 1},
    "samplerSteps": 4,
    "promptsPerIteration": 2,
    "groupSize": 3,
    "maxSeeds": 4,
    "leaseSeconds": 5,
    "evaluationSeeds": 1,
}


def test_spot_workers_explore_regroup_and_vanish(shared: Path) -> None:
    with machines.network(2) as (head, spot):
        members = shared / "members.json"
        members.write_text(json.dumps({"incarnation": 1, "members": [{"rank": 0, "address": head.address}]}))
        common = {
            "CONVOY_JOB_KEY_FILE": key(shared, "key", "a"),
            "CONVOY_PARAMS": json.dumps(PARAMS),
            "CONVOY_HOME": "/mnt",
            "TMPDIR": "/mnt",
            "OMP_NUM_THREADS": "1",
        }
        engine = machines.python("-m", "convoy_workloads.engines.spotlight.engine")
        began = time.time()
        spot.start(engine, shared / "spot.log", CONVOY_MEMBERS_FILE=str(members), **common)
        driver = machines.Driver(
            head, shared / "driver.log", HERE / "drive_live.py", MASTER_ADDR=head.address, **common
        )

        facts = driver.read()
        assert facts["answered"] == 300 and "other source files" in facts["refused"], facts
        assert len(facts["since"]) == 1 and began <= facts["since"][0] + 1 <= time.time() + 1
        grouped = driver.read()
        assert grouped["degrees"] == [2] and grouped["epoch"] >= 40
        assert grouped["warm"] < 2
        first = driver.read()
        assert set(first["trained"]) == {6} and first["explored"][-1] > 0, first
        assert driver.read() == {"kill": True}
        spot.kill()
        driver.go_on()
        after = driver.read()
        assert after["trained"] == [6, 6] and after["left"] == 0 and after["losses"] == 2
        account = driver.read()
        counts = account["counts"]
        ended = counts["open"] + counts["consumed"] + counts["expired"] + counts["superseded"]
        assert counts["planned"] == ended and abs(account["residual"]) < 1e-6 < account["cost"]
        assert driver.process.wait(60) == 0
