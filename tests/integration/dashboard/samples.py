"""A made-up cluster in the middle of a day: jobs in all the states that pages tell of, and all the rest."""

from __future__ import annotations

import math
import random
from typing import Any

from tests.integration.dashboard import machines
from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import condition
from tests.integration.dashboard.times import at


def training_job(
    name: str, namespace: str = "default", replicas: int = 2, processes: int = 1, **spec: Any
) -> dict[str, Any]:
    """One without a status."""
    template = {"spec": {"containers": [{"name": "worker", "image": "i", "command": ["true"]}]}}
    role = {"name": "worker", "replicas": replicas, "processesPerReplica": processes, "template": template}
    return {
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [role], **spec},
    }


def running(step: int, total: int, minutes: float = 0.2) -> dict[str, Any]:
    """`status.progress`."""
    return {
        "step": step,
        "totalSteps": total,
        "percent": 100 * step // total,
        "loss": round(2.1 + 5.2 * math.exp(-step / 9000), 4),
        "heldOutLoss": round(2.3 + 5.1 * math.exp(-step / 9000), 4),
        "samplesPerSecond": 1843.2,
        "etaAt": at(hours=-7),
        "time": at(minutes=minutes),
    }


def ledger(cause: str = "productive", **seconds: float) -> dict[str, Any]:
    """`status.goodput`."""
    return {"ratio": 0.9, "seconds": seconds, "cause": cause, "since": at(minutes=2)}


TIERS = {"tiers": {"local": {}, "peer": {"copies": 1}, "remote": {"store": "s3-main", "every": "10m"}}}
SLOW = (
    "rank 5 on node-06 makes the others wait (Thermal): 23 % longer than its peers since step 18200, "
    "lasting; see: convoy why llama-8b"
)


def checkpoint(step: int, **ago: float) -> dict[str, Any]:
    """`status.checkpoint`."""

    def mark(back: int, minutes: float) -> dict[str, Any]:
        return {"incarnation": 3, "step": step - back, "time": at(minutes=minutes)}

    return {
        "incarnation": 3,
        "step": step,
        "tier": "peer",
        "time": at(**ago),
        "watermarks": {"local": mark(0, 1), "peer": mark(0, 1), "remote": mark(400, 9)},
        "interval": {"seconds": 95, "reason": "a checkpoint costs 0.4 s and the job fails every 3.1 h"},
    }


def jobs(cluster: Cluster, research: str) -> None:
    """The jobs of two namespaces."""
    llama = training_job("llama-8b", "default", 4, 2, checkpoint={"interval": "Auto", **TIERS})
    llama["status"] = {
        "phase": "Running",
        "reason": "Straggler",
        "message": SLOW,
        "ready": "4/4",
        "incarnation": 3,
        "progress": running(200, 60_000, 40),
        "checkpoint": checkpoint(18_350, minutes=1),
        "restarts": {
            "total": 2, "counted": 2, "inWindow": 1, "times": [at(minutes=47)],
            "last": {
                "reason": "RankKilled", "rank": 2, "node": "node-02", "step": 14_210, "scope": "Process",
                "message": "rank 2 on node node-02 was killed by signal 9 (the kernel: out of memory)",
                "at": at(minutes=47),
            },
        },
        "goodput": ledger(
            queue=140, schedule=65, start=38, productive=15_900, detect=4, restart=61, recompute=190,
            checkpoint=205, straggler=640,
        ),
        "conditions": [
            condition("Valid", "True", "Accepted", "the spec is valid"),
            condition("Scheduled", "True", "AllScheduled", "all 4 pods are placed"),
            condition("Running", "True", "Training", "incarnation 3: 8 ranks run"),
            condition("Checkpointing", "True", "Saving", "the state is saved every 95 s to: local, peer"),
            condition("StragglerDetected", "True", "Straggler", SLOW, minutes=12),
        ],
        "stragglers": [
            {"cause": "Thermal", "place": "rank", "ranks": [5], "nodes": ["node-06"], "sinceStep": 18_200,
             "slowdown": 0.23, "lost": 0.17, "persistent": True},
            {"cause": "CommonMode", "place": "job", "sinceStep": 17_000, "slowdown": 0.03},
        ],
    }  # fmt: skip
    cluster.make("trainingjobs", llama)
    failed = training_job("odb-ablation-7", research, 2)
    failed["status"] = {
        "phase": "Failed", "reason": "RepeatedError", "ready": "0/2", "incarnation": 4,
        "message": "3 times in a row, at the same step, the same error "
        "(spec.recovery.maxIdenticalErrors=3): rank 0 on node node-03 exited with code 1. "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 768x512)",
        "progress": running(120, 20_000, 42), "completionTime": at(minutes=41),
        "restarts": {"total": 3, "counted": 3, "inWindow": 0},
        "goodput": ledger("restart", queue=4, schedule=9, start=31, productive=50, restart=44),
    }  # fmt: skip
    cluster.make("trainingjobs", failed)
    stuck = training_job("vit-22b", research, 16, 8)
    stuck["status"] = {
        "phase": "Pending", "reason": "Unschedulable", "ready": "0/16", "incarnation": 1,
        "message": "pod vit-22b-worker-11 cannot be placed: 0/10 nodes are available: 10 Insufficient "
        "nvidia.com/gpu; ask for less, or add nodes",
        "pendingSince": at(minutes=26),
        "goodput": ledger("queue", queue=1560),
    }  # fmt: skip
    cluster.make("trainingjobs", stuck)
    blind = training_job("tiny-probe", research, 4)
    blind["status"] = {
        "phase": "Running", "reason": "Training", "message": "incarnation 1: 4 ranks run", "ready": "4/4",
        "incarnation": 1, "progress": running(700, 5000),
        "goodput": ledger(productive=420, start=12),
        "conditions": [
            condition(
                "StragglerDetected", "Unknown", "DetectorDegraded",
                "a rank that was made up to be half as slow again was not found: the ranks' times say too "
                "little, or scatter too much; that nobody is named says nothing", minutes=8,
            )
        ],
    }  # fmt: skip
    cluster.make("trainingjobs", blind)
    for name, phase, reason, message in (
        ("gpt2-baseline", "Succeeded", "Completed", "all roles are complete"),
        ("moe-sweep-a", "Restarting", "FormingProcessGroup", "incarnation 6: starting 16 ranks"),
        ("moe-sweep-b", "Running", "Training", "incarnation 1: 16 ranks run"),
        ("rlhf-night", "Suspended", "Suspended", "the state is saved; spec.suspend: false lets it run on"),
    ):
        body = training_job(name, "default", 8, 2)
        step = {"Succeeded": 20_000, "Running": 9_100}.get(phase, 4_480)
        body["status"] = {
            "phase": phase, "reason": reason, "message": message, "incarnation": 1,
            "ready": "8/8" if phase == "Running" else "0/8",
            "progress": running(step, 20_000, 3), "checkpoint": checkpoint(step, minutes=4),
            "goodput": ledger(productive=9_000 if phase != "Restarting" else 800, start=60, restart=180),
            **({"completionTime": at(hours=2)} if phase == "Succeeded" else {}),
        }  # fmt: skip
        cluster.make("trainingjobs", body)


def pods(cluster: Cluster) -> None:
    """The pods of llama-8b."""
    owner = cluster.plane.request("GET", "/apis/convoy.dev/v1alpha1/namespaces/default/trainingjobs/llama-8b")
    for number, node in enumerate(("node-01", "node-02", "node-06", "node-04")):
        name = f"llama-8b-worker-{number}"
        cluster.plane.request(
            "POST",
            "/api/v1/namespaces/default/pods",
            {
                "metadata": {
                    "name": name,
                    "labels": {"convoy.dev/job": "llama-8b"},
                    "ownerReferences": [
                        {"apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "name": "llama-8b",
                         "uid": owner["metadata"]["uid"], "controller": True}
                    ],
                },
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "worker", "image": "i"}],
                    "automountServiceAccountToken": False,
                },
            },
        )  # fmt: skip
        cluster.plane.request(
            "PATCH",
            f"/api/v1/namespaces/default/pods/{name}/status",
            {"status": {"phase": "Running"}},
            "application/merge-patch+json",
        )


def events(cluster: Cluster) -> None:
    """What became of llama-8b."""
    job = cluster.plane.request("GET", "/apis/convoy.dev/v1alpha1/namespaces/default/trainingjobs/llama-8b")
    told = (
        ("Normal", "FormingProcessGroup", "incarnation 1: starting 8 ranks", 280),
        ("Normal", "Training", "incarnation 1: 8 ranks run", 279),
        ("Warning", "PodLost", "pod llama-8b-worker-3 on node node-08 is gone: it does not answer", 160),
        ("Normal", "FormingProcessGroup", "incarnation 2: starting 8 ranks", 159.8),
        ("Warning", "RankKilled",
         "rank 2 on node node-02 was killed by signal 9 (the kernel: out of memory)", 47),
        ("Normal", "FormingProcessGroup", "incarnation 3: starting 8 ranks", 46.9),
        ("Warning", "Straggler", SLOW, 12),
    )  # fmt: skip
    for number, (kind, reason, message, minutes) in enumerate(told):
        cluster.plane.request(
            "POST",
            "/api/v1/namespaces/default/events",
            {
                "metadata": {"name": f"llama-8b.{number}.{job['metadata']['uid']}"},
                "involvedObject": {
                    "apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "name": "llama-8b",
                    "namespace": "default", "uid": job["metadata"]["uid"],
                },
                "type": kind, "reason": reason, "message": message, "count": 1,
                "firstTimestamp": at(minutes=minutes), "lastTimestamp": at(minutes=minutes),
                "source": {"component": "convoy-operator"},
            },
        )  # fmt: skip


def curve(cluster: Cluster, points: int = 60) -> None:
    """Steps of llama-8b, told one after the other as the operator would."""
    rng = random.Random(3)
    for number in range(points):
        step = 400 + 18_000 * number // points
        loss = 2.1 + 5.2 * math.exp(-step / 4000) + rng.gauss(0, 0.03)
        progress = running(step, 60_000, (points - number) * 0.5)
        progress |= {
            "loss": round(loss, 4),
            "samplesPerSecond": round(1840 + rng.gauss(0, 25) - 300 * (number > 50), 1),
        }
        cluster.status("trainingjobs", "llama-8b", {"progress": progress}, "default")


def fill(cluster: Cluster) -> str:
    """All of it; the name of the second namespace."""
    research = cluster.plane.namespace("research")
    machines.nodes(cluster)
    machines.policies(cluster)
    machines.hardware(cluster)
    jobs(cluster, research)
    pods(cluster)
    events(cluster)
    return research
