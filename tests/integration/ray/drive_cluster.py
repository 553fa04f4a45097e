"""The driver of test_cluster.py. It runs beside the head, and prints what it has seen as lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import convoy
from convoy_workloads.ray_cluster import notice, private, token
from convoy_workloads.ray_cluster.head import Head, WorkerNode
from convoy_workloads.ray_cluster.outcomes import Lost, Unavailable, Value, outcome


class Part:
    def address(self) -> str:
        import ray

        return str(ray.util.get_node_ip_address())

    def uid(self) -> int:
        return os.getuid()

    def notice(self) -> float | None:
        return notice.deadline()

    def notice_of_the_node(self) -> convoy.Notice | None:
        return convoy.notice()

    def big(self) -> Any:
        import numpy as np
        import ray

        return ray.put(np.ones(300_000))

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "awake"


def on(node: WorkerNode) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node.id, soft=False)
    return ray.remote(num_cpus=1, scheduling_strategy=place)(Part).remote()


def emit(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def wait_for_line() -> dict[str, Any]:
    """Return the next line of the test."""
    found: dict[str, Any] = json.loads(sys.stdin.readline())
    return found


def seconds_until(check: Any, limit: float) -> float:
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > limit:
            return float("inf")
        time.sleep(0.02)
    return time.monotonic() - began


def drain_as_another_program(head: Head, node: WorkerNode, deadline: float) -> bool:
    """Drain a node as an autoscaler of Ray does it."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    client = GcsClient(address=head.settings.gcs)
    accepted, _ = client.drain_node(node.id, reason, "preempted", int(deadline * 1000), timeout=30)
    return bool(accepted)


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    reports: list[tuple[str, float]] = []

    def report(node: str, seconds: float) -> None:
        reports.append((node, time.time() + seconds))

    with Head(address, folder, token.job_key(), report_notice=report) as head:
        emit(head=True)
        assert seconds_until(lambda: len(head.worker_nodes()) == 3, 300) < 300
        first, second, third = head.worker_nodes()
        actors = {node.address: on(node) for node in (first, second, third)}
        emit(
            addresses=[outcome(one.address.remote(), 120).value for one in actors.values()],  # type: ignore[union-attr]
            uids=[outcome(one.uid.remote(), 120).value for one in actors.values()],  # type: ignore[union-attr]
        )
        # A killed node: the call in flight and the object on it are lost, and say so within seconds.
        doomed, calm = actors[second.address], actors[first.address]
        held = outcome(doomed.big.remote(), 60)
        assert isinstance(held, Value)
        flight = doomed.sleep.remote(60)
        emit(kill=second.address)
        wait_for_line()
        began = time.monotonic()
        seen = [type(outcome(flight, 60)).__name__]
        while seen[-1] == Unavailable.__name__ and time.monotonic() - began < 60:
            seen.append(type(outcome(doomed.address.remote(), 30)).__name__)
        late = outcome(held.value, 30)
        emit(lost=seen[-1] == Lost.__name__, seconds=time.monotonic() - began, object=type(late).__name__)
        assert isinstance(outcome(calm.address.remote(), 60), Value)
        # Another program drains a node: the job's SpotPool learns of it. An actor sees its node's notice.
        deadline = time.time() + 500
        accepted = drain_as_another_program(head, third, deadline)
        reported = seconds_until(lambda: reports, 60)
        emit(drain=third.address, accepted=accepted, reported=reported)
        wait_for_line()
        found = outcome(actors[third.address].notice_of_the_node.remote(), 60)
        assert isinstance(found, Value)
        none = outcome(calm.notice_of_the_node.remote(), 60)
        emit(
            reports=[(node, abs(at - deadline) < 2) for node, at in reports],
            notice=found.value and found.value.kind,
            none=none == Value(None),
            kill=third.address,
        )
        wait_for_line()
        # SIGTERM of the worker's program: actors see the notice, and the driver sees the draining node.
        emit(terminate=first.address)
        wait_for_line()
        draining = seconds_until(lambda: first.id in head.draining(), 60)
        foreign = [one.node_id for one in private.ForeignDrains(head.settings.gcs).poll()]
        seen_notice = outcome(calm.notice.remote(), 60)
        import ray

        ray.kill(calm)
        gone = seconds_until(lambda: not head.worker_nodes(), 60)
        emit(
            draining=draining,
            notice=isinstance(seen_notice, Value) and seen_notice.value,
            gone=gone,
            foreign=first.id in foreign,
            reported=[node for node, _ in reports],
        )
    emit(stopped=not head.running())


if __name__ == "__main__":
    signal.alarm(800)
    main()
