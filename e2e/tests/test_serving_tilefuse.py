"""Test of the engine tilefuse on real nodes."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from e2e.drive.job_specs import single_threaded
from e2e.drive.serving_jobs import SMALL_MODEL, ServingJobs, load


def role(scheme: str) -> dict[str, Any]:
    """Return a role of replicas that quantise a small random model."""
    params = {**SMALL_MODEL, "quant": {"scheme": scheme, "group_size": 32}}
    return single_threaded({"name": "server", "engine": {"name": "tilefuse", "params": params}})


def scheme_of(url: str) -> str:
    """Return the scheme that the model's card names."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
        (card,) = json.load(response)["data"]
    return str(card["quantisation"]["scheme"])


@pytest.mark.full
def test_another_quantisation_is_rolled_out_under_load(serving: ServingJobs) -> None:
    serving.create("packed", replicas=2, rollout={"drainSeconds": 5}, roles=[role("w8a16")])
    serving.wait_rolled("packed")
    url = serving.url("packed")
    assert scheme_of(url) == "w8a16"
    with load(url, 20, 600, "--no-keep-alive") as running:
        serving.patch("packed", roles=[role("w4a16")])
        serving.wait_rolled("packed")
        report = running.report()
    assert report["ok"] == report["scheduled"] > 20, report["causes"]
    assert scheme_of(url) == "w4a16"
    serving.delete("packed")
