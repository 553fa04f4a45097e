"""The nodes of an invented cluster, with their health, their policies and their stores."""

from __future__ import annotations

import random
from typing import Any

from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.times import at

HARDWARE = [f"{number:02d}a8c6ac50a05def02f538c19c7823" for number in range(10)]


def condition(kind: str, status: str, reason: str, message: str = "", **ago: float) -> dict[str, Any]:
    """Return a condition."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(**(ago or {"hours": 3})),
    }


SLOW_MINUTES = 13.0
"""Minutes for which node-06 has been slow."""
COST = 1060
"""GPU-seconds that the job on node-06 has lost: its 8 ranks lose 17 % of their time."""
STATES = ("Qualified", "Qualified", "Qualified", "Quarantined", "Qualified", "Suspect", "Sweeping",
          "Repairing", "Probation", "Unverified")  # fmt: skip
TEXTS = {
    "Quarantined": "the node is out of service: the node failed HealthSweep sweep-71: gemm-bf16 is 31 % "
    "below its class",
    "Suspect": "the node takes 1.23 times as long as its peers (Thermal) in job default/llama-8b since "
    f"{at(minutes=SLOW_MINUTES)}; cost so far: {COST} GPU-seconds",
    "Sweeping": "HealthSweep sweep-74 is running",
    "Repairing": "waiting for manual to do repair step 1: Reboot",
    "Probation": f"the node is in service again, and under observation until {at(hours=-22)}",
    "Unverified": "the node is in service without a passed sweep, because its GuardPolicy has onJoin: Accept",
    "Qualified": "the node passed HealthSweep sweep-70",
}
SINCE = {"Quarantined": 4.0, "Suspect": (SLOW_MINUTES - 2) / 60, "Sweeping": 0.2, "Repairing": 8.0,
         "Probation": 2.0, "Unverified": 10.0, "Qualified": 48.0}  # fmt: skip
"""Hours that a node has been in each state."""


def nodes(cluster: Cluster) -> None:
    """Create ten nodes in two racks with their NodeHealths."""
    for number, state in enumerate(STATES):
        name = f"node-{number + 1:02d}"
        labels = {} if state == "Repairing" else {"convoy.dev/agent-ready": "true"}
        cluster.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        ready = "False" if state == "Repairing" else "True"
        status = {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(hours=9)}]}
        path = f"/api/v1/nodes/{name}/status"
        cluster.plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")
        body: dict[str, Any] = {
            "kind": "NodeHealth",
            "metadata": {"name": HARDWARE[number]},
            "spec": {},
            "status": {
                "state": state, "since": at(hours=SINCE[state]), "message": TEXTS[state],
                "policy": "default",
                "nodeRef": {"name": name, "rack": f"r{number % 2 + 1}", "driver": "570.124.06"},
                "qualifiedUntil": at(days=-9), "swept": at(days=2), "conditions": [],
            },
        }  # fmt: skip
        if state == "Suspect":
            body["status"] |= _suspected(name)
        if state == "Repairing":
            body["status"]["repair"] = {
                "step": 0,
                "action": "Reboot",
                "owner": "manual",
                "since": at(hours=1),
            }
        cluster.make("nodehealths", body)


def _suspected(name: str) -> dict[str, Any]:
    turns = (
        ("Unverified", "Sweeping", "UnderTest", "HealthSweep sweep-64 is running", 48.3),
        ("Sweeping", "Qualified", "SweepPassed", "the node passed HealthSweep sweep-64", 48),
        ("Qualified", "Suspect", "SlowerThanPeers", TEXTS["Suspect"], SINCE["Suspect"]),
    )
    return {
        "evidence": [
            {"kind": "Online", "source": "default/llama-8b", "cause": "Thermal",
             "since": at(minutes=SLOW_MINUTES - 1), "seen": at(minutes=1), "loss": COST,
             "slowdown": 1.23, "message": "rank 5, clocks at 1.2 GHz"}
        ],
        "history": [
            {"at": at(hours=hours), "before": before, "after": after, "reason": reason, "message": message,
             "node": name}
            for before, after, reason, message, hours in turns
        ],
    }  # fmt: skip


METRICS = (
    ("gemm-bf16", "TFLOP/s", True, 742.0),
    ("hbm-copy", "GB/s", True, 3010.0),
    ("pcie-h2d", "GB/s", True, 54.0),
    ("nvlink-pair", "GB/s", True, 371.0),
    ("disk-read", "MB/s", True, 6200.0),
    ("host-jitter", "us", False, 31.0),
)


def hardware(cluster: Cluster) -> None:
    """Create the hardware class of the ten nodes, and two health sweeps."""
    rng = random.Random(7)
    metrics = []
    for name, unit, higher, middle in METRICS:
        rows = []
        for number, one in enumerate(HARDWARE):
            for accelerator in range(4 if name in ("gemm-bf16", "hbm-copy") else 1):
                factor = rng.gauss(1.0, 0.012)
                if number == 5 and name in ("gemm-bf16", "host-jitter"):
                    factor *= 0.87 if higher else 1.22
                levels = [round(middle * factor * share, 3) for share in (0.99, 1.0, 1.01)]
                suffix = f"/{accelerator}" if name in ("gemm-bf16", "hbm-copy") else ""
                rows.append({"name": one + suffix, "at": at(days=2), "levels": levels})
        metrics.append(
            {
                "name": name,
                "unit": unit,
                "higherIsBetter": higher,
                "median": middle,
                "reference": [],
                "recent": rows,
            }
        )
    cluster.make(
        "hardwareclasses",
        {"kind": "HardwareClass", "metadata": {"name": "h100-sxm-8"}, "spec": {},
         "status": {"nodes": 10, "metrics": metrics}},
    )  # fmt: skip
    for name, verdict, hours in (("sweep-64", "Pass", 48), ("sweep-75", None, 0.1)):
        one = {
            "node": "node-06",
            "hardware": HARDWARE[5],
            "tier": "L1",
            "message": "waits until its jobs have left it",
        }
        if verdict:
            one |= {"verdict": verdict, "at": at(hours=hours), "message": "all tests passed"}
        cluster.make(
            "healthsweeps",
            {"kind": "HealthSweep", "metadata": {"name": name}, "spec": {"nodes": ["node-06"]},
             "status": {"phase": "Complete" if verdict else "Running", "startTime": at(hours=hours + 0.2),
                        "nodes": [one]}},
        )  # fmt: skip


def policies(cluster: Cluster) -> None:
    """Create a policy with an open breaker, and a store that is not ready."""
    cluster.make(
        "guardpolicies",
        {"kind": "GuardPolicy", "metadata": {"name": "default"}, "spec": {"mode": "Act"},
         "status": {"nodes": 10, "breaker": {
             "state": "Open", "since": at(minutes=18), "reason": "CommonMode",
             "message": "3 of 4 confirmed nodes share rack 'r2': "
                        "the shared rack is a likelier cause than the nodes"}}},
    )  # fmt: skip
    cluster.make(
        "checkpointstores",
        {"kind": "CheckpointStore", "metadata": {"name": "s3-main"},
         "spec": {"s3": {"endpoint": "https://s3.example.com", "bucket": "runs", "region": "eu",
                         "credentialsSecret": "s3-main"}, "allowedNamespaces": ["*"]},
         "status": {"conditions": [condition(
             "Ready", "False", "StoreUnreachable",
             "the agent of node node-04 could not use the store: 503 Slow Down; the agent tries again",
             minutes=5)]}},
    )  # fmt: skip
