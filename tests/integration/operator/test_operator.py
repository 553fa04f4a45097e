"""Tests of the life of a job in the complete operator. The tests act as the kubelet and the agents."""

from __future__ import annotations

import time
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.trainingjob.timeline import RecoveryPhase
from convoy_crds.metric_names import MAX_OWN_METRICS
from convoy_crds.terms import LABEL_AGENT_READY

from .conftest import FakeAgent, Installation, eventually, running

JOBS = "/apis/convoy.dev/v1alpha1/namespaces/{}/trainingjobs"


def job(name: str, replicas: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "roles": [
                {
                    "name": "worker",
                    "replicas": replicas,
                    "template": {
                        "spec": {
                            "containers": [{"name": "w", "image": "img", "command": ["python3", "t.py"]}]
                        }
                    },
                }
            ]
        },
    }


class Kubelet:
    """Acts as the scheduler and the kubelet: it places pods on nodes and runs them."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        self.installation = installation
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    async def list(self) -> list[dict[str, Any]]:
        found = (await self.installation.call("GET", self.pods))["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    async def start(self, pod: dict[str, Any], node: str, ip: str) -> None:
        name = pod["metadata"]["name"]
        await self.installation.call(
            "POST",
            f"{self.pods}/{name}/binding",
            {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}},
        )
        await self.status(name, {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]})

    async def status(self, name: str, status: dict[str, Any]) -> None:
        await self.installation.call(
            "PATCH",
            f"{self.pods}/{name}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )


def ranks(state: str, rank: int, **more: Any) -> list[wire.RankReport]:
    return [wire.RankReport(rank=rank, state=getattr(wire.RankReport.State, state), **more)]


def figures(rank: int) -> wire.Progress:
    """Return the progress of a rank's first step. It has one metric more than the operator keeps."""
    found = [wire.Metric(name="held_out_loss", value=2.5 + rank, step=1), wire.Metric(name="ratio", step=1)]
    found += [wire.Metric(name=f"m{number}", value=1.0) for number in range(MAX_OWN_METRICS - 1)]
    return wire.Progress(step=1, time_unix_ms=1_000, metrics=found)


async def test_a_job_is_formed_trains_and_succeeds(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    path = JOBS.format(namespace)
    kubelet = Kubelet(installation, namespace)
    nodes = [f"{namespace}-a", f"{namespace}-b"]

    async def status() -> dict[str, Any]:
        return (await installation.call("GET", f"{path}/train")).get("status") or {}

    async def labelled(node: str) -> bool:
        found = await installation.call("GET", f"/api/v1/nodes/{node}")
        return found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true"

    async with running(installation, monkeypatch) as operator:
        agents = []
        for node in nodes:
            await installation.node(node)
            agent = FakeAgent(installation, operator.server, node)
            await agent.enrol()
            await agent.dial()
            agents.append(agent)
            await eventually(lambda node=node: labelled(node), what="node labelled")

        await installation.call("POST", path, job("train"))
        pods = await eventually(lambda: _count(kubelet, 2), what="pods created")
        uids = [pod["metadata"]["uid"] for pod in pods]
        for position, pod in enumerate(pods):
            await kubelet.start(pod, nodes[position], f"10.1.0.{position + 1}")
            await agents[position].send(pod=wire.PodReport(pod_uid=uids[position], launcher_connected=True))

        request = await eventually(lambda: agents[0].last("pick_port"), what="port requested")
        assert (request.pod_uid, request.incarnation) == (uids[0], 1)
        assert (await status())["incarnation"] == 1, "the incarnation is stored before any command"
        await agents[0].send(
            pod=wire.PodReport(
                pod_uid=uids[0], launcher_connected=True, master_port=29500, port_incarnation=1
            )
        )
        for position, agent in enumerate(agents):
            given = await eventually(lambda agent=agent: agent.last("assignment"), what="assignment")
            assert (given.pod_uid, given.slot, given.master_addr, given.master_port) == (
                uids[position],
                position,
                "10.1.0.1",
                29500,
            )
            assert [member.peer_address for member in given.members] == [f"{node}:8472" for node in nodes]
            await agent.send(
                pod=wire.PodReport(
                    pod_uid=uids[position],
                    launcher_connected=True,
                    incarnation=1,
                    master_port=29500 if position == 0 else 0,
                    port_incarnation=1 if position == 0 else 0,
                    ranks=ranks("RUNNING", position, progress=figures(position)),
                )
            )
        await eventually(lambda: _phase(status, "Running"), what="running")
        progress = (await status())["progress"]
        assert progress["metrics"][:2] == [
            {"name": "held_out_loss", "value": 2.5, "step": 1},
            {"name": "ratio", "step": 1},
        ]
        assert len(progress["metrics"]) == MAX_OWN_METRICS
        dropped = [one for one in (await status())["conditions"] if one["type"] == "MetricsDropped"]
        assert [one["reason"] for one in dropped] == ["TooManyMetrics"]

        for position, agent in enumerate(agents):
            await agent.send(
                pod=wire.PodReport(
                    pod_uid=uids[position],
                    launcher_connected=True,
                    incarnation=1,
                    ranks=ranks("EXITED", position),
                )
            )
        await eventually(lambda: _phase(status, "Succeeded"), what="succeeded")
        for agent in agents:
            assert (
                await eventually(lambda agent=agent: agent.last("shutdown"), what="shutdown")
            ).exit_code == 0
            await agent.hang_up()


async def test_a_restart_is_timed_from_the_fault_to_the_next_step(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    kubelet, node = Kubelet(installation, namespace), f"{namespace}-a"

    async with running(installation, monkeypatch) as operator:
        await installation.node(node)
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        await agent.dial()
        value = operator.metrics.registry.get_sample_value

        async def incarnation(number: int, started: float, stepped: float) -> None:
            """Report the pod's port and its ranks for this incarnation, and let the ranks complete a step."""

            def requested(kind: str) -> bool:
                sent = agent.last(kind)
                return sent is not None and sent.incarnation == number

            known = {"master_port": 29500, "port_incarnation": number, "launcher_connected": True}
            await eventually(lambda: requested("pick_port"), what="port requested")
            await agent.send(pod=wire.PodReport(pod_uid=uid, incarnation=number - 1, **known))
            await eventually(lambda: requested("assignment"), what="assignment")
            began = int(1000 * started)
            for more in (
                {},
                {
                    "first_step_unix_ms": int(1000 * stepped),
                    "progress": wire.Progress(step=1, time_unix_ms=int(1000 * stepped), restore_ms=125),
                },
            ):
                up = ranks("RUNNING", 0, started_unix_ms=began, **more)
                await agent.send(pod=wire.PodReport(pod_uid=uid, incarnation=number, ranks=up, **known))

        await installation.call("POST", JOBS.format(namespace), job("train", 1))
        [pod] = await eventually(lambda: _count(kubelet, 1), what="pod created")
        uid = pod["metadata"]["uid"]
        await kubelet.start(pod, node, "10.1.0.1")
        await agent.send(pod=wire.PodReport(pod_uid=uid, launcher_connected=True))
        struck = time.time()
        await incarnation(1, struck - 2, struck - 1)

        def total() -> float:
            return value("convoy_recovery_seconds_count", {"phase": "total"}) or 0.0

        killed = ranks("EXITED", 0, exit_code=137, signal=9, ended_unix_ms=int(1000 * struck))
        await agent.send(
            pod=wire.PodReport(pod_uid=uid, launcher_connected=True, incarnation=1, ranks=killed)
        )
        await incarnation(2, struck + 60, struck + 61)
        await eventually(total, what="a recovery observed")
        sums = {phase: value("convoy_recovery_seconds_sum", {"phase": phase}) for phase in RecoveryPhase}
        found = {phase.value: seconds for phase, seconds in sums.items() if seconds}
        assert found.keys() == {"detect", "start", "restore", "first_step", "total"}, (
            "the pods stayed in place"
        )
        assert found["total"] == pytest.approx(61, abs=0.01)
        assert found["detect"] + found["start"] == pytest.approx(60, abs=0.01)
        assert (found["restore"], found["first_step"]) == (0.125, pytest.approx(0.875, abs=0.01))
        assert value("convoy_restarts_total", {"reason": "RankKilled", "counted": "true"}) == 1
        await agent.hang_up()


async def _count(kubelet: Kubelet, count: int) -> list[dict[str, Any]]:
    pods = await kubelet.list()
    return pods if len(pods) == count else []


async def _phase(status: Any, phase: str) -> bool:
    return (await status()).get("phase") == phase


async def test_the_catalogue_is_applied_and_becomes_ready(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"engine-{installation.namespace}"
    engine = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": name},
        "spec": {"image": "img", "command": ["python3", "-m", "x"], "paramsSchema": {"type": "object"}},
    }
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump(engine))
    (tmp_path / "broken.yaml").write_text("kind: Nonsense")

    async def ready() -> bool:
        try:
            found = await installation.call("GET", f"/apis/convoy.dev/v1alpha1/engines/{name}")
        except urllib.error.HTTPError:
            return False
        conditions = found.get("status", {}).get("conditions", [])
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

    async with running(installation, monkeypatch, engines_dir=str(tmp_path)):
        await eventually(ready, what="engine ready")
