"""Tests of `spec.lint` on a real API server, with the complete operator. The tests act as the kubelet and the
agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire

from .conftest import Installation, eventually, running
from .test_default_tiers import Jobs
from .test_operator import job, ranks
from .test_stores import MERGE

IMAGE = "spec.roles[0].template.spec.containers[0].image"


def linted(name: str, image: str, **lint: Any) -> dict[str, Any]:
    """Return a job that violates no rule but T01, if its image has no digest."""
    body = job(name)
    body["spec"]["lint"] = lint
    (container,) = body["spec"]["roles"][0]["template"]["spec"]["containers"]
    container |= {
        "image": image,
        "command": ["python3", "t.py", "--seed=1"],
        "resources": {"requests": {"cpu": "4", "memory": "1Gi"}},
    }
    return body


async def test_findings_are_shown_and_denied_jobs_start_after_the_remedy(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        jobs = Jobs(installation, operator)

        async def status(name: str) -> dict[str, Any]:
            return (await installation.call("GET", f"{jobs.path}/{name}")).get("status") or {}

        async def condition(name: str, kind: str) -> dict[str, Any]:
            found = (await status(name)).get("conditions") or []
            return next((one for one in found if one["type"] == kind), {})

        async def denied() -> bool:
            return (await condition("strict", "Valid")).get("reason") == "AdviceDenied"

        async def pods(name: str) -> list[dict[str, Any]]:
            return [
                one
                for one in await jobs.kubelet.list()
                if one["metadata"]["labels"]["convoy.dev/job"] == name
            ]

        await installation.call("POST", jobs.path, linted("strict", "registry/train", enforce="Deny"))
        await eventually(denied, what="job denied")
        assert (await condition("strict", "Valid"))["message"].startswith(
            f"{IMAGE}: image registry/train has no tag"
        )
        assert await pods("strict") == []

        pinned = linted("strict", "registry/train@sha256:" + "0" * 64, enforce="Deny")
        change = {"spec": {"roles": pinned["spec"]["roles"]}}
        await installation.call("PATCH", f"{jobs.path}/strict", change, content_type=MERGE)

        async def started() -> bool:
            return len(await pods("strict")) == 2

        await eventually(started, what="pods of the corrected job")

        async def accepted() -> bool:
            found = [(await condition("strict", kind)).get("reason") for kind in ("Valid", "Advice")]
            return found == ["Accepted", "RulesKept"]

        await eventually(accepted, what="conditions of the corrected job")
        await installation.call("DELETE", f"{jobs.path}/strict")


async def test_the_facts_of_the_run_become_advice(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        jobs = Jobs(installation, operator)
        await installation.call("POST", jobs.path, linted("train", "registry/train", enforce="Warn"))

        async def made() -> bool:
            found = await jobs.kubelet.list()
            jobs.uids = [pod["metadata"]["uid"] for pod in found]
            return len(found) == 2

        async def advice() -> list[tuple[str, str]]:
            status = (await installation.call("GET", f"{jobs.path}/train")).get("status") or {}
            return [(one["rule"], one["path"]) for one in status.get("advice") or []]

        await eventually(made, what="pods created")
        assert await advice() == [("T01", IMAGE)], "a warning stops no job"
        await jobs.form()
        facts = wire.RunFacts(
            folders=[wire.DataFolder(path="/data", files=20_000, median_bytes=8192)],
            ms=120_000,
            cpu_ms=12_000,
        )
        for position, agent in enumerate(jobs.agents):
            progress = wire.Progress(step=5, time_unix_ms=1_000, facts=facts)
            report = wire.PodReport(
                pod_uid=jobs.uids[position],
                launcher_connected=True,
                incarnation=1,
                master_port=29500,
                port_incarnation=1,
                ranks=ranks("RUNNING", position, progress=progress, first_step_unix_ms=900),
            )
            await agent.send(pod=report)

        async def judged() -> bool:
            return [rule for rule, _ in await advice()] == ["T01", "T09", "T10"]

        await eventually(judged, what="advice about files and processors")
        await jobs.close()
