"""`make demo`: creates a local cluster with the chart and the dashboard, and trains the first example on
it.
"""

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
"""Name of the service account with which a viewer logs in to the dashboard."""
EXAMPLE = files.CHECKOUT / "examples" / "gpt.yaml"
STILL_SECONDS = 180.0
"""Maximum seconds without a new step. After that the demo fails."""
LINE = re.compile(r"step (\d+)/\d+\s+loss ([0-9.]+)")


def main() -> None:
    """Create the cluster, train, and print the loss curve. Exit with 1 on failure. The cluster is not
    deleted.
    """
    progress = Progress()
    job = yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"]
    cluster = Cluster(NAME, progress=progress)
    try:
        bring_up(NAME, NODES, progress)
        pages = dashboard(cluster)
        print(usage_hints(cluster, job) + pages, flush=True)
        cluster.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found", "--timeout=60s", deadline=90)
        cluster.kubectl("apply", "-f", str(EXAMPLE))
        progress.report(f"train {EXAMPLE.relative_to(files.CHECKOUT)} on {NODES} nodes")
        phase = wait_for_end(cluster, job, progress)
        report(cluster, job)
    except ClusterError as error:
        raise SystemExit(f"demo: {error}\n{usage_hints(cluster, job) if cluster.exists else ''}") from error
    print(usage_hints(cluster, job) + pages)
    if phase != "Succeeded":
        raise SystemExit(f"the job is {phase}; run: convoy why {job}")


def dashboard(cluster: Cluster) -> str:
    """Install the dashboard and a service account that may see everything on it. Return instructions to
    open it.
    """
    cluster.progress.report("installing the dashboard")
    values = ("--reset-then-reuse-values", "--set=dashboard.enabled=true")
    helm(cluster, "upgrade", "convoy", str(CHART), *values, "--wait", "--timeout=180s")
    cluster.kubectl("apply", "-f", "-", text=json.dumps(reader()))
    service = cluster.kubectl("-n", NAMESPACE, "get", "service", "convoy-dashboard", "-o", "json")
    return (
        f"Dashboard, in a browser on this machine: http://{json.loads(service)['spec']['clusterIP']}\n"
        f"  kubectl -n {NAMESPACE} create token {READER}    # prints a token for the login\n"
    )


def reader() -> dict[str, Any]:
    """Return a service account that has Kubernetes' role `view`, as a List for `kubectl apply`."""
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


def usage_hints(cluster: Cluster, job: str) -> str:
    """Return instructions to inspect the cluster and to delete it."""
    programs = f"{files.CHECKOUT}/.venv/bin:{cluster.binaries}"
    return (
        "\nThe cluster is up. To delete it: make clean. To inspect it, run in a shell:\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={programs}:$PATH\n"
        f"  kubectl get convoy -A; convoy why {job}\n"
    )


def report(cluster: Cluster, job: str) -> None:
    """Print the job's status, the text that the job's model wrote, and the loss curve."""
    log = cluster.kubectl("logs", f"{job}-worker-0", "--tail=-1")
    points = [(int(step), float(loss)) for step, loss in LINE.findall(log)]
    print(cluster.kubectl("get", "trainingjob", job, "-o", "wide"))
    print("\n".join(line.partition("] ")[2] for line in log.splitlines() if "---" in line or "] def" in line))
    print(curve(points, title="loss by step"))


@dataclass
class StallTimer:
    """A timeout that starts again at each new step."""

    until: float
    best: int = -1

    def step(self, step: int, now: float) -> None:
        """Record the job's step. A higher step than before extends the timeout."""
        if step > self.best:
            self.best, self.until = step, now + STILL_SECONDS


def wait_for_end(cluster: Cluster, job: str, progress: Progress) -> str:
    """Print the job's status line whenever it changes, until the job ends. Return the job's phase.

    Raises ClusterError after STILL_SECONDS without a new step.
    """
    timer = StallTimer(time.monotonic() + STILL_SECONDS)
    reported = ""
    while time.monotonic() < timer.until:
        status = json.loads(cluster.kubectl("get", "trainingjob", job, "-o", "json")).get("status") or {}
        if (line := status_line(status)) != reported:
            progress.report(f"  {line}")
            reported = line
        if status.get("phase") in ("Succeeded", "Failed"):
            return str(status["phase"])
        if "progress" in status:
            timer.step(status["progress"]["step"], time.monotonic())
        time.sleep(0.5)
    raise ClusterError(f"the job has made no step for {STILL_SECONDS:.0f} s; run: convoy why {job}")


def status_line(status: Mapping[str, Any]) -> str:
    """Return a job's status as one line."""
    found = [status.get("phase", "Pending"), status.get("reason", ""), f"{status.get('ready', '0')} ready"]
    if step := status.get("progress"):
        loss = step.get("loss", float("nan"))
        found.append(f"step {step['step']}/{step.get('totalSteps', '?')} loss {loss:.3f}")
    return "  ".join(found)


if __name__ == "__main__":
    main()
