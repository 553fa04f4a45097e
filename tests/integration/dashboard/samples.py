"""The jobs of an invented cluster, in all phases."""

from __future__ import annotations

from typing import Any

from tests.integration.dashboard import chat, llama, machines, spot, trial
from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import condition
from tests.integration.dashboard.times import at


def training_job(
    name: str, namespace: str = "default", replicas: int = 2, processes: int = 1, **spec: Any
) -> dict[str, Any]:
    """Return a job without a status."""
    template = {"spec": {"containers": [{"name": "worker", "image": "i", "command": ["true"]}]}}
    role = {"name": "worker", "replicas": replicas, "processesPerReplica": processes, "template": template}
    return {
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [role], **spec},
    }


def running(step: int, total: int, minutes: float = 0.2) -> dict[str, Any]:
    """Return `status.progress` of a job at this step."""
    return {
        "step": step,
        "totalSteps": total,
        "percent": 100 * step // total,
        **llama.losses(step),
        "samplesPerSecond": 1843.2,
        "etaAt": at(hours=-7),
        "time": at(minutes=minutes),
    }


def ledger(cause: str = "productive", **seconds: float) -> dict[str, Any]:
    """Return `status.goodput` with these seconds."""
    return {"ratio": 0.9, "seconds": seconds, "cause": cause, "since": at(minutes=2)}


TIERS = {"tiers": {"local": {}, "peer": {"copies": 1}, "remote": {"store": "s3-main", "every": "10m"}}}


def checkpoint(step: int, incarnation: int = 1, minutes: float = 1) -> dict[str, Any]:
    """Return `status.checkpoint` with a checkpoint at this step."""

    def mark(back: int, more: float) -> dict[str, Any]:
        return {"incarnation": incarnation, "step": max(0, step - back), "time": at(minutes=minutes + more)}

    return {
        **mark(0, 0),
        "tier": "peer",
        "watermarks": {"local": mark(0, 0), "peer": mark(0, 0), "remote": mark(400, 8)},
        "interval": {"seconds": 95, "reason": "a checkpoint costs 0.4 s and the job fails every 3.1 h"},
    }


def jobs(cluster: Cluster, research: str) -> None:
    """Create the jobs in two namespaces."""
    trained = {"engine": {"name": "llama"}, "checkpoint": {"interval": "Auto", **TIERS}}
    llama.create_job(cluster, training_job(llama.NAME, "default", 4, 2, **trained))
    failed = training_job("odb-ablation-7", research, 2)
    failed["status"] = {
        "phase": "Failed", "reason": "RepeatedError", "ready": "0/2", "incarnation": 4,
        "message": "the same error occurred 3 times in a row at the same step "
        "(spec.recovery.maxIdenticalErrors=3): rank 0 on node node-03 exited with code 1. "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 768x512)",
        "progress": running(120, 20_000, 42), "completionTime": at(minutes=41),
        "restarts": {"total": 3, "counted": 3},
        "goodput": ledger("restart", queue=4, schedule=9, start=31, productive=50, restart=44),
    }  # fmt: skip
    cluster.make("trainingjobs", failed)
    stuck = training_job("vit-22b", research, 16, 8)
    stuck["status"] = {
        "phase": "Pending", "reason": "Unschedulable", "ready": "0/16", "incarnation": 1,
        "message": "pod vit-22b-worker-11 cannot be scheduled: 0/10 nodes are available: 10 Insufficient "
        "nvidia.com/gpu; lower its requests or add nodes",
        "internal": {"pending": {"since": at(minutes=26)}},
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
                "the detector missed its canary (a test rank whose timings are 1.5 times as long): timings "
                'are missing or too noisy, so "no straggler" is not reliable', minutes=8,
            )
        ],
    }  # fmt: skip
    cluster.make("trainingjobs", blind)
    for name, phase, reason, message, step, incarnation, minutes in (
        ("gpt2-baseline", "Succeeded", "Completed", "all roles are complete", 20_000, 1, 120),
        ("moe-sweep-a", "Restarting", "FormingProcessGroup", "incarnation 6: starting 16 ranks", 4_480, 6, 4),
        ("moe-sweep-b", "Running", "Training", "incarnation 1: 16 ranks run", 9_100, 1, 0.2),
        ("rlhf-night", "Suspended", "Suspended", "it will go on after step 4480; to resume, set "
         "spec.suspend: false (convoy resume), unless a batch queue holds the job", 4_480, 1, 190),
    ):  # fmt: skip
        body = training_job(name, "default", 8, 2)
        restarts = incarnation - 1
        body["status"] = {
            "phase": phase, "reason": reason, "message": message, "incarnation": incarnation,
            "ready": "8/8" if phase == "Running" else "0/8",
            "progress": running(step, 20_000, minutes),
            "checkpoint": checkpoint(step, incarnation, minutes + 1),
            "restarts": {"total": restarts, "counted": restarts},
            "goodput": ledger(productive=9_000 if phase != "Restarting" else 800, start=60, restart=180),
            **({"completionTime": at(minutes=minutes)} if phase == "Succeeded" else {}),
            **({"internal": {"pending": {"since": at(minutes=0.5)}}} if phase == "Restarting" else {}),
        }  # fmt: skip
        cluster.make("trainingjobs", body)


def fill(cluster: Cluster, research: str, points: int = 60) -> None:
    """Create the whole cluster. `research` is the name of the second namespace. `points` is the number of
    status updates in the last hour.
    """
    llama.engine(cluster)
    machines.nodes(cluster)
    machines.policies(cluster)
    machines.hardware(cluster)
    jobs(cluster, research)
    llama.pods(cluster)
    llama.replay(cluster, points)
    chat.create(cluster, points)
    trial.create(cluster)
    spot.create(cluster)
