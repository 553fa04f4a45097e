"""One real cluster with the chart installed, for all e2e tests.

`CONVOY_E2E_KEEP=1` leaves it up, so that the next run starts in seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.install import bring_up
from e2e.tests.jobs import Jobs

NAME = "e2e"
NODES = 3


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes with this checkout's images, operator and agents."""
    # A developer may bring images in some other way, while editing.
    build = not os.environ.get("CONVOY_E2E_SKIP_BUILD")
    try:
        yield bring_up(NAME, NODES, Progress(), build=build)
    finally:
        if not os.environ.get("CONVOY_E2E_KEEP"):
            Cluster(NAME).down()


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> str:
    """A namespace that enforces the restricted pod security standard."""
    name = "e2e-restricted"
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(manifest))
    return name


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Iterator[Jobs]:
    """The namespace's jobs; those a test leaves are deleted."""
    made = Jobs.of(cluster, namespace)
    yield made
    left = made.custom.list_namespaced_custom_object("convoy.dev", "v1alpha1", namespace, "trainingjobs")[
        "items"
    ]
    for job in left:
        made.delete(job["metadata"]["name"])


@pytest.fixture
def volume(cluster: Cluster, jobs: Jobs) -> Iterator[str]:
    """A ReadWriteMany claim on a disk that all nodes share."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    folder = cluster.shared_dir / name
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    disk = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": jobs.namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": jobs.namespace},
        "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }
    for body in (disk, claim):
        cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    yield name
    for job in jobs.custom.list_namespaced_custom_object(
        "convoy.dev", "v1alpha1", jobs.namespace, "trainingjobs"
    )["items"]:
        jobs.delete(job["metadata"]["name"])
    cluster.kubectl("delete", "pvc", "-n", jobs.namespace, name, "--wait=false")
    cluster.kubectl("delete", "pv", name, "--wait=false")
    shutil.rmtree(folder, ignore_errors=True)
