"""Tests of an Experiment in the complete operator. The tests end its jobs, and act as the agents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.error import HTTPError

import pytest
from e2e.rights import Right
from tests.unit.crds.experiments import spec

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_hash import plan_document, plan_hash
from convoy_crds.experiment_schedule import schedule
from convoy_crds.experiment_status import PlanEngine
from convoy_crds.terms import ENGINE_ANALYSIS, ENGINE_SIMULATION

from .conftest import Installation, dialled, eventually
from .test_rights import requested
from .test_stores import Case

API = "/apis/convoy.dev/v1alpha1"
MERGE = "application/merge-patch+json"
Results = Callable[[dict[str, Any]], dict[str, Any] | None]
"""(parameters of a job) -> the result that its program leaves; None for a job that fails."""


def simulated(params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the results of an experiment in which everything succeeds."""
    if params["action"] == "register":
        return {"planHash": plan_hash(params["plan"])}
    if params["action"] == "run":
        return {"figures": {"latePercent": params["seed"] % 100 + 0.25}}
    verdict = [0, None, "Supported", 1.5, 1.0, 2.0, 0.01, 0.5, 3, 0]
    return {"digest": "sha256:1", "valid": True, "controls": [], "verdicts": [verdict]}


class Laboratory:
    """One Experiment. Its jobs end at once with the results of `results`."""

    def __init__(self, installation: Installation, results: Results = simulated) -> None:
        self.installation, self.results = installation, results
        self.namespace = installation.plane.namespace()
        self.jobs = f"{API}/namespaces/{self.namespace}/trainingjobs"
        self.path = f"{API}/namespaces/{self.namespace}/experiments/trial"
        self.ended: list[dict[str, Any]] = []
        """The jobs that have ended, as they were until then."""
        self.holds: Callable[[dict[str, Any]], bool] = lambda job: False
        """Returns True for jobs that do not end."""

    async def create(self, **more: Any) -> dict[str, Any]:
        """Create the experiment, and the Engines that it needs."""
        for name in (ENGINE_ANALYSIS, ENGINE_SIMULATION):
            schema = {"type": "object", "additionalProperties": True}
            body = {"image": "tools:1", "command": ["python", "-m", "tool"], "paramsSchema": schema}
            engine = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Engine", "metadata": {"name": name}}
            with contextlib.suppress(HTTPError):
                await self.installation.call("POST", f"{API}/engines", {**engine, "spec": body})
        body = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": "trial"}}
        collection = self.path.rpartition("/")[0]
        return await self.installation.call("POST", collection, {**body, "spec": spec(**more)})

    async def run(self) -> None:
        """End jobs until cancelled."""
        while True:
            for job in (await self.installation.call("GET", self.jobs))["items"]:
                done = (job.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                if not done and not self.holds(job):
                    await self._end(job)
            await self._collect_garbage()
            await asyncio.sleep(0.1)

    async def status(self) -> dict[str, Any]:
        """Return the status of the experiment."""
        return (await self.installation.call("GET", self.path)).get("status") or {}

    async def phase(self, *phases: str) -> dict[str, Any]:
        """Wait for one of these phases, and return the status."""

        async def reached() -> dict[str, Any]:
            found = await self.status()
            return found if found.get("phase") in phases else {}

        try:
            found: dict[str, Any] = await eventually(reached, 90, what=f"phase {phases}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.status()}") from error
        return found

    async def _collect_garbage(self) -> None:
        """Delete the pods of jobs that do not exist or have ended. No controller does it here."""
        jobs = (await self.installation.call("GET", self.jobs))["items"]
        active = {job["metadata"]["uid"] for job in jobs if self.holds(job)}
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        for pod in (await self.installation.call("GET", pods))["items"]:
            if pod["metadata"]["ownerReferences"][0]["uid"] not in active:
                with contextlib.suppress(HTTPError):
                    path = f"{pods}/{pod['metadata']['name']}?gracePeriodSeconds=0"
                    await self.installation.call("DELETE", path)

    async def _end(self, job: dict[str, Any]) -> None:
        result = self.results(job["spec"]["engine"]["params"])
        status = {"phase": "Failed", "reason": "RankFailed", "message": "code 1"}
        if result is not None:
            status = {"phase": "Succeeded", "result": result}  # type: ignore[dict-item]
        with contextlib.suppress(HTTPError):
            path = f"{self.jobs}/{job['metadata']['name']}/status"
            await self.installation.call("PATCH", path, {"status": status}, content_type=MERGE)
            self.ended.append(job)


@asynccontextmanager
async def laboratory(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, results: Results = simulated
) -> AsyncIterator[Laboratory]:
    """Run the operator, an agent that has probed the store, and the ends of jobs."""
    found = Laboratory(installation, results)
    async with dialled(installation, monkeypatch) as (_, agent):
        store = Case(installation)
        store.name = "s3"
        await store.create("*", volume={"claimName": "disk", "path": "lab"})
        request = await eventually(lambda: agent.last("store"), what="the agent is requested to probe")
        report = {"name": "s3", "version": request.version, "reached": True, "conditional": True}
        await agent.send(store=wire.StoreReport(**report))
        await store.expect_reason("Probed")
        task = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_experiment_registers_runs_and_analyses(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with laboratory(installation, monkeypatch) as lab:
        stored = await lab.create(blocks=4)
        status = await lab.phase("Succeeded", "Failed", "Invalid")
        assert status["phase"] == "Succeeded", status
        engines = [PlanEngine(name=one["name"], image=one["image"]) for one in status["plan"]["engines"]]
        assert status["plan"]["hash"] == plan_hash(plan_document("trial", stored["spec"], engines))
        blocks = schedule((await _model(lab)).spec)
        assert [(row["id"], row["seed"], row["arms"]) for row in status["blocks"]] == [
            (one.id, one.seed, list(one.arms)) for one in blocks
        ]
        for row in status["blocks"]:
            assert {figure["value"] for figure in row["figures"]} == {row["seed"] % 100 + 0.25}
        assert (status["progress"], status["summary"]) == ("4/4", "1 Supported")
        left = (await installation.call("GET", lab.jobs))["items"]
        assert sorted(one["metadata"]["name"].split("-")[2] for one in left) == ["plan", "result"]
        assert {one["metadata"]["ownerReferences"][0]["uid"] for one in left} == {stored["metadata"]["uid"]}


async def _model(lab: Laboratory) -> Experiment:
    return Experiment.model_validate(await lab.installation.call("GET", lab.path))


async def test_a_name_in_use_is_shown_and_heals(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with laboratory(installation, monkeypatch) as lab:
        await lab.create(suspend=True)
        status = await lab.phase("Suspended")
        name = f"trial-{status['plan']['hash'].removeprefix('sha256:')[:6]}-plan-1"
        theirs = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {"engine": {"name": "theirs"}, "roles": [{"name": "worker", "replicas": 1}]},
        }
        lab.holds = lambda job: job["spec"]["engine"]["name"] == "theirs"
        await installation.call("POST", lab.jobs, theirs)
        await installation.call("PATCH", lab.path, {"spec": {"suspend": False}}, content_type=MERGE)

        async def refused() -> bool:
            found = await lab.status()
            return found.get("reason") == "JobRefused" and "has another owner" in found["message"]

        await eventually(refused, what="the refusal is shown")
        assert Right(
            "convoy-operator", "convoy.dev", "trainingjobs", "get", name, lab.namespace
        ) in requested(installation)
        await installation.call("DELETE", f"{lab.jobs}/{name}")
        assert (await lab.phase("Succeeded", "Failed"))["phase"] == "Succeeded"


async def test_a_wrong_template_is_shown_before_anything_starts(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"type": "TrainingJob", "template": {"spec": {"roles": [{"name": "worker", "replicas": 0}]}}}
    arms = [
        {"name": name, "role": role, **wrong} for name, role in (("fast", "Candidate"), ("hpa", "Comparator"))
    ]
    async with laboratory(installation, monkeypatch) as lab:
        await lab.create(arms=arms)

        async def shown() -> dict[str, Any]:
            found = await lab.status()
            return found if found.get("reason") == "InvalidSpec" else {}

        status = await eventually(shown, what="the wrong arm is shown")
        assert status["phase"] == "Pending"
        assert "spec.arms[" in status["message"]
        assert "replicas" in status["message"]
        assert not (await installation.call("GET", lab.jobs))["items"]
