"""Tests of the engine aperon-index as a job: from a service of two pods to a checkpoint, and from the
checkpoint to a service.
"""

from __future__ import annotations

import io
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ports import free_port
from tests.unit.workloads.aperon.generations import deliver, saved_by_a_local_run

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.aperon_index import ENGINE
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.local import run_local

from .conftest import WORKLOADS
from .test_aperon import DIMENSION, SECONDS, job, post
from .test_serving import running

VECTORS = np.random.default_rng(2).standard_normal((300, DIMENSION)).astype(np.float32)
IDS = [f"v{at}" for at in range(len(VECTORS))]


def build(folder: Path, **params: Any) -> Path:
    """Run the job with the launcher. Return the folder of its newest generation, as an agent delivers it."""
    spec = {
        "engine": {"name": ENGINE.name, "params": {"kernel": "twin", **params}},
        "roles": [{"name": "worker", "replicas": 1}],
        "recovery": {"maxRestarts": 0},
    }
    manifest = TrainingJob.model_validate({"metadata": {"name": "index"}, "spec": spec})
    environment, out = {**os.environ, "PYTHONPATH": str(WORKLOADS)}, io.StringIO()
    end = run_local(
        manifest, engine(ENGINE), checkpoint_dir=folder / "saved", out=out, environment=environment
    )
    assert end.exit_code == 0, out.getvalue()
    assert end.result is not None and end.result["records"] == len(VECTORS) - 1
    newest = max((folder / "saved").glob("gen-*"), key=lambda one: int(one.name.rpartition("-")[2]))
    return deliver(saved_by_a_local_run(newest), folder / "model", step=2)


def search(port: int) -> Any:
    """Return the nearest records of some vectors, of the exact search and of the usual one."""
    queries = (VECTORS[:20] + np.float32(0.1)).tolist()
    return [
        post(port, "search", {"queries": queries, "k": 9, "exact": exact})["results"]
        for exact in (True, False)
    ]


@pytest.mark.timeout(240)
def test_a_service_starts_from_the_index_that_a_job_has_built_from_another(tmp_path: Path) -> None:
    source, served = tmp_path / "source", tmp_path / "served"
    source.mkdir()
    served.mkdir()
    with running(source, job(source, group=2)) as run:
        run.ready()
        post(run.port, "upsert", {"ids": IDS, "vectors": VECTORS.tolist()})
        assert post(run.port, "delete", {"ids": IDS[:1]}) == {"deleted": 1}
        exact, _ = search(run.port)
        model = build(
            tmp_path,
            service={"url": f"http://127.0.0.1:{run.port}"},
            generations=2,
            every_seconds=0,
            index={"grains": 6, "target_recall": 0.95},
        )
        assert run.end() == 0
    body = job(served)
    body["spec"]["service"]["port"] = free_port()
    body["spec"]["model"] = {"checkpoint": {"job": "index", "store": "main"}}
    body["spec"]["roles"][0]["engine"]["params"] |= {"read_only": True, "recall_share": 0}
    with running(served, body, "--model", str(model)) as run:
        run.ready()
        found, usual = search(run.port)
        assert found == exact
        shares = [
            len({one["id"] for one in ids} & {one["id"] for one in true}) / 9
            for ids, true in zip(usual, exact, strict=True)
        ]
        assert np.mean(shares) > 0.8
        assert post(run.port, "count", {}) == {"count": len(IDS) - 1}
        with urllib.request.urlopen(f"http://127.0.0.1:{run.port}/v1/models", timeout=SECONDS) as response:
            (card,) = json.load(response)["data"]
        assert (card["step"], card["incarnation"], card["records"]) == (2, 1, len(IDS) - 1)
        assert run.end() == 0
