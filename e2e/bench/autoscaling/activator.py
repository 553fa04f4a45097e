"""Measures scale to zero: the bounds of an activator on this machine, and the way to zero and back on nodes.

On this machine an activator is offered 20 times each of its bounds. On real nodes a job goes to zero and back
under load, again and again, and gets its first request after a long idle time.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.client import ApiException

from convoy_crds.terms import LABEL_ENDPOINT
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.activator.bench import replica, running
from convoy_workloads.engines.activator.params import Params
from convoy_workloads.local.ports import free_port
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.drive.jobs import restricted_namespace
from e2e.drive.serving_jobs import ServingJobs, complete, lm_role, load
from e2e.install import bring_up

TIMES = 20
"""Factor by which each bound is exceeded."""
JOB_REQUESTS = 256
"""Requests that both activators of a job hold."""
COOLDOWN = 15
CYCLES = 5
IDLE_SECONDS = 600.0
"""Seconds at zero before the first request of the long idle."""
COLD_SECONDS = 30.0
"""Longest time until the first request from zero has its response. The pod starts and loads a small model."""
_LIMITS = Params()


@dataclass(frozen=True)
class _Outcome:
    """The end of one request: its status, 0 for none; whether it says when to retry; seconds."""

    status: int
    retry: bool
    seconds: float


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> _Outcome:
    began = time.monotonic()
    try:
        async with session.post(url, data=body) as response:
            await response.read()
            return _Outcome(response.status, "retry-after" in response.headers, time.monotonic() - began)
    except (aiohttp.ClientError, TimeoutError):
        return _Outcome(0, False, time.monotonic() - began)


def _session(seconds: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(seconds))


def bounds(found: Figures) -> None:
    """Offer an activator 20 times each of its bounds, and add the rows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 32_768)), hard))
    try:
        asyncio.run(_bounds(found))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _bounds(found: Figures) -> None:
    await _requests(found)
    await _bodies(found)
    await _time(found)


async def _requests(found: Figures) -> None:
    offered, port = TIMES * _LIMITS.max_requests, free_port()
    async with running() as one, _session(55.0) as session:
        url = f"http://127.0.0.1:{one.port}/"
        tasks = [asyncio.create_task(_post(session, url, b"%d" % number)) for number in range(offered)]
        hold = one.process.hold
        pending = set(tasks)
        while len(pending) > hold.most:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        refused = [task.result() for task in tasks if task not in pending]
        async with replica(port):
            hold.set_addresses([f"127.0.0.1:{port}"])
            ends = await asyncio.gather(*tasks)
    counts = Counter(one.status for one in ends)
    title = f"activator, offered {TIMES} times its {_LIMITS.max_requests} requests"
    answered = Metric(f"{title}: held and answered", "requests", _LIMITS.max_requests, higher_is_better=True)
    found.add(answered, counts[200])
    wrong = sum(one.status not in (200, 503) or (one.status == 503 and not one.retry) for one in ends)
    found.add(Metric(f"{title}: lost, or refused without Retry-After", "requests", 0), wrong)
    slowest = max(one.seconds for one in refused)
    found.add(Metric(f"{title}: slowest refusal", "s"), slowest)


async def _bodies(found: Figures) -> None:
    body, port = b"x" * (TIMES * _LIMITS.max_body_bytes), free_port()
    before = _resident()
    async with running() as one, _session(55.0) as session, replica(port):
        url = f"http://127.0.0.1:{one.port}/"
        ends = [await _post(session, url, body) for _ in range(8)]
        one.process.hold.set_addresses([f"127.0.0.1:{port}"])
        good = await _post(session, url, b"x")
    title = f"activator, offered bodies of {TIMES} times 1 MiB"
    # A client that still writes may see the closed connection before the response.
    accepted = sum(one.status not in (0, 413) for one in ends)
    found.add(Metric(f"{title}: accepted", "requests", 0), accepted)
    found.add(Metric(f"{title}: status of the next request", "status", 200), good.status)
    found.add(Metric(f"{title}: growth of resident memory", "MiB"), (_resident() - before) / 2**20)


async def _time(found: Figures) -> None:
    async with running() as one, _session(TIMES * _LIMITS.hold_seconds) as session:
        url = f"http://127.0.0.1:{one.port}/"
        ends = await asyncio.gather(*(_post(session, url, b"x") for _ in range(_LIMITS.max_requests)))
    title = f"activator, clients that wait {TIMES} times 60 s, no replica"
    wrong = sum(one.status != 503 or not one.retry for one in ends)
    found.add(Metric(f"{title}: responses other than 503 with Retry-After", "requests", 0), wrong)
    slowest = max(one.seconds for one in ends)
    found.add(Metric(f"{title}: slowest response", "s", _LIMITS.hold_seconds + 2.0), slowest)


def _resident() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a file of the kernel
        return int(file.read().split()[1]) * resource.getpagesize()


def role(cooldown: int = COOLDOWN) -> dict[str, Any]:
    """Return a role that scales to zero."""
    target = {"type": "AverageValue", "averageValue": 8}
    metric = {"metric": {"name": "convoy_num_requests_waiting"}, "target": target}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    scaling = {
        "minReplicas": 0,
        "maxReplicas": 2,
        "cooldownSeconds": cooldown,
        "metrics": [{"type": "Pods", "pods": metric}],
        "behavior": behavior,
    }
    return lm_role(scaling=scaling)


def wait_for_zero(jobs: ServingJobs, name: str, seconds: float = 240) -> None:
    """Wait until the Service leads to activators and no replica is left."""

    def at_zero() -> bool:
        try:
            service = jobs.core.read_namespaced_service(name, jobs.namespace)
        except ApiException as error:
            if error.status != 404:
                raise
            return False  # The operator has not created it yet.
        roles = {one.metadata.labels["convoy.dev/role"] for one in jobs.pods(name)}
        return bool(service.spec.selector.get(LABEL_ENDPOINT) == "activator" and roles == {"activator"})

    jobs.wait(at_zero, seconds, f"{name} at zero")


def on_nodes(cluster: Cluster, jobs: ServingJobs, found: Figures, idle_seconds: float = IDLE_SECONDS) -> None:
    """Take a job to zero and back, and add the rows."""
    jobs.create("zero", roles=[role()])
    wait_for_zero(jobs, "zero")
    url = jobs.url("zero")
    for number in range(CYCLES):
        began = time.monotonic()
        complete(url, seconds=COLD_SECONDS)
        seconds = time.monotonic() - began
        cluster.progress.report(f"0 to 1: first response after {seconds:.2f} s")
        found.add(Metric("0 to 1: first request answered", "s", COLD_SECONDS), seconds)
        wait_for_zero(jobs, "zero")
        _cycle(jobs, found, url, number)
    time.sleep(idle_seconds)
    began = time.monotonic()
    complete(url, seconds=COLD_SECONDS)
    title = f"0 to 1 after {idle_seconds:.0f} s idle: first request answered"
    found.add(Metric(title, "s", COLD_SECONDS), time.monotonic() - began)
    wait_for_zero(jobs, "zero")
    _flood(jobs, found, url)
    jobs.delete("zero")


def _cycle(jobs: ServingJobs, found: Figures, url: str, number: int) -> None:
    """Send requests from zero through the switch, then rare ones across the way back to zero."""
    with load(url, 15.0, 20.0, "--no-keep-alive", "--timeout=60", f"--seed={number}") as running_load:
        burst = running_load.wait(120)
    gap = COOLDOWN + 12.0
    with load(url, 1.0 / gap, 4 * gap, "--arrivals=constant", "--timeout=60") as running_load:
        rare = running_load.wait(240)
    wait_for_zero(jobs, "zero")
    for title, report in (("0 to 1 under load", burst), ("1 to 0 and back, rare requests", rare)):
        for cause in report["causes"]:
            jobs.cluster.progress.report(f"{title}: {cause}")
        found.add(Metric(f"{title}: requests", "requests"), report["scheduled"])
        not_ok = report["scheduled"] - report["ok"]
        found.add(Metric(f"{title}: requests without a complete response", "requests", 0), not_ok)


def _flood(jobs: ServingJobs, found: Figures, url: str) -> None:
    """Offer a job at zero 20 times the requests that its activators hold."""
    offered = TIMES * JOB_REQUESTS
    arguments = ("--no-keep-alive", "--timeout=90", f"--max-in-flight={offered}", "--arrivals=constant")
    with load(url, float(offered), 1.0, *arguments) as running_load:
        report = running_load.wait(240)
    title = f"a job at zero, offered {TIMES} times {JOB_REQUESTS} requests in 1 s"
    bad = report["scheduled"] - report["ok"] - report["shed"]
    found.add(Metric(f"{title}: lost or failed", "requests", 0), bad)
    found.add(Metric(f"{title}: answered", "requests"), report["ok"])


def add(found: Figures, progress: Progress) -> None:
    """Measure all, and add the rows."""
    bounds(found)
    cluster = bring_up("activator", 3, progress)
    try:
        on_nodes(cluster, ServingJobs.of(cluster, restricted_namespace(cluster, "activator")), found)
    finally:
        cluster.down()
