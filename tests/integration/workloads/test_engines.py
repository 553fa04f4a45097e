"""Tests of every training engine as a local job. The job is killed at a random step and restored, and must
end with the same bits.
"""

from __future__ import annotations

import io
import os
import random
import re
import sys
import time
from pathlib import Path

import pytest

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.engines.registry import ENGINES
from convoy_workloads.local import run_local
from convoy_workloads.runtime.metrics import MAX_PRINTED

from .conftest import WORKLOADS

TWICE = Path(__file__).with_name("twice.py")
RANKS = 3
"""Number of ranks of each job.

With two ranks a sum has only one possible order. So two ranks would not detect an engine that omits the
warm-up passes of exactness.py.
"""
TRAINING = [entry for entry in ENGINES if entry.role_kind == "Training" and not entry.tool]
END = re.compile(r"state after step (\d+): sha256 ([0-9a-f]{64})")
"""Pattern of the line that rank 0 of a training engine prints at its end."""


def job(entry: EngineEntry) -> TrainingJob:
    roles = [{"name": "worker", "replicas": 1, "processesPerReplica": RANKS}]
    named = {"name": entry.name, "params": dict(entry.small)}
    return TrainingJob.model_validate(
        {"metadata": {"name": "smoke"}, "spec": {"engine": named, "roles": roles}}
    )


def twice(entry: EngineEntry, folder: Path, step: int, rank: int) -> Engine:
    """Return the Engine with a command that runs the engine's module under twice.py."""
    made = engine(entry)
    python, _, module = made.spec.command
    made.spec.command = [python, str(TWICE), str(folder), str(step), str(rank), module]
    return made


def run_twice(entry: EngineEntry, folder: Path) -> tuple[str, str]:
    """Run the engine. Return its output and the rank and step of the kill, as text."""
    steps = int(entry.small["steps"])
    step, rank = random.randint(2, steps - 1), random.randrange(RANKS)
    out, started_at = io.StringIO(), time.monotonic()
    paths = [str(WORKLOADS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    made = twice(entry, folder, step, rank)
    code = run_local(job(entry), made, out=out, environment=environment).exit_code
    where = f"rank {rank} is killed at step {step} of {steps}"
    print(f"{entry.name}: {time.monotonic() - started_at:.1f} s, {where}", file=sys.stderr)
    assert code == 0, f"{where}:\n{out.getvalue()}"
    return out.getvalue(), where


@pytest.mark.timeout(180)
@pytest.mark.parametrize("entry", TRAINING, ids=lambda entry: entry.name)
def test_an_engine_killed_at_a_random_step_ends_with_the_same_bits(
    entry: EngineEntry, tmp_path: Path
) -> None:
    printed, where = run_twice(entry, tmp_path)
    alone, *after = re.split(r"^incarnation [23]: \d+ ranks$", printed, flags=re.MULTILINE)
    assert len(after) == 2, f"{where}:\n{printed}"
    killed, restored = after
    assert not END.search(killed), where
    steps = str(entry.small["steps"])
    (ended,), (ended_again,) = END.findall(alone), END.findall(restored)
    assert ended[0] == steps
    assert ended == ended_again, where
    first = re.search(r"step (\d+)/", restored)
    assert first and int(first[1]) > 1, f"the run is not restored but begins anew:\n{printed}"
    declared = [metric for metric in entry.metrics if metric.always]
    if more := len(declared[MAX_PRINTED:]):
        assert f"({more} more)" in alone, f"{entry.name} does not report all metrics that it declares"
    for metric in declared[:MAX_PRINTED]:
        assert metric.name in alone, f"{entry.name} declares {metric.name} and does not report it"


TOY = {
    "__init__.py": """
from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Adds.",
    role_kind="Training",
    family="workloads",
    example="toy.yaml",
    small={"steps": 20},
)
""",
    "params.py": """
from pydantic import BaseModel


class Params(BaseModel):
    steps: int = 20
""",
    "engine.py": """
import time

import torch
from torch import nn

import convoy
from convoy_workloads.runtime.exactness import fingerprint
from toy_adder.params import Params

GRADIENTS_END = True


def main() -> None:
    with convoy.join(Params) as job:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job.restore(model=model, optimizer=optimizer)
        for step in job.steps(job.params.steps):
            if GRADIENTS_END:
                optimizer.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            job.report(step, loss=1.0)
            job.checkpoint(step)
        if job.rank == 0:
            print(f"state after step {job.params.steps}: sha256 {fingerprint(model, optimizer)}", flush=True)


if __name__ == "__main__":
    main()
""",
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "with gradients that no checkpoint holds"])
def test_an_engine_folder_is_tested_without_a_test_of_its_own(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toy_adder"
    package.mkdir()
    for name, text in TOY.items():
        (package / name).write_text(
            text if exact else text.replace("GRADIENTS_END = True", "GRADIENTS_END = False")
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy_adder", raising=False)
    monkeypatch.delitem(sys.modules, "toy_adder.params", raising=False)
    import toy_adder  # type: ignore[import-not-found]

    folder = tmp_path / "runs"
    folder.mkdir()
    printed, _ = run_twice(toy_adder.ENGINE, folder)
    ended, ended_again = END.findall(printed)
    assert (ended == ended_again) is exact
