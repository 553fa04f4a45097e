"""Test of a ServingJob that computes tensors, on real nodes."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from e2e.drive.job_specs import single_threaded
from e2e.drive.serving_jobs import ServingJobs, load

ROWS = {"name": "input", "datatype": "FP64", "shape": [2, 4], "data": [5, 3.5, 1.4, 0.2, 6.3, 3, 6, 2]}
PATH = "/v2/models/iris/infer"


@pytest.mark.full
def test_a_model_of_scikit_learn_is_served_and_rolled_under_load(
    serving: ServingJobs, tmp_path: Path
) -> None:
    """Serve the engine's own model, and roll it while requests arrive. No request is lost."""

    def role(rows: int) -> dict[str, Any]:
        params = {"name": "iris", "max_rows": rows}
        return single_threaded({"name": "server", "engine": {"name": "sklearn", "params": params}})

    bodies = tmp_path / "bodies.jsonl"
    bodies.write_text(json.dumps({"inputs": [ROWS]}) + "\n")
    serving.create("iris", replicas=2, roles=[role(64)])
    serving.wait_rolled("iris", 180)
    url = serving.url("iris")
    with load(url, 20, 600, f"--path={PATH}", f"--bodies={bodies}") as running:
        serving.patch("iris", roles=[role(128)])
        serving.wait_rolled("iris", 120)
        report = running.report()
    assert report["ok"] == report["scheduled"] > 20, report["causes"]
    request = urllib.request.Request(url + PATH, json.dumps({"inputs": [ROWS]}).encode())
    with urllib.request.urlopen(request, timeout=5) as response:
        assert json.load(response)["outputs"][0]["data"] == ["setosa", "virginica"]
    serving.delete("iris")
