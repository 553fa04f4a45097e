"""`make demo`: a local cluster, the chart, its dashboard, the first example trained, how its loss fell."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from convoy_workloads.plot import curve
from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.install import CHART, NAMESPACE, bring_up, helm

NAME = "demo"
NODES = 3
READER = "reader"
"""Service account to log in to the dashboard with."""
EXAMPLE = files.CHECKOUT / "examples" / "gpt.yaml"
STILL_SECONDS = 180.0
"""The job is given up when it makes no step for this long."""
LINE = re.compile(r"step (\d+)/\d+\s+loss ([0-9.]+)")


def main() -> None:
    """Sets everything up, trains, shows the curve; the cluster stays up. SystemExit 1 when the job fails."""
    progress = Progress()
    job = yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"]
    cluster = Cluster(NAME, progress=progress)
    try:
        bring_up(NAME, NODES, progress)
        pages = dashboard(cluster)
        print(around(cluster, job) + pages, flush=True)
        cluster.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found", "--timeout=60s", deadline=90)
        cluster.kubectl("apply", "-f", str(EXAMPLE))
        progress.report(f"training {EXAMPLE.relative_to(files.CHECKOUT)} on {NODES} nodes")
        phase = watch(cluster, job, progress)
        report(cluster, job)
    except ClusterError as error:
        raise SystemExit(f"demo: {error}\n{around(cluster, job) if cluster.exists else ''}") from error
    print(around(cluster, job) + pages)
    if phase != "Succeeded":
        raise SystemExit(f"the job is {phase}: convoy why {job}")


def dashboard(cluster: Cluster) -> str:
    """Adds the dashboard, and an account that may see all it shows; how to get there."""
    cluster.progress.report("installing the dashboard")
    values = ("--reset-then-reuse-values", "--set=dashboard.enabled=true")
    helm(cluster, "upgrade", "convoy", str(CHART), *values, "--wait", "--timeout=180s")
    cluster.kubectl("apply", "-f", "-", text=json.dumps(reader()))
    service = cluster.kubectl("-n", NAMESPACE, "get", "service", "convoy-dashboard", "-o", "json")
    return (
        f"The dashboard, in a browser on this machine: http://{json.loads(service)['spec']['clusterIP']}\n"
        f"  kubectl -n {NAMESPACE} create token {READER}    # what to log in with\n"
    )


def reader() -> dict[str, Any]:
    """A service account that may see what Kubernetes' role `view` shows, as a List for `kubectl apply`."""
    account = {
        "kind": "ServiceAccount",
        "apiVersion": "v1",
        "metadata": {"name": READER, "namespace": NAMESPACE},
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"convoy-{READER}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [account, binding]}


def around(cluster: Cluster, job: str) -> str:
    """How to look at the cluster, and how to take it down."""
    programs = f"{files.CHECKOUT}/.venv/bin:{cluster.binaries}"
    return (
        "\nThe cluster is up. To take it down: make clean. To look around, in a shell of your own:\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={programs}:$PATH\n"
        f"  kubectl get convoy -A; convoy why {job}\n"
    )


def report(cluster: Cluster, job: str) -> None:
    """The job's last line of status, what its model writes, and its loss curve."""
    log = cluster.kubectl("logs", f"{job}-worker-0", "--tail=-1")
    points = [(int(step), float(loss)) for step, loss in LINE.findall(log)]
    print(cluster.kubectl("get", "trainingjob", job, "-o", "wide"))
    print("\n".join(line.partition("] ")[2] for line in log.splitlines() if "---" in line or "] def" in line))
    print(curve(points, title="loss by step"))


@dataclass
class Patience:
    """Runs out when no further step is seen for a time."""

    until: float
    best: int = -1

    def step(self, step: int, now: float) -> None:
        """The job is at this step."""
        if step > self.best:
            self.best, self.until = step, now + STILL_SECONDS


def watch(cluster: Cluster, job: str, progress: Progress) -> str:
    """Says how the job does, whenever that changes, until it has ended; its last phase."""
    patience = Patience(time.monotonic() + STILL_SECONDS)
    said = ""
    while time.monotonic() < patience.until:
        status = json.loads(cluster.kubectl("get", "trainingjob", job, "-o", "json")).get("status") or {}
        if (line := words(status)) != said:
            progress.report(f"  {line}")
            said = line
        if status.get("phase") in ("Succeeded", "Failed"):
            return str(status["phase"])
        if "progress" in status:
            patience.step(status["progress"]["step"], time.monotonic())
        time.sleep(0.5)
    raise ClusterError(f"the job has made no step for {STILL_SECONDS:.0f} s; ask `convoy why {job}`")


def words(status: Mapping[str, Any]) -> str:
    """A job in one line."""
    found = [status.get("phase", "Pending"), status.get("reason", ""), f"{status.get('ready', '0')} ready"]
    if step := status.get("progress"):
        loss = step.get("loss", float("nan"))
        found.append(f"step {step['step']}/{step.get('totalSteps', '?')} loss {loss:.3f}")
    return "  ".join(found)


if __name__ == "__main__":
    main()
