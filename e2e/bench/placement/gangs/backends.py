"""The gang backends of the comparison, with the jobs that use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_crds.terms import LABEL_JOB
from e2e.bench.placement.gangs.stand_in import COSCHEDULING, VOLCANO, Flavour
from e2e.bench.rig.api import Object
from e2e.bench.rig.jobs import JOBSETS, SPACE, TRAINING_JOBS, job_set, training_job

JOBS, PODS_PER_JOB, ROOM = 20, 3, 7
"""Number of jobs, pods of each job, and pods that all nodes hold together."""
SCHEDULE_SECONDS = 10
"""`scheduleSeconds` of the jobs without a gang scheduler."""
_JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_FEATURES = {"1.36": ("GenericWorkload=true", "GangScheduling=true"), "1.37": ("GenericWorkload=true",)}
"""Feature gates of gangs. A component refuses to start with a gate that its version does not know."""
_VERSIONS = {"1.36": "v1alpha2", "1.37": "v1beta1"}


@dataclass(frozen=True)
class Backend:
    """A gang backend."""

    name: str
    """Value of `spec.placement.gang`."""
    title: str
    bound_seconds: float
    """Maximum seconds that a pod may hold a node while its gang is incomplete."""
    flavour: Flavour | None = None
    """The simulated scheduler; None for the real kube-scheduler."""
    group_path: str = ""
    """Path of the PodGroups; empty without any."""
    group_spec: Mapping[str, Any] = field(default_factory=dict)
    """Spec of the PodGroup of a JobSet."""

    @property
    def kind(self) -> str:
        """Return the kind of the figures."""
        return "measured" if self.flavour is None else "simulated"


def _native(minor: str) -> Backend:
    return Backend(
        "Native",
        f"Native, Kubernetes {minor}",
        1.0,
        group_path=f"/apis/scheduling.k8s.io/{_VERSIONS[minor]}/namespaces/{SPACE}/podgroups",
        group_spec={"schedulingPolicy": {"gang": {"minCount": PODS_PER_JOB}}},
    )


_MEMBERS = {"minMember": PODS_PER_JOB, "minResources": {"cpu": str(PODS_PER_JOB)}}
NONE = Backend("None", "None", SCHEDULE_SECONDS + 2.0)
NATIVE: Mapping[str, Backend] = {minor: _native(minor) for minor in _VERSIONS}
SIMULATED = (
    Backend("Coscheduling", "Coscheduling", 60.0, COSCHEDULING, COSCHEDULING.group_path, _MEMBERS),
    Backend("Volcano", "Volcano", 1.0, VOLCANO, VOLCANO.group_path, _MEMBERS),
)


def features(minor: str) -> tuple[str, ...]:
    """Return the feature gates that switch gangs on in a minor version of Kubernetes."""
    return _FEATURES.get(minor, ())


def native_version(minor: str) -> str | None:
    """Return the API version of the PodGroups of a minor version; None without any."""
    return _VERSIONS.get(minor)


def gates(minor: str) -> dict[str, tuple[str, ...]]:
    """Return the flags that switch gangs on, by name of the component."""
    chosen = f"--feature-gates={','.join(features(minor))}"
    served = f"--runtime-config=scheduling.k8s.io/{_VERSIONS[minor]}=true"
    return {
        "kube-apiserver": (chosen, served),
        "kube-controller-manager": (chosen,),
        "kube-scheduler": (chosen,),
    }


@dataclass(frozen=True)
class Controller:
    """A controller of jobs: Convoy, or JobSet as its baseline."""

    title: str
    path: str
    """Path of its jobs."""
    label: str
    """Label of a pod with the name of its job."""

    def body(self, backend: Backend, name: str) -> Object:
        """Return a job."""
        raise NotImplementedError

    @staticmethod
    def ended(job: Object) -> bool:
        """Return True if the job has succeeded."""
        raise NotImplementedError


class _Convoy(Controller):
    def body(self, backend: Backend, name: str) -> Object:
        """Return a TrainingJob. Convoy itself creates its PodGroup."""
        body = training_job(name, PODS_PER_JOB)
        container = {"name": "worker", "resources": {"requests": {"cpu": "1"}}}
        body["spec"]["roles"][0]["template"] = {"spec": {"containers": [container]}}
        body["spec"]["placement"] = {"gang": backend.name}
        if backend is NONE:
            body["spec"]["recovery"] = {"scheduleSeconds": SCHEDULE_SECONDS}
        return body

    @staticmethod
    def ended(job: Object) -> bool:
        """Return True if the job has succeeded."""
        return (job.get("status") or {}).get("phase") == "Succeeded"


class _JobSet(Controller):
    def body(self, backend: Backend, name: str) -> Object:
        """Return a JobSet whose pods name a PodGroup of the same name, which the bench creates."""
        body = job_set(name, PODS_PER_JOB)
        template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        if backend.flavour is not None:
            template["spec"]["schedulerName"] = backend.flavour.scheduler
            template["metadata"] = {
                "labels": {"scheduling.x-k8s.io/pod-group": name},
                "annotations": {"scheduling.k8s.io/group-name": name},
            }
        elif backend.group_path:
            template["spec"]["schedulingGroup"] = {"podGroupName": name}
        return body

    @staticmethod
    def ended(job: Object) -> bool:
        """Return True if the JobSet is complete."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Completed" and one["status"] == "True" for one in conditions)


CONVOY: Controller = _Convoy("Convoy", TRAINING_JOBS, LABEL_JOB)
JOBSET: Controller = _JobSet("JobSet", JOBSETS, _JOBSET_LABEL)


def pod_group(backend: Backend, name: str) -> Object:
    """Return the PodGroup of a JobSet."""
    return {
        "apiVersion": "/".join(backend.group_path.split("/")[2:4]),
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": dict(backend.group_spec),
    }
