"""The history of an invented job, llama-8b. All values on its page are computed from the step at each time.

The job lost a node, and later a rank. At the end a slow rank delays the others. Times are in minutes before
now.
"""

from __future__ import annotations

import math
import random
from typing import Any

from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import SLOW_MINUTES, condition
from tests.integration.dashboard.times import at

NAME, TOTAL, RANKS = "llama-8b", 60_000, 8
PATH = f"/apis/convoy.dev/v1alpha1/namespaces/default/trainingjobs/{NAME}"
STEP_SECONDS, SLOW_SECONDS = 0.865, 1.042
"""Seconds of a normal step, and of a step in which the other ranks wait for the slow rank."""
BATCH = 1600
"""Number of samples per step."""
MADE, LOST, KILLED = 283.0, 160.0, 47.0
STARTS = ((279.0, 0), (158.5, 8_192), (46.2, 15_878))
"""Start time in minutes and first step of each incarnation."""
WATCHED = 60.0
"""Minutes since the dashboard started to watch the job."""
LOST_MESSAGE = (
    f"node node-09 and its pod {NAME}-worker-3 are lost: its agent and its kubelet are silent; "
    "Convoy restarts the pod on another node"
)
KILLED_MESSAGE = (
    "rank 2 on node node-02 was killed by signal 9, by hand or by the node's out-of-memory killer"
)


def step(minutes: float) -> int:
    """Return the step that the job had reached `minutes` ago."""
    end = LOST if minutes > STARTS[1][0] else KILLED if minutes > STARTS[2][0] else 0.0
    start, first = next(one for one in reversed(STARTS) if one[0] >= minutes)
    minutes = max(minutes, end)
    slow = max(0.0, SLOW_MINUTES - minutes)
    return first + int(60 * ((start - minutes - slow) / STEP_SECONDS + slow / SLOW_SECONDS))


SLOW = (
    f"the other ranks wait for rank 5 on node-06 (Thermal): 23% slower than the peers since step "
    f"{step(SLOW_MINUTES)}, persistent; run: convoy why {NAME}"
)


def losses(reached: int) -> dict[str, Any]:
    """Return the loss and the metrics of `status.progress` when the job had reached this step."""
    fall = math.exp(-reached / 9000)
    return {"loss": round(2.1 + 5.2 * fall, 4), "metrics": [
        {"name": "held_out_loss", "value": round(2.3 + 5.1 * fall, 4), "step": reached // 500 * 500},
        {"name": "padding_ratio", "value": 0.118, "step": reached},
    ]}  # fmt: skip


def progress(minutes: float, noise: float = 0.0) -> dict[str, Any]:
    """Return `status.progress` as it was `minutes` ago."""
    seconds = SLOW_SECONDS if minutes < SLOW_MINUTES else STEP_SECONDS
    reached = step(minutes)
    reported = losses(reached)
    return {
        **reported,
        "loss": round(reported["loss"] + 0.03 * noise, 4),
        "step": reached,
        "totalSteps": TOTAL,
        "percent": 100 * reached // TOTAL,
        "samplesPerSecond": round(BATCH / seconds + 12 * noise, 1),
        "etaAt": at(seconds=60 * minutes - (TOTAL - reached) * seconds),
        "time": at(minutes=minutes),
    }


def checkpoint(incarnation: int, minutes: float) -> dict[str, Any]:
    """Return `status.checkpoint` after a checkpoint of this incarnation `minutes` ago."""

    def mark(back: float) -> dict[str, Any]:
        when = minutes + back
        return {"incarnation": incarnation, "step": step(when), "time": at(minutes=when)}

    return {
        **mark(0),
        "tier": "peer",
        "watermarks": {"local": mark(0), "peer": mark(0), "remote": mark(8)},
        "interval": {"seconds": 95, "reason": "a checkpoint costs 0.4 s and the job fails every 3.1 h"},
    }


def spent() -> dict[str, Any]:
    """Return `status.goodput` for the whole life of the job."""
    waited = 60 * SLOW_MINUTES * (1 - STEP_SECONDS / SLOW_SECONDS)
    other = {
        "queue": 140, "schedule": 65, "start": 35, "detect": 5, "restart": 133, "recompute": 95,
        "checkpoint": 70, "straggler": round(waited),
    }  # fmt: skip
    # The ledger was written 2 minutes ago, so it does not contain the productive time since.
    productive = 60 * (MADE - 2) - sum(other.values())
    return {
        "ratio": round(productive / (60 * MADE), 3),
        "seconds": {"productive": productive, **other},
        "cause": "productive",
        "since": at(minutes=2),
    }


def engine(cluster: Cluster) -> None:
    """Create the job's Engine, which declares two metrics."""
    declared = [
        {
            "name": "held_out_loss",
            "unit": "nats",
            "help": "Mean loss a token on files that are not trained on.",
        },
        {"name": "padding_ratio", "unit": "ratio", "help": "Share of the tokens that are padding."},
    ]
    spec = {"image": "i", "command": ["true"], "metrics": declared}
    cluster.make("engines", {"kind": "Engine", "metadata": {"name": "llama"}, "spec": spec})


def create_job(cluster: Cluster, body: dict[str, Any]) -> None:
    """Create the job in its state at the time when the dashboard started. `body` is the job without a
    status.
    """
    last = {
        "reason": "NodeLost", "message": LOST_MESSAGE, "node": "node-09", "pod": f"{NAME}-worker-3",
        "step": step(LOST), "scope": "Pod", "counted": False, "at": at(minutes=LOST),
    }  # fmt: skip
    status = {
        "phase": "Running", "reason": "Training", "message": f"incarnation 2: {RANKS} ranks run",
        "ready": "4/4", "incarnation": 2, "progress": progress(WATCHED),
        "checkpoint": checkpoint(2, WATCHED + 1), "restarts": {"total": 1, "last": last}, "goodput": spent(),
    }  # fmt: skip
    cluster.make("trainingjobs", {**body, "status": status})


def replay(cluster: Cluster, points: int) -> None:
    """Write the later history of the job in `points` status updates."""
    rng = random.Random(3)
    restarted = False
    for number in range(1, points + 1):
        minutes = WATCHED * (points - number) / points
        reported: dict[str, Any] = {"progress": progress(minutes, rng.gauss(0, 1))}
        if minutes < STARTS[2][0] and not restarted:
            restarted = True
            reported |= _killed()
        cluster.status("trainingjobs", NAME, reported, "default")
    cluster.status("trainingjobs", NAME, _slowed(), "default")
    _events(cluster)


def _killed() -> dict[str, Any]:
    last = {
        "reason": "RankKilled", "message": KILLED_MESSAGE, "rank": 2, "node": "node-02", "pod": None,
        "step": step(KILLED), "scope": "Process", "counted": True, "at": at(minutes=KILLED),
    }  # fmt: skip
    return {
        "incarnation": 3, "message": f"incarnation 3: {RANKS} ranks run",
        "restarts": {"total": 2, "counted": 1, "last": last},
        "internal": {"restarts": {"times": [at(minutes=KILLED)]}},
    }  # fmt: skip


def _slowed() -> dict[str, Any]:
    found, runs = SLOW_MINUTES - 1, f"incarnation 3: {RANKS} ranks run"
    return {
        "reason": "Straggler",
        "message": SLOW,
        "checkpoint": checkpoint(3, 1),
        "conditions": [
            condition("Valid", "True", "Accepted", "the spec is valid", minutes=MADE),
            condition("Scheduled", "True", "AllScheduled", "all 4 pods are scheduled", minutes=STARTS[1][0]),
            condition("Running", "True", "Training", runs, minutes=STARTS[2][0]),
            condition("Checkpointing", "True", "Saving", "saving every 95 s to: local, peer"),
            condition("StragglerDetected", "True", "Straggler", SLOW, minutes=found),
        ],
        "stragglers": [
            {"cause": "Thermal", "place": "rank", "ranks": [5], "nodes": ["node-06"],
             "sinceStep": step(SLOW_MINUTES), "slowdown": 0.23, "persistent": True,
             "lost": round(1 - STEP_SECONDS / SLOW_SECONDS, 2)},
            {"cause": "CommonMode", "place": "job", "sinceStep": step(3), "slowdown": 0.03},
        ],
    }  # fmt: skip


def pods(cluster: Cluster) -> None:
    """Create the job's pods."""
    owner = cluster.plane.request("GET", PATH)
    for number, node in enumerate(("node-01", "node-02", "node-06", "node-05")):
        name = f"{NAME}-worker-{number}"
        cluster.plane.request(
            "POST",
            "/api/v1/namespaces/default/pods",
            {
                "metadata": {
                    "name": name,
                    "labels": {"convoy.dev/job": NAME},
                    "ownerReferences": [
                        {"apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "name": NAME,
                         "uid": owner["metadata"]["uid"], "controller": True}
                    ],
                },
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "mesh-proxy", "image": "i"}, {"name": "worker", "image": "i"}],
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


def _events(cluster: Cluster) -> None:
    """Create the Events of the last hour, because the API server keeps no older ones."""
    job = cluster.plane.request("GET", PATH)
    reported = (
        ("Warning", "RankKilled", KILLED_MESSAGE, KILLED),
        ("Normal", "FormingProcessGroup", f"incarnation 3: starting {RANKS} ranks", KILLED - 0.1),
        ("Normal", "Training", f"incarnation 3: {RANKS} ranks run", STARTS[2][0]),
        ("Warning", "Straggler", SLOW, SLOW_MINUTES - 1),
    )
    for number, (kind, reason, message, minutes) in enumerate(reported):
        cluster.plane.request(
            "POST",
            "/api/v1/namespaces/default/events",
            {
                "metadata": {"name": f"{NAME}.{number}.{job['metadata']['uid']}"},
                "involvedObject": {
                    "apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "name": NAME,
                    "namespace": "default", "uid": job["metadata"]["uid"],
                },
                "type": kind, "reason": reason, "message": message, "count": 1,
                "firstTimestamp": at(minutes=minutes), "lastTimestamp": at(minutes=minutes),
                "source": {"component": "convoy-operator"},
            },
        )  # fmt: skip
