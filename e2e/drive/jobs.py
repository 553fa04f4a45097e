"""Creates, changes, deletes and awaits Convoy's objects in tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kubernetes import client, config

from convoy_crds.meta import API_VERSION, GROUP, VERSION
from convoy_crds.terms import LABEL_JOB
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import SMALL, single_threaded

PLURAL = "trainingjobs"


class WaitTimeout(AssertionError):
    """Raised when a wait times out. The message has the state at the end of the wait."""


def restricted_namespace(cluster: Cluster, name: str) -> str:
    """Create a namespace that enforces the restricted pod security standard. Return its name."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(manifest))
    return name


@dataclass(frozen=True)
class Objects:
    """The objects of one kind in one namespace, accessed as the cluster's administrator."""

    KIND: ClassVar[str]
    PLURAL: ClassVar[str]

    cluster: Cluster
    namespace: str
    custom: Any
    core: Any

    @classmethod
    def of(cls, cluster: Cluster, namespace: str, **settings: Any) -> Self:
        """Return the objects of a namespace."""
        api = config.new_client_from_config(str(cluster.kubeconfig))
        return cls(cluster, namespace, client.CustomObjectsApi(api), client.CoreV1Api(api), **settings)

    def apply(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Create an object. Fields of `spec` that are None are left out. Return the created object."""
        manifest = {
            "apiVersion": API_VERSION,
            "kind": self.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {key: value for key, value in spec.items() if value is not None},
        }
        created: dict[str, Any] = self.custom.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, self.PLURAL, manifest
        )
        return created

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the job; None if it does not exist."""
        try:
            found: dict[str, Any] = self.custom.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, self.PLURAL, name
            )
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return the job's status; empty if there is none."""
        return (self.get(name) or {}).get("status") or {}

    def patch(self, name: str, **spec: Any) -> None:
        """Merge-patch the job's spec."""
        self.custom.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            self.namespace,
            self.PLURAL,
            name,
            {"spec": spec},
            _content_type="application/merge-patch+json",
        )

    def delete(self, name: str) -> None:
        """Delete the job and wait until the job and its pods no longer exist."""
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, self.PLURAL, name)
        self.wait(lambda: self.get(name) is None and not self.pods(name), 90, f"{name} deleted")

    def delete_all(self) -> None:
        """Delete all jobs and wait until they and their pods no longer exist."""
        for name in self.start_deletion():
            self.wait(lambda: self.get(name) is None and not self.pods(name), 90, f"{name} deleted")  # noqa: B023

    def start_deletion(self) -> list[str]:
        """Delete all jobs without a wait. Return their names."""
        found = self.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, self.PLURAL)
        names = [job["metadata"]["name"] for job in found["items"]]
        for name in names:
            self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, self.PLURAL, name)
        return names

    def pods(self, name: str) -> list[Any]:
        """Return the job's pods, in the order of their names' numbers."""
        found = self.core.list_namespaced_pod(self.namespace, label_selector=f"{LABEL_JOB}={name}").items
        return sorted(found, key=lambda pod: _order(pod.metadata.name))

    def log(self, pod: str) -> str:
        """Return a pod's log."""
        return str(self.core.read_namespaced_pod_log(pod, self.namespace))

    def events(self, name: str) -> set[str]:
        """Return the reasons of the Events about a job."""
        found = self.core.list_namespaced_event(
            self.namespace, field_selector=f"involvedObject.name={name},involvedObject.kind={self.KIND}"
        )
        return {event.reason for event in found.items}

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition; two empty texts if the job does not have the condition."""
        for condition in self.status(name).get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def wait(self, holds: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait until `holds()` is truthy, and return its value. Raises WaitTimeout after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := holds():
                return found
            time.sleep(0.2)
        raise WaitTimeout(f"timed out after {seconds:.0f} s: {what}")

    def wait_reason(self, name: str, reason: str, seconds: float = 10) -> dict[str, Any]:
        """Wait until the job's status has this reason, and return the status. Raises WaitTimeout after
        `seconds`.
        """
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            status = self.status(name)
            if status.get("reason") == reason:
                return status
            time.sleep(0.2)
        raise WaitTimeout(
            f"{name} does not have the reason {reason} after {seconds:.0f} s: {self.explain(name, status)}"
        )

    def explain(self, name: str, status: dict[str, Any]) -> str:
        """Return the status, the pods and the end of each pod's log, to explain why a wait failed."""
        parts = [str(status)]
        for pod in self.pods(name):
            parts.append(
                f"\n{pod.metadata.name} {pod.status.phase} on {pod.spec.node_name}: {pod.status.conditions}"
            )
            try:
                parts.append(self.log(pod.metadata.name)[-3000:])
            except client.ApiException as error:
                parts.append(str(error.reason))
        return "\n".join(parts)


def _order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `worker-10` after `worker-9`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in name.split("-")]


@dataclass(frozen=True)
class Jobs(Objects):
    """The TrainingJobs of one namespace."""

    KIND = "TrainingJob"
    PLURAL = PLURAL

    single_threaded: bool = False
    """True if the ranks of engines compute with one thread each."""

    def create(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a job of two small `gpt` workers, unless `spec` changes that. Return the created object."""
        body = {
            "engine": {"name": "gpt", "params": SMALL},
            "roles": [{"name": "worker", "replicas": 2}],
            **spec,
        }
        if self.single_threaded and body["engine"]:
            body["roles"] = [single_threaded(role) for role in body["roles"]]
        return self.apply(name, body)

    def wait_phase(self, name: str, phase: str, seconds: float = 90) -> dict[str, Any]:
        """Wait until the job is in a phase, and return its status.

        Raises WaitTimeout after `seconds`, or as soon as the job ends in another phase.
        """
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            status = self.status(name)
            if status.get("phase") == phase:
                return status
            if status.get("phase") in ("Succeeded", "Failed"):
                break
            time.sleep(0.2)
        raise WaitTimeout(f"{name} is not {phase} after {seconds:.0f} s: {self.explain(name, status)}")

    def wait_step(self, name: str, step: int, seconds: float = 90) -> dict[str, Any]:
        """Wait until the job's status shows at least this step, and return the status."""
        self.wait(
            lambda: self.status(name).get("progress", {}).get("step", -1) >= step,
            seconds,
            f"{name} at step {step}",
        )
        return self.status(name)
