"""Tests of the record of a finished job on a real API server, with the complete operator. The tests act as
the kubelet and the agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.trainingjob.provenance import again
from convoy_crds.terms import ANNOTATION_REVISION
from convoy_crds.trainingjob import TrainingJob

from .conftest import Installation, eventually, running
from .test_default_tiers import Jobs
from .test_operator import job, ranks

DIGEST = f"sha256:{'a' * 64}"


def own_job(name: str) -> dict[str, Any]:
    """Return a job with a program, a seed and a revision of the user's own."""
    body = job(name)
    body["metadata"]["annotations"] = {ANNOTATION_REVISION: "0123abc"}
    (container,) = body["spec"]["roles"][0]["template"]["spec"]["containers"]
    container |= {"image": "registry/train:v1", "command": ["python3", "t.py", "--seed=7"]}
    return body


async def test_a_finished_job_is_repeated_from_its_record(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        jobs = Jobs(installation, operator)
        await installation.call("POST", jobs.path, own_job("train"))

        async def made() -> bool:
            found = await jobs.kubelet.list()
            jobs.uids = [pod["metadata"]["uid"] for pod in found]
            return len(found) == 2

        async def ended() -> dict[str, Any]:
            found = await installation.call("GET", f"{jobs.path}/train")
            return found if (found.get("status") or {}).get("phase") == "Succeeded" else {}

        await eventually(made, what="pods created")
        await jobs.form()
        for pod in await jobs.kubelet.list():
            await jobs.kubelet.status(pod["metadata"]["name"], {"containerStatuses": [_ran(pod)]})
        facts = wire.RunFacts(python="3.11.7", torch="2.13.0")
        progress = wire.Progress(step=5, loss=0.5, time_unix_ms=1_000, facts=facts)
        for state in ("RUNNING", "EXITED"):
            for position, agent in enumerate(jobs.agents):
                report = wire.PodReport(
                    pod_uid=jobs.uids[position],
                    launcher_connected=True,
                    incarnation=1,
                    master_port=29500,
                    port_incarnation=1,
                    ranks=ranks(state, position, progress=progress, first_step_unix_ms=900),
                )
                await agent.send(pod=report)
        stored = await eventually(ended, what="succeeded")
        found = stored["status"]["provenance"]
        assert "missing" not in found, found
        assert (found["revision"], found["seed"], found["torch"]) == ("0123abc", "7", "2.13.0")
        assert found["nodes"] == [f"{jobs.namespace}-a", f"{jobs.namespace}-b"]

        repeated = again(TrainingJob.model_validate(stored), "train-again")
        await installation.call("POST", jobs.path, repeated)

        async def again_made() -> list[dict[str, Any]]:
            listed = await jobs.kubelet.list()
            pods = [one for one in listed if one["metadata"]["labels"]["convoy.dev/job"] == "train-again"]
            return pods if len(pods) == 2 else []

        pods = await eventually(again_made, what="pods of the repetition")
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        assert images == {f"registry/train@{DIGEST}"}
        await jobs.close()


def _ran(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a pod's container as a kubelet writes it."""
    (container,) = pod["spec"]["containers"]
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"registry/train@{DIGEST}",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
