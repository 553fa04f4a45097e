"""`make demo`: creates a local cluster with the chart and the dashboard, and trains a job on it. The demo
kills a rank, then a node under the job, and prints what happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml

from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import timeline
from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.demo.login import dashboard_hints
from e2e.demo.story import SurvivedFault, faults_table, loss_curve, losses, timeline_text
from e2e.drive.cluster_state import leader, restore
from e2e.drive.fault_injection import JobUnderTest
from e2e.drive.job_watch import JobWatch
from e2e.drive.jobs import Jobs
from e2e.drive.recovery import Recovery
from e2e.install import bring_up

NAME = "demo"
NODES = 3
EXAMPLE = files.CHECKOUT / "examples" / "demo.yaml"
STILL_SECONDS = 120.0
"""Maximum seconds without a new step. After that the demo fails."""
RECOVERY_SECONDS = 90.0
"""Maximum seconds from a fault until the next step. After that the demo fails."""
ENDED = ("Succeeded", "Failed")
"""Phases of a job that makes no more steps."""
NOT_ON_GPUS = (
    "All of this ran on CPUs (gloo, PyTorch for CPUs). Convoy has not been tried on a cluster with GPUs."
)


def main() -> None:
    """Create the cluster, train, inject the faults, and print the result. Exit with 1 on failure. The
    cluster is not deleted.
    """
    progress = Progress()
    job = str(yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"])
    cluster = Cluster(NAME, progress=progress)
    try:
        bring_up(NAME, NODES, progress)
        hints = usage_hints(cluster, job) + dashboard_hints(cluster)
        print(hints, flush=True)
        phase = play(cluster, job, progress)
    except (ClusterError, AssertionError) as error:
        raise SystemExit(f"demo: {error}\n{next_steps(cluster, job)}") from error
    except KeyboardInterrupt:
        raise SystemExit(f"\ndemo: interrupted\n{next_steps(cluster, job)}") from None
    print(f"{hints}\n{NOT_ON_GPUS}")
    if phase != "Succeeded":
        raise SystemExit(f"the job is {phase}; run: convoy why {job}")


def next_steps(cluster: Cluster, job: str) -> str:
    """Return instructions after a failure. Nodes may be down, and the cluster may be incomplete or absent."""
    try:
        state = cluster.file.load()
    except ClusterError:
        return ""  # An older checkout made the cluster. The failure that is reported says so.
    if state is None:
        return ""
    if state.phase != "up":
        return "\nThe cluster is incomplete. To delete it: make clean. To create it again: make demo.\n"
    down = [node.name for node in cluster.nodes if not node.alive]
    if not down:
        return usage_hints(cluster, job)
    again = "Another make demo deletes this cluster with everything on it, and creates a new one."
    return f"\nThese nodes are down: {', '.join(down)}. {again}\n{usage_hints(cluster, job)}"


def usage_hints(cluster: Cluster, job: str) -> str:
    """Return instructions to inspect the cluster and to delete it."""
    programs = f"{files.CHECKOUT}/.venv/bin:{cluster.binaries}"
    return (
        "\nThe cluster is up. To delete it: make clean. To inspect it, run in a shell:\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={programs}:$PATH\n"
        f"  kubectl get convoy -A; convoy why {job}\n"
        "Next: docs/tutorials/index.md\n"
    )


def play(cluster: Cluster, name: str, progress: Progress) -> str:
    """Train the example, kill a rank and a node, and print the result. Return the job's phase at its end."""
    restore(cluster)
    cluster.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found", "--timeout=60s", deadline=90)
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    progress.report(f"training {EXAMPLE.relative_to(files.CHECKOUT)} on {NODES} nodes")
    jobs = Jobs.of(cluster, "default")
    with JobWatch(jobs, name) as watch:
        injector = Injector(JobUnderTest(cluster, jobs, name, watch), progress)
        faults = [injector.kill_rank(), injector.kill_node()]
        progress.report("starting the dead node again")
        restore(cluster)
        phase = wait_for_end(watch, progress)
    injector.keep_log()
    _print(injector.job, faults, injector.logs)
    return phase


@dataclass
class Injector:
    """Injects the faults into a job. It keeps the logs of rank 0, because they die with the node."""

    job: JobUnderTest
    progress: Progress
    logs: list[str] = field(default_factory=list)

    def keep_log(self) -> None:
        """Keep the present log of rank 0's pod."""
        self.logs.append(self.job.jobs.log(self.job.pods[0].metadata.name))

    def kill_rank(self) -> SurvivedFault:
        """Kill rank 1."""
        return self._inject("kill -9 of rank 1", "in its pod", self.job.kill_rank)

    def kill_node(self) -> SurvivedFault:
        """Kill the node of a worker. If possible, spare the node of the leading operator."""
        leading = leader(self.job.cluster)[1]
        index = next((i for i, pod in enumerate(self.job.pods) if pod.spec.node_name != leading), 0)
        node = self.job.pods[index].spec.node_name
        kill = partial(self.job.kill_node, index, RECOVERY_SECONDS)
        return self._inject(f"kill -9 of {node}", "with everything on it", kill)

    def _inject(self, title: str, detail: str, fault: Callable[[], Recovery]) -> SurvivedFault:
        """Wait until the job has a checkpoint on two nodes from this incarnation, inject the fault, and wait
        until the job makes steps again.
        """
        watch = self.job.watch

        def saved() -> bool:
            if (phase := watch.status.get("phase")) in ENDED:
                raise ClusterError(
                    f"the job is {phase} before this fault: {title}; "
                    f"if it trains too fast, raise steps in {EXAMPLE.relative_to(files.CHECKOUT)}"
                )
            mark = ((watch.status.get("checkpoint") or {}).get("watermarks") or {}).get("peer") or {}
            return bool(
                mark.get("incarnation") == watch.status.get("incarnation") and _stepping(watch.status)
            )

        watch.until(saved, STILL_SECONDS, "the job has a checkpoint in the memory of two nodes")
        self.keep_log()
        step = watch.status["progress"]["step"]
        self.progress.report(f"  {status_line(watch.status)}")
        self.progress.report(f"{title}, {detail}")
        recovery = fault()
        restored = self.job.restored[watch.status["incarnation"]].step
        reached = max(step, *(_step(one.body) for one in watch.job if one.at <= recovery.fault_at))
        survived = SurvivedFault(
            title=title,
            reason=recovery.reason,
            last_step=reached,
            restored_step=restored,
            replaced_pods=recovery.replaced,
            noticed=recovery.decided,
            next_step=recovery.stepped,
        )
        self.progress.report(
            f"  next step {survived.next_step:.1f} s after the fault, {survived.steps_lost} steps lost"
        )
        return survived


def _stepping(status: Mapping[str, Any]) -> bool:
    return bool(status.get("progress")) and status.get("phase") == "Running"


def _step(body: Mapping[str, Any]) -> int:
    return int(((body.get("status") or {}).get("progress") or {}).get("step", 0))


def _print(job: JobUnderTest, faults: list[SurvivedFault], logs: list[str]) -> None:
    """Print the faults, the job's timeline, its loss curve, its status and the text that it wrote."""
    found = TrainingJob.model_validate(job.jobs.get(job.name))
    events = job.jobs.core.list_namespaced_event(
        job.jobs.namespace, field_selector=f"involvedObject.uid={found.metadata.uid}"
    )
    raw = job.jobs.core.api_client.sanitize_for_serialization(events)["items"]
    start = found.metadata.creation_timestamp
    assert start is not None
    print(f"\nWhat happened\n{faults_table(faults)}")
    print(
        f"\nTimeline, by time since the job was created\n{timeline_text(timeline.entries(found, raw), start)}"
    )
    print(f"\n{loss_curve(losses(logs), faults)}\n")
    print(job.cluster.kubectl("get", "trainingjob", job.name, "-o", "wide"))


@dataclass
class StallTimer:
    """A timeout that starts again at each new step."""

    until: float
    best: int = -1

    def step(self, step: int, now: float) -> None:
        """Record the job's step. A higher step than before extends the timeout."""
        if step > self.best:
            self.best, self.until = step, now + STILL_SECONDS


def wait_for_end(watch: JobWatch, progress: Progress) -> str:
    """Print the job's status line whenever it changes, until the job ends. Return the job's phase.

    Raises ClusterError after STILL_SECONDS without a new step.
    """
    timer = StallTimer(time.monotonic() + STILL_SECONDS)
    reported = ""
    while time.monotonic() < timer.until:
        status = watch.status
        if (line := status_line(status)) != reported:
            progress.report(f"  {line}")
            reported = line
        if status.get("phase") in ENDED:
            return str(status["phase"])
        if status.get("progress"):
            timer.step(status["progress"]["step"], time.monotonic())
        time.sleep(1.0)
    raise ClusterError(f"the job has made no step for {STILL_SECONDS:.0f} s; run: convoy why {watch.name}")


def status_line(status: Mapping[str, Any]) -> str:
    """Return a job's status as one line."""
    found = [status.get("phase", "Pending"), status.get("reason", ""), f"{status.get('ready', '0')} ready"]
    if step := status.get("progress"):
        loss = step.get("loss", float("nan"))
        found.append(f"step {step['step']}/{step.get('totalSteps', '?')} loss {loss:.3f}")
    return "  ".join(found)


if __name__ == "__main__":
    main()
