"""The part `sweep`: one Experiment that sweeps a parameter, beside as many TrainingJobs that a loop creates.

API server, scheduler and operator are real. Kubelets and agents are simulated: pods start at once, and the
program that writes the Experiment's plan to the store takes no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from convoy_crds.experiment import KIND
from convoy_crds.meta import API_VERSION
from convoy_crds.terms import LABEL_EXPERIMENT, LABEL_JOB
from convoy_workloads.bench.comparison import median_interval
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.placement.gangs.feed import ENDED, PodFeed
from e2e.bench.rig.api import Api, ApiError, Object
from e2e.bench.rig.audit import Entry, writes
from e2e.bench.rig.jobs import ENGINE, PODS, SPACE, TRAINING_JOBS, training_job
from e2e.bench.rig.plane import OPERATOR_USER
from e2e.bench.rig.rig import Rig, running_rig
from e2e.bench.rig.rollout import running_since
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress

RUNS = 20
REPEATS = 10
NODES = 10
EXPERIMENTS = f"/apis/{API_VERSION}/namespaces/{SPACE}/experiments"
_STORES, _STORE = f"/apis/{API_VERSION}/checkpointstores", "advice"
_TITLE = f"{RUNS} runs that differ in one parameter"
_SWEEP, _LOOP, _AGAIN = "one Experiment", f"a loop of {RUNS} TrainingJobs", "the same loop again"
_LIMIT_SECONDS, _SETTLE_SECONDS, _POLL_SECONDS = 120.0, 2.0, 0.05
_NOISE = 0.25


@dataclass(frozen=True)
class Start:
    """The start of all runs in one way."""

    seconds: float
    """Seconds from the user's first request until all runs were Running."""
    user_requests: int
    """Requests by which the user creates the objects."""
    operator_requests: int
    operator_writes: int
    objects: Mapping[str, int]
    """Number of objects that exist while all runs run, by kind."""


def add(found: Figures, progress: Progress) -> None:
    """Measure the part and add its figures."""
    asyncio.run(_measure(found, progress))


async def _measure(found: Figures, progress: Progress) -> None:
    ways: dict[str, Callable[[Rig], Awaitable[None]]] = {
        _SWEEP: _create_sweep,
        _LOOP: _create_jobs,
        _AGAIN: _create_jobs,
    }
    names = list(ways)
    starts: dict[str, list[Start]] = {name: [] for name in names}
    async with (
        running_rig(NODES, progress, 0.0) as rig,
        rig.operating(0.0, long_lease=True),
        _program_of_plans(rig),
    ):
        await _create_store(rig)
        for name in names:  # The first starts fill caches.
            await _start(rig, ways[name])
        for repeat in range(REPEATS):
            first = repeat % len(names)
            for name in (*names[first:], *names[:first]):
                progress.report(f"repeat {repeat + 1}: {name}")
                starts[name].append(await _start(rig, ways[name]))
    add_rows(found, starts)


async def _start(rig: Rig, create: Callable[[Rig], Awaitable[None]]) -> Start:
    """Create the runs, wait until all run, and delete them."""
    rig.log.restart()
    await create(rig)
    if not await rig.holds_in_time(lambda: len(running_since(rig.entries)) >= RUNS, _LIMIT_SECONDS):
        raise ClusterError(f"{len(running_since(rig.entries))} of {RUNS} runs are Running")
    await asyncio.sleep(_SETTLE_SECONDS)
    collections = {"Experiment": EXPERIMENTS, "TrainingJob": TRAINING_JOBS, "Pod": PODS}
    objects = {kind: len((await rig.api.get(path))["items"]) for kind, path in collections.items()}
    found = start_of(rig.entries, objects)
    await rig.api.delete(EXPERIMENTS, propagationPolicy="Background")
    await rig.clear()
    return found


def start_of(entries: Sequence[Entry], objects: Mapping[str, int]) -> Start:
    """Return the figures of a start, from the entries of the audit log since the user's first request."""
    given = [
        one
        for one in entries
        if one.user != OPERATOR_USER
        and (one.is_a("create", "trainingjobs") or one.is_a("create", KIND.plural))
    ]
    return Start(
        seconds=max(running_since(entries).values()) - min(one.received for one in given),
        user_requests=len(given),
        operator_requests=sum(one.user == OPERATOR_USER for one in entries),
        operator_writes=len(writes(entries, [OPERATOR_USER])),
        objects=objects,
    )


def add_rows(found: Figures, starts: Mapping[str, Sequence[Start]]) -> None:
    """Add the figures of all starts, by way."""
    for name in (_LOOP, _SWEEP):
        ours = name == _SWEEP
        for one in starts[name]:
            rows = (
                ("requests of the user", "requests", one.user_requests, 1.0),
                ("objects that the user watches", "objects", 1 if ours else RUNS, 1.0),
                ("rows of `kubectl get convoy`", "objects", _rows(one), None),
                ("API objects with pods", "objects", sum(one.objects.values()), None),
                ("requests of the operator", "requests", one.operator_requests, None),
                ("writes of the operator", "requests", one.operator_writes, None),
                ("time until all runs have started", "seconds", one.seconds, None),
            )
            for what, unit, value, target in rows:
                baseline = f"{_TITLE}: {what}, {_LOOP}" if ours else ""
                metric = Metric(f"{_TITLE}: {what}, {name}", unit, target if ours else None, baseline)
                found.add(metric, value)
    _add_ratio(
        found, f"{_TITLE}: time until all runs have started, {_SWEEP} over {_LOOP}", starts, _SWEEP, 1.0
    )
    name = f"negative control: {_TITLE}: time until all runs have started, {_AGAIN} over {_LOOP}"
    _add_ratio(found, name, starts, _AGAIN, None)


def _rows(one: Start) -> int:
    return one.objects["Experiment"] + one.objects["TrainingJob"]


def _add_ratio(
    found: Figures, name: str, starts: Mapping[str, Sequence[Start]], way: str, target: float | None
) -> None:
    """Add the median ratio of the times of one way and the loop. Without a target, it should be 1."""
    pairs = zip(starts[way], starts[_LOOP], strict=True)
    ratios = sorted(ours.seconds / theirs.seconds for ours, theirs in pairs)
    low, high, level = median_interval(ratios)
    spread = f"{level:.0%}: {low:.2f} to {high:.2f}, {len(ratios)} rounds"
    middle = ratios[len(ratios) // 2]
    if target is None:
        found.add(Metric(name, "ratio - 1", _NOISE, aim="within", spread=spread), middle - 1)
    else:
        found.add(Metric(name, "ratio", target, spread=spread), middle)


async def _create_jobs(rig: Rig) -> None:
    """Create the jobs one after another, as a loop around `kubectl create` does."""
    for number in range(RUNS):
        body = training_job(f"run-{number:02}", 1)
        body["spec"]["engine"]["params"] = _params(number)
        await rig.api.create(TRAINING_JOBS, body)


async def _create_sweep(rig: Rig) -> None:
    await rig.api.create(EXPERIMENTS, sweep())


def sweep() -> Object:
    """Return the Experiment that runs the same jobs."""
    template = training_job("unused", 1)["spec"]
    template["engine"] = {"name": ENGINE, "params": _params(0)}
    arm = {"name": "gpt", "type": "TrainingJob", "role": "Candidate", "template": {"spec": template}}
    values = [_params(number)["learning_rate"] for number in range(RUNS)]
    swept = {"name": "rate", "path": "spec.engine.params.learning_rate", "values": values}
    outcome = {"name": "loss", "source": {"status": "progress.loss"}, "better": "Lower"}
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": "sweep", "namespace": SPACE},
        "spec": {
            "store": _STORE,
            "blocks": 1,
            "parallelism": RUNS,
            "arms": [arm],
            "outcomes": [outcome],
            "sweep": {"parameters": [swept]},
        },
    }


def _params(number: int) -> dict[str, float]:
    return {"steps": 10_000_000, "learning_rate": round(0.001 * (number + 1), 3)}


async def _create_store(rig: Rig) -> None:
    """Create the store that keeps the plan, and wait until an agent has reached it."""
    spec = {"volume": {"claimName": "disk", "path": "advice"}, "allowedNamespaces": [SPACE]}
    body = {"apiVersion": API_VERSION, "kind": "CheckpointStore", "metadata": {"name": _STORE}, "spec": spec}
    await rig.api.create(_STORES, body)

    async def ready() -> bool:
        status = (await rig.api.get(f"{_STORES}/{_STORE}")).get("status") or {}
        conditions = status.get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    await rig.wait_until(ready, 60, "the store is ready")


@asynccontextmanager
async def _program_of_plans(rig: Rig) -> AsyncIterator[None]:
    """End the pods that write plans to the store as soon as their ranks run, with the hash of the plan."""
    feed = PodFeed(rig.api)
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(_end_plans(rig, feed))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end_plans(rig: Rig, feed: PodFeed) -> None:
    while True:
        for pod in list(feed.pods.values()):
            if writes_plan(pod) and _has_ranks(rig, pod):
                with contextlib.suppress(ApiError):
                    await _end(rig.api, pod)
        await asyncio.sleep(_POLL_SECONDS)


def writes_plan(pod: Object) -> bool:
    """Return True if a pod that runs belongs to the job that writes the plan of the sweep."""
    job = (pod["metadata"].get("labels") or {}).get(LABEL_JOB, "")
    return "-plan-" in job and (pod.get("status") or {}).get("phase") not in ENDED


def _has_ranks(rig: Rig, pod: Object) -> bool:
    agent = rig.swarm.agents.get(pod["spec"].get("nodeName", ""))
    known = agent.pods.get(pod["metadata"]["uid"]) if agent is not None else None
    return known is not None and known.incarnation > 0


async def _end(api: Api, pod: Object) -> None:
    """Patch a pod's status as a kubelet does when its program has left its result."""
    job = await api.get(f"{TRAINING_JOBS}/{pod['metadata']['labels'][LABEL_JOB]}")
    experiment = await api.get(f"{EXPERIMENTS}/{job['metadata']['labels'][LABEL_EXPERIMENT]}")
    result = json.dumps({"planHash": experiment["status"]["plan"]["hash"]})
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": result}}
    containers = [
        {"name": one["name"], "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        for one in pod["spec"]["containers"]
    ]
    status = {"phase": "Succeeded", "containerStatuses": containers}
    await api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})
