"""Tests of the job: one generation for each build, the way on after an end, and pauses."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.aperon.generations import deliver, saved_by_a_local_run
from tests.unit.workloads.aperon.served import params as served_params
from tests.unit.workloads.test_dcp import Agent, agent, joined

from convoy_workloads.engines.aperon.opening import open_index
from convoy_workloads.engines.aperon_index import engine
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.runtime.errors import Interrupted
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers import sizes
from convoy_workloads.serving.group import Group

__all__ = ["agent"]
SMALL = {
    "synthetic": {"rows": 30, "growth": 10, "dimension": 6},
    "index": {"target_recall": 0},
    "kernel": "twin",
    "every_seconds": 0,
}


def run(folder: Path, **more: Any) -> None:
    """Run the job once."""
    context = RankContext(checkpoint_dir=folder / "checkpoints", checkpoint_seconds=3600)
    params = Params.model_validate({**SMALL, "folder": str(folder), **more})
    with Job(context, params) as job, engine.stopping() as stop, engine.workspace(params) as own:
        engine.run(job, own, stop)


def saved(folder: Path) -> list[Generation]:
    return [one.generation for one in storage.records(folder / "checkpoints")[0]]


def records(folder: Path, generation: Generation) -> int:
    """Return the number of records that a replica of aperon finds in a generation."""
    tensors = saved_by_a_local_run(folder / "checkpoints" / generation.name)
    model = deliver(tensors, folder / f"model-{generation.step}", generation.step)
    given = served_params(folder / f"state-{generation.step}", fields={})
    with open_index(given, model, Path(given.state), Group(), lambda: None).index as index:
        return len(index)


def test_each_build_is_a_generation_whatever_the_interval_of_checkpoints(tmp_path: Path) -> None:
    run(tmp_path, generations=3)
    found = saved(tmp_path)
    assert found == [Generation(1, 2), Generation(1, 3)]  # A folder keeps two.
    assert [records(tmp_path, one) for one in found] == [40, 50]
    assert not (tmp_path / engine.FOLDER).exists()


def test_indexes_that_grow_fit_into_the_memory_of_the_node(
    tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "SPARE", 0)  # So the memory that is reserved first is too small.
    agent.interval = 3600.0
    job: Job[Params] = joined(agent)
    rows = {"rows": 30, "growth": 300, "dimension": 6}
    job.params = Params.model_validate(
        {**SMALL, "synthetic": rows, "folder": str(tmp_path), "generations": 3}
    )
    with engine.workspace(job.params) as own:
        engine.run(job, own, [])
    assert [step for step, _ in agent.saved] == [1, 2, 3]
    saved_bytes = [len(data) for _, data in agent.saved]
    assert saved_bytes[0] < saved_bytes[1] < saved_bytes[2]
    model = tmp_path / "model" / "shards" / "0" / "gen-2-3"
    model.parent.mkdir(parents=True)
    model.write_bytes(agent.saved[-1][1])
    given = served_params(tmp_path / "state", fields={})
    with open_index(given, tmp_path / "model", Path(given.state), Group(), lambda: None).index as index:
        assert len(index) == 630


def test_a_job_that_ended_in_a_build_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, built = engine.build_with_retries, list[int]()

    def fail_once(params: Params, generation: int, *more: Any) -> Any:
        built.append(generation)
        if built == [1, 2]:
            raise RuntimeError("killed")
        return real(params, generation, *more)

    monkeypatch.setattr(engine, "build_with_retries", fail_once)
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path, generations=3)
    assert saved(tmp_path) == [Generation(1, 1)]
    run(tmp_path, generations=3)
    assert built == [1, 2, 2, 3] and saved(tmp_path)[-1] == Generation(2, 3)
    assert records(tmp_path, saved(tmp_path)[-1]) == 50
    run(tmp_path, generations=3)
    assert built == [1, 2, 2, 3]


def test_a_job_that_is_told_to_stop_ends_in_a_pause_and_keeps_its_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, pause = time.monotonic(), engine._pause

    def stopped(until: float, renew: Any) -> None:
        assert until > started + 3000
        os.kill(os.getpid(), signal.SIGTERM)
        pause(until, renew)

    monkeypatch.setattr(engine, "_pause", stopped)
    with pytest.raises(Interrupted):
        run(tmp_path, generations=0, every_seconds=3600)
    assert saved(tmp_path) == [Generation(1, 1)] and records(tmp_path, Generation(1, 1)) == 30
