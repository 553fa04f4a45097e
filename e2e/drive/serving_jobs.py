"""Creates, changes and awaits ServingJobs in tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from e2e.drive.job_specs import on_separate_nodes, single_threaded
from e2e.drive.jobs import Objects

SMALL_MODEL = {"context": 64, "layers": 2, "width": 64, "heads": 2}
"""Parameters of the engine `lm` with which a replica loads at once."""
CONVOY = Path(sys.executable).parent / "convoy"
_REQUEST_SECONDS = 5


def lm_role(name: str = "server", **more: Any) -> dict[str, Any]:
    """Return a role whose replicas are the engine `lm` with a small random model."""
    return single_threaded({"name": name, "engine": {"name": "lm", "params": SMALL_MODEL}, **more})


def seeded(seed: int) -> dict[str, Any]:
    """Return a role like `lm_role()`, with other weights. It is another revision."""
    return single_threaded(
        {"name": "server", "engine": {"name": "lm", "params": {**SMALL_MODEL, "seed": seed}}}
    )


def apart(job: str) -> dict[str, Any]:
    """Return a role like `lm_role()` whose replicas are on different nodes."""
    affinity = on_separate_nodes(job)["spec"]["affinity"]
    role = lm_role()
    return {**role, "template": {"spec": {**role["template"]["spec"], "affinity": affinity}}}


@dataclass(frozen=True)
class ServingJobs(Objects):
    """The ServingJobs of one namespace."""

    KIND = "ServingJob"
    PLURAL = "servingjobs"

    def create(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a job of one small `lm` replica, unless `spec` changes that. Return the created object."""
        return self.apply(name, {"roles": [lm_role()], **spec})

    def url(self, name: str) -> str:
        """Return the address of the job's Service, which the machine reaches like a pod does."""
        spec = self.core.read_namespaced_service(name, self.namespace).spec
        return f"http://{spec.cluster_ip}:{spec.ports[0].port}"

    def endpoints(self, name: str) -> list[str]:
        """Return the ready endpoints of the job's Service, as the proxies get them: `POD on NODE`."""
        api: Any = client.DiscoveryV1Api(self.core.api_client)
        slices = api.list_namespaced_endpoint_slice(
            self.namespace, label_selector=f"kubernetes.io/service-name={name}"
        )
        ready = [one for found in slices.items for one in found.endpoints or () if one.conditions.ready]
        return sorted(f"{one.target_ref.name} on {one.node_name}" for one in ready)

    def wait_rolled(self, name: str, seconds: float = 120) -> dict[str, Any]:
        """Wait until all replicas are ready and run the revision of the spec. Return the status."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.get(name) or {}
            status: dict[str, Any] = job.get("status") or {}
            if (
                status.get("observedGeneration") == job.get("metadata", {}).get("generation")
                and status.get("reason") == "RolloutComplete"
                and status.get("updatedReadyReplicas") == status.get("replicas") == self.desired(job)
            ):
                return status
            time.sleep(0.2)
        raise AssertionError(
            f"{name} has not rolled after {seconds:.0f} s: {self.explain(name, self.status(name))}"
        )

    def desired(self, job: dict[str, Any]) -> int | None:
        """Return the desired number of replicas of a job's scaled role; None before its first status."""
        spec = job.get("spec", {})
        if "replicas" in spec:
            return int(spec["replicas"])
        roles = {one["name"]: one for one in job.get("status", {}).get("roles", ())}
        role = spec.get("scaledRole") or spec["roles"][0]["name"]
        return int(roles[role].get("desired", 0)) if role in roles else None

    def incarnation(self, name: str, number: int = 0) -> int:
        """Return the incarnation of a replica of the first role; 0 before it has one."""
        for group in self.status(name).get("internal", {}).get("groups", ()):
            if group["number"] == number:
                return int(group.get("incarnation", 0))
        return 0


def is_ready(pod: Any) -> bool:
    """Return True if a pod's condition Ready is True."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def complete(
    url: str, prompt: str = "def ", max_tokens: int = 4, seed: int = 1, seconds: float = _REQUEST_SECONDS
) -> dict[str, Any]:
    """Return the response to a completion. Raises OSError if there is no complete response within
    `seconds`.
    """
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "seed": seed}).encode()
    request = urllib.request.Request(
        f"{url}/v1/completions", body, {"Content-Type": "application/json", "Connection": "close"}
    )
    with urllib.request.urlopen(request, timeout=seconds) as response:
        found: dict[str, Any] = json.load(response)
    return found


def seconds_until_served(url: str, since: float, limit: float) -> float:
    """Return the seconds from `since` (of time.monotonic) to the first complete response.

    Raises AssertionError after `limit` seconds.
    """
    last: Exception | None = None
    while time.monotonic() - since < limit:
        try:
            complete(url, max_tokens=1)
            return time.monotonic() - since
        except (OSError, urllib.error.URLError, ValueError) as error:
            last = error
            time.sleep(0.02)
    raise AssertionError(f"{url} did not serve within {limit:.0f} s: {last}")


@dataclass(frozen=True)
class Failure:
    """A request of a load that got no complete response."""

    seconds: float
    """Seconds from a fault to the request's scheduled arrival."""
    outcome: str
    cause: str


def failures_after(report: dict[str, Any], at: float) -> list[Failure]:
    """Return the requests of a load's report that arrived after the Unix time `at` and were not ok."""
    start = report["startedAt"] - at
    every = [Failure(start + one["atSeconds"], one["outcome"], one["cause"]) for one in report["failures"]]
    return [one for one in every if one.seconds >= 0]


class Load:
    """A `convoy load` that runs beside a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._report: dict[str, Any] | None = None

    def report(self) -> dict[str, Any]:
        """End the load, wait for its last responses, and return its report."""
        if self._report is None:
            self._process.send_signal(signal.SIGINT)
            text, errors = self._process.communicate(timeout=90)
            try:
                self._report = json.loads(text)
            except ValueError:
                raise AssertionError(f"convoy load printed no report: {text} {errors}") from None
        return self._report

    def wait(self, seconds: float) -> dict[str, Any]:
        """Wait until the load has ended by itself, and return its report."""
        text, errors = self._process.communicate(timeout=seconds)
        assert text, errors
        self._report = json.loads(text)
        return self._report or {}


@contextmanager
def load(url: str, rate: float, seconds: float = 600, *arguments: str) -> Iterator[Load]:
    """Send requests to a service while the block runs. `rate`: requests per second."""
    argv = [str(CONVOY), "load", url, f"--rate={rate}", f"--seconds={seconds}", "--max-tokens=4", "--json=-"]
    with subprocess.Popen(
        [*argv, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        made = Load(process)
        try:
            yield made
        finally:
            if process.poll() is None:
                process.kill()
