"""`make demo`: a local cluster, the chart, the first example trained on it, and how its loss fell."""

from __future__ import annotations

import json
import re
import time

import yaml

from convoy_workloads.plot import curve
from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.install import bring_up

NAME = "demo"
NODES = 3
EXAMPLE = files.CHECKOUT / "examples" / "gpt.yaml"
JOB = "demo"
SECONDS = 600.0
LINE = re.compile(r"step (\d+)/\d+\s+loss ([0-9.]+)")


def main() -> None:
    """Sets everything up, trains, shows the curve; the cluster stays up. SystemExit 1 when the job fails."""
    progress = Progress()
    try:
        cluster = bring_up(NAME, NODES, progress)
        cluster.kubectl("delete", "trainingjob", JOB, "--ignore-not-found", "--timeout=60s", deadline=90)
        manifest = yaml.safe_load(EXAMPLE.read_text())
        manifest["metadata"]["name"] = JOB
        cluster.kubectl("apply", "-f", "-", text=json.dumps(manifest))
        progress.say(f"training {EXAMPLE.relative_to(files.CHECKOUT)} on {NODES} nodes")
        phase = watch(cluster, progress)
    except ClusterError as error:
        raise SystemExit(f"demo: {error}") from error
    log = cluster.kubectl("logs", f"{JOB}-worker-0", "--tail=-1")
    points = [(int(step), float(loss)) for step, loss in LINE.findall(log)]
    print(cluster.kubectl("get", "trainingjob", JOB, "-o", "wide"))
    print("\n".join(line.partition("] ")[2] for line in log.splitlines() if "---" in line or "] def" in line))
    print(curve(points, title="loss by step"))
    programs = f"{files.CHECKOUT}/.venv/bin:{cluster.binaries}"
    print("\nThe cluster is up. To look around:")
    print(f"  export KUBECONFIG={cluster.kubeconfig} PATH={programs}:$PATH")
    print(f"  kubectl get convoy -A; convoy why {JOB}")
    print("To take it down: make clean")
    if phase != "Succeeded":
        raise SystemExit(f"the job is {phase}: convoy why {JOB}")


def watch(cluster: Cluster, progress: Progress) -> str:
    """Says how the job does, whenever that changes, until it has ended; its last phase."""
    deadline = time.monotonic() + SECONDS
    said = ""
    while time.monotonic() < deadline:
        status = json.loads(cluster.kubectl("get", "trainingjob", JOB, "-o", "json")).get("status") or {}
        step = status.get("progress") or {}
        words = [
            str(status.get("phase", "Pending")),
            status.get("reason", ""),
            f"{status.get('ready', '0')} ready",
        ]
        if step:
            words.append(
                f"step {step['step']}/{step.get('totalSteps', '?')} loss {step.get('loss', float('nan')):.3f}"
            )
        if (line := "  ".join(words)) != said:
            progress.say(f"  {line}")
            said = line
        if status.get("phase") in ("Succeeded", "Failed"):
            return str(status["phase"])
        time.sleep(0.5)
    raise ClusterError(f"the job did not end within {SECONDS:.0f} s; see kubectl describe trainingjob {JOB}")


if __name__ == "__main__":
    main()
