"""Claims on a disk that all nodes share."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.cluster import Cluster


@contextmanager
def shared_volume(cluster: Cluster, namespace: str) -> Iterator[str]:
    """The name of a ReadWriteMany claim; its folder is `cluster.shared_dir / name`."""
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
            "claimRef": {"namespace": namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }
    for body in (disk, claim):
        cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    try:
        yield name
    finally:
        cluster.kubectl("delete", "pvc", "-n", namespace, name, "--wait=false")
        cluster.kubectl("delete", "pv", name, "--wait=false")
        shutil.rmtree(folder, ignore_errors=True)
