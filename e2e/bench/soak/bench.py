"""A soak: training, serving under load, spot nodes, Experiments and sweeps run at once. Faults hit them, the
operator is killed at random, and the chart is upgraded in the middle. Every job must end as its spec says, no
request may be lost beyond those in flight, and nothing may be left.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.kit.usage import Usage, UsageSampler
from e2e.bench.soak.experiments import ExperimentRuns
from e2e.bench.soak.faults import Faults
from e2e.bench.soak.part import NO_ANSWER, Part
from e2e.bench.soak.serving import Serving
from e2e.bench.soak.spot import Spot
from e2e.bench.soak.sweeps import Sweeps
from e2e.bench.soak.training import Training, script
from e2e.bench.survival.surroundings import everything_on
from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.drive.cluster_state import restore
from e2e.drive.earlier_release import earlier_release
from e2e.drive.experiments import Experiments
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.drive.pod_traces import traces
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.serving_jobs import ServingJobs
from e2e.drive.spot_nodes import label_node
from e2e.drive.spotlight_job import ON_DEMAND, SPOT
from e2e.images.build import Builder
from e2e.install import TAG, install

NAME = "soak"
COMMAND = "make soak"
NODES = 4
JOBS_AND_PODS = "pods,trainingjobs,servingjobs"
KINDS = (
    "pods,trainingjobs,servingjobs,experiments,jobs,services,configmaps,poddisruptionbudgets,leases,secrets"
)
"""Kinds whose objects the parts of the soak make in their namespace."""
RELEASE_IMAGES = ("operator", "agent", "dashboard", "workloads", "serving", "tools", "ray")
"""Images that the soak needs of the earlier release."""
END_SECONDS = 480.0
"""Maximum seconds from the last fault until every part is at rest."""
UPGRADE_SECONDS = 900
LOAD_SECONDS = 1800.0
"""Seconds of the load beyond those of the faults. It is stopped earlier."""
UPGRADE_AT, KILLS_UNTIL = 0.5, 0.55
"""Shares of the time at which the upgrade begins, and until which processes of Convoy are killed. After that,
their memory is compared.
"""
RAW = files.CHECKOUT / "build" / "soak"
_REST_SECONDS, _SAMPLES_AT_REST = 120.0, 6
"""Seconds for which processes are measured without jobs, and minimum number of samples of each process."""


@dataclass
class Upgrade:
    """The upgrade of the chart from an earlier release to this checkout's."""

    cluster: Cluster
    error: str = "it has not ended"
    """Why the upgrade has failed; empty after its success."""
    seconds: float = 0.0
    ended_at: float = 0.0
    """Unix time at which it ended; 0 before that."""
    _thread: threading.Thread | None = field(default=None)

    def start(self) -> None:
        """Start the upgrade in the background, unless it has begun."""
        if self._thread is None:
            self.cluster.progress.report("the upgrade begins")
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            install(self.cluster, seconds=UPGRADE_SECONDS)
            self.error = ""
        except Exception as error:  # The figures show every failure, whatever its cause.
            self.error = f"{type(error).__name__}: {error}"
        self.seconds, self.ended_at = time.monotonic() - began, time.time()
        self.cluster.progress.report(f"the upgrade has ended after {self.seconds:.0f} s {self.error}")

    def wait(self) -> None:
        """Wait until the upgrade has ended."""
        if self._thread is not None:
            self._thread.join(UPGRADE_SECONDS)


@dataclass
class Soak:
    """The parts of a soak, its faults and its upgrade."""

    cluster: Cluster
    parts: Sequence[Part]
    faults: Faults
    upgrade: Upgrade
    namespace: str
    uids: set[str] = field(default_factory=set)
    """Uids of all jobs and pods of the namespace that there ever were."""

    def check(self, create: bool) -> None:
        """Check every part once, and record the objects that exist."""
        for part in self.parts:
            try:
                part.check(create)
            except NO_ANSWER as error:
                self.cluster.progress.report(f"no answer: {type(error).__name__}: {str(error)[:100]}")
        with suppress(*NO_ANSWER):
            items = self.cluster.get("-n", self.namespace, JOBS_AND_PODS)["items"]
            self.uids |= {one["metadata"]["uid"] for one in items}

    def run(self, seconds: float) -> None:
        """Create objects and inject faults for `seconds`, with the upgrade on the way."""
        began = time.monotonic()
        due = began + 20
        while (now := time.monotonic()) < began + seconds:
            self.check(create=True)
            share = (now - began) / seconds
            if share > UPGRADE_AT:
                self.upgrade.start()
            if now >= due:
                self.faults.inject(processes=share < KILLS_UNTIL)
                due = time.monotonic() + self.faults.rng.uniform(5, 25)
            time.sleep(1)

    def settle(self) -> None:
        """Wait without faults until every part is at rest, but no longer than END_SECONDS."""
        self.upgrade.wait()
        restore(self.cluster)
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until and not all(part.at_rest() for part in self.parts):
            self.check(create=False)
            time.sleep(1)


def bench(minutes: float, seed: int, found: Figures) -> None:
    """Create a cluster with an earlier release, run the soak for `minutes`, record the figures, and remove
    the cluster.
    """
    progress = Progress()
    images = Builder(TAG, progress=progress).build()
    cluster = Cluster.up(NODES, NAME, progress=progress)
    try:
        cluster.update_images(images)
        release = earlier_release(cluster, RELEASE_IMAGES)
        install(cluster, release.chart, release.tag)
        jobs = Jobs.of(cluster, restricted_namespace(cluster, NAME), single_threaded=True)
        with (
            s3_server(cluster) as server,
            checkpoint_store(cluster, server) as store,
            everything_on(cluster, jobs.namespace),
            script(jobs),
            _spot_nodes(cluster) as (stable, taken),
        ):
            _measure(_Place(cluster, jobs, store, stable, taken), minutes, seed, found)
    finally:
        cluster.down()


@dataclass(frozen=True)
class _Place:
    cluster: Cluster
    jobs: Jobs
    store: str
    stable: list[str]
    taken: list[str]


@contextmanager
def _spot_nodes(cluster: Cluster) -> Iterator[tuple[list[str], list[str]]]:
    """Label the last two nodes as spot, the others as on-demand. Yield the names of these and of those."""
    names = [node.name for node in cluster.nodes]
    groups = names[:-2], names[-2:]
    for labels, group in zip((ON_DEMAND, SPOT), groups, strict=True):
        for name in group:
            label_node(cluster, name, labels)
    yield groups


def _measure(place: _Place, minutes: float, seed: int, found: Figures) -> None:
    cluster, jobs, report = place.cluster, place.jobs, place.cluster.progress.report
    before = _objects(place)
    training = Training(jobs, report)
    serving = Serving(ServingJobs.of(cluster, jobs.namespace), ON_DEMAND, report)
    spot = Spot(jobs, place.taken, report)
    experiments = ExperimentRuns(Experiments.of(cluster, jobs.namespace), place.store, report)
    sweeps = Sweeps(cluster, place.taken, report)
    parts: list[Part] = [training, serving, spot, experiments, sweeps]
    faults = Faults(cluster, training, serving, place.stable, random.Random(seed), report)
    soak = Soak(cluster, parts, faults, Upgrade(cluster), jobs.namespace)
    with UsageSampler(cluster) as at_rest:
        time.sleep(_REST_SECONDS)
    with UsageSampler(cluster) as loaded:
        experiments.start()
        serving.start(minutes * 60 + LOAD_SECONDS)
        spot.start(minutes * 60)
        soak.run(minutes * 60)
    spot.end()
    soak.settle()
    serving.upgraded_at = soak.upgrade.ended_at
    for part in parts:
        part.delete()
    for part in parts:
        part.record(found)
    _record(soak, at_rest.usage, loaded.usage, found)
    write_raw(serving.result, loaded.usage)
    left = _left(place, before, soak.uids)
    for line in left:
        report(f"left: {line}")
    found.add(Metric("objects, mounts, cgroups, processes left", "traces", 0), len(left))


def write_raw(result: dict[str, Any], usage: Usage) -> None:
    """Write the report of the load and the samples of memory below RAW."""
    RAW.mkdir(parents=True, exist_ok=True)
    (RAW / "load.json").write_text(json.dumps(result))
    rows = [
        f"{name},{node},{pid},{sample.at:.0f},{sample.mib:.1f}"
        for (name, node, pid), samples in sorted(usage.series.items())
        for sample in samples
    ]
    (RAW / "memory.csv").write_text("\n".join(["process,node,pid,seconds,mib", *rows, ""]))


def _objects(place: _Place) -> set[str]:
    """Return kind and name of every object in the soak's namespace."""
    items = place.cluster.get("-n", place.jobs.namespace, KINDS)["items"]
    return {f"{one['kind']} {one['metadata']['name']}" for one in items}


def _left(place: _Place, before: set[str], uids: set[str]) -> list[str]:
    """Return a line for each object in the API, and each trace on a node, that still exists after two
    minutes.
    """
    until = time.monotonic() + 120
    while True:
        on_nodes = [line for lines in traces(place.cluster, uids).values() for line in lines]
        left = sorted(_objects(place) - before) + on_nodes
        if not left or time.monotonic() > until:
            return left
        time.sleep(2)


def _record(soak: Soak, at_rest: Usage, loaded: Usage, found: Figures) -> None:
    found.add(Metric("jobs and pods that there were", "objects"), len(soak.uids))
    for fault, count in sorted(soak.faults.counts.items()):
        found.add(Metric(f"faults: {fault}", "faults"), count)
    if soak.upgrade.error:
        soak.cluster.progress.report(f"unexpected: the upgrade failed: {soak.upgrade.error}")
    found.add(Metric("upgrades of the chart that failed", "upgrades", 0), float(bool(soak.upgrade.error)))
    found.add(Metric("upgrade of the chart", "seconds"), soak.upgrade.seconds)
    for name, summary in at_rest.summaries(_SAMPLES_AT_REST).items():
        found.add(Metric(f"{name} at rest: memory", "MiB"), summary.mib)
        found.add(Metric(f"{name} at rest: processors", "cores"), summary.cores)
    for name, summary in loaded.summaries().items():
        found.add(Metric(f"{name}: resident memory, last third, the largest", "MiB", 300), summary.mib)
        words = f"{name}: growth of memory after its first five minutes, the most"
        found.add(Metric(words, "ratio", 1.1), summary.growth)
        found.add(Metric(f"{name}: processors, the most", "cores"), summary.cores)
