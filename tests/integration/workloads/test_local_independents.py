"""Tests of Independent roles in a local run."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.local import run_local

TRAIN = """
import pathlib, sys, time
flag = pathlib.Path(sys.argv[1])
deadline = time.monotonic() + 60
while len(list(flag.glob("started-*"))) < 2 and time.monotonic() < deadline:
    time.sleep(0.02)
"""
"""A trainer that ends once two programs have started."""
HELP = """
import json, os, pathlib, signal, sys, time
flag, replica = pathlib.Path(sys.argv[1]), os.environ["CONVOY_REPLICA"]
if replica == "1":
    attempt = int(os.environ["CONVOY_INCARNATION"])
    (flag / f"started-1-{attempt}").touch() if attempt == 3 else None
    sys.exit(3)
group = json.load(open(os.environ["CONVOY_MEMBERS_FILE"]))
world = os.environ["WORLD_SIZE"], os.environ["CONVOY_ROLE_REPLICAS"], os.environ["CONVOY_ROLE"]
print("group", group["incarnation"], group["members"][0]["address"], *world, flush=True)
signal.signal(signal.SIGTERM, lambda *_: ((flag / "drained").touch(), sys.exit(0)))
(flag / "started-0").touch()
time.sleep(60)
"""
"""A helper. Its first replica runs until SIGTERM, its second one always fails."""


def role(name: str, replicas: int, program: str, flag: Path, **more: Any) -> dict[str, Any]:
    container = {"image": "mine", "command": ["python", "-c", program, str(flag)]}
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}, **more}


def test_independent_pods_run_beside_the_group_and_are_drained(tmp_path: Path) -> None:
    roles = [
        role("worker", 1, TRAIN, tmp_path),
        role("help", 2, HELP, tmp_path, membership="Independent", budget={"maxRestarts": 2}),
    ]
    job = TrainingJob.model_validate({"metadata": {"name": "local"}, "spec": {"roles": roles}})
    out = io.StringIO()
    ended = run_local(job, out=out, environment={**os.environ, "CONVOY_WARM": "false"})
    text = out.getvalue()
    assert ended.exit_code == 0, text
    assert "local-help-0 [1/0] group 1 127.0.0.1 1 2 help" in text
    assert text.count("local-help-1 ended with exit code 3") == 2
    assert "incarnation 2: 1 ranks" not in text.splitlines(), "the group never restarted"
    assert (tmp_path / "drained").exists(), text
