"""Tests of `placement.advise` on a real API server, with the complete operator and its child process. The
tests act as the kubelet and the agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.placement import LABEL_HOST_RATE, LABEL_UPLINK_RATE
from convoy_crds.terms import LABEL_AGENT_READY

from .conftest import FakeAgent, Installation, eventually, running
from .test_operator import JOBS, Kubelet, job
from .test_stores import MERGE

RATES = {"slow": "1", "fast": "100"}
"""Gbit/s of the hosts' links, by name of their rack."""


async def make_node(installation: Installation, operator: Any, name: str, labels: dict[str, str]) -> None:
    """Create a node with room for one pod, and connect its agent."""
    conditions = [{"type": "Ready", "status": "True"}]
    status = {
        "conditions": conditions,
        "nodeInfo": {"machineID": f"machine-of-{name}"},
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"},
    }
    body = {"metadata": {"name": name, "labels": labels}, "status": status}
    await installation.call("POST", "/api/v1/nodes", body)
    # The API server gives each node the taint not-ready, which only the node controller removes.
    ready = {"spec": {"taints": None}}
    await installation.call("PATCH", f"/api/v1/nodes/{name}", ready, content_type=MERGE)
    agent = FakeAgent(installation, operator.server, name)
    await agent.enrol()
    await agent.dial()

    async def labelled() -> bool:
        found = await installation.call("GET", f"/api/v1/nodes/{name}")
        return found["metadata"]["labels"].get(LABEL_AGENT_READY) == "true"

    await eventually(labelled, what="node labelled")


def advised(name: str, selector: dict[str, str]) -> dict[str, Any]:
    body = job(name)
    spec = body["spec"]["roles"][0]["template"]["spec"]
    spec["nodeSelector"] = selector
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    step = {"backwardMilliseconds": 10, "gradientBytes": 100_000_000}
    body["spec"]["placement"] = {"topologyKeys": ["rack"], "gang": "None", "advise": "Simulate", "step": step}
    return body


def planned(pod: dict[str, Any]) -> str:
    """Return the node that Convoy has chosen for a pod."""
    return str(pod["metadata"]["annotations"]["convoy.dev/planned-node"]).rpartition("-")[0]


async def test_places_are_ranked_without_delay_and_the_next_job_gets_the_fastest(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    path, kubelet = JOBS.format(namespace), Kubelet(installation, namespace)

    async def advice(name: str) -> dict[str, Any]:
        status = (await installation.call("GET", f"{path}/{name}")).get("status") or {}
        found: dict[str, Any] = status.get("placement", {}).get("advice", {})
        return found

    async def ranked() -> dict[str, Any]:
        found = await advice("first")
        return found if found.get("places") else {}

    async def two_pods(name: str) -> list[dict[str, Any]]:
        found = [one for one in await kubelet.list() if one["metadata"]["labels"]["convoy.dev/job"] == name]
        return found if len(found) == 2 else []

    async with running(installation, monkeypatch) as operator:
        selector = {"advice": namespace}
        for rack, rate in RATES.items():
            labels = {**selector, "rack": rack, LABEL_HOST_RATE: rate, LABEL_UPLINK_RATE: "400"}
            # Packing prefers the rack with less room.
            for number in range(2 if rack == "slow" else 3):
                await make_node(installation, operator, f"{namespace}-{rack}-{number}", labels)
        await installation.call("POST", path, advised("first", selector))
        pods = await eventually(lambda: two_pods("first"), what="pods created")
        assert {planned(pod) for pod in pods} == {f"{namespace}-slow"}
        found = await eventually(ranked, what="places ranked")
        assert [one["name"] for one in found["places"]] == ["fast first", "packed"]
        assert (
            found["chosen"] == "packed" and found["places"][0]["stepMs"] < found["places"][1]["stepMs"] / 10
        )

        await installation.call("DELETE", f"{path}/first")
        for pod in pods:
            await installation.call(
                "DELETE", f"{kubelet.pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0}
            )
        await installation.call("POST", path, advised("second", selector))
        pods = await eventually(lambda: two_pods("second"), what="pods created")
        assert {planned(pod) for pod in pods} == {f"{namespace}-fast"}
        assert (await advice("second"))["chosen"] == "fast first"

        blind = advised("blind", {"advice": "nowhere"})
        blind["spec"]["placement"].pop("step")
        with pytest.raises(Exception, match="422") as caught:
            await installation.call("POST", path, blind)
        assert "advise: Simulate needs step" in str(caught.value.read())  # type: ignore[attr-defined]
