"""Tests of the stopwatch around a training program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, os, torch

atexit.register(os.abort)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""


def test_a_rank_of_torchrun_writes_its_result_before_an_interpreter_crash(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "convoy_workloads.bench.stopwatch", "result.json", "program"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TORCHELASTIC_RUN_ID": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["steps"] == 12
    assert result["seconds_per_step"] > 0
    assert len(result["parameters"]) == 64
