"""Provides ReadWriteMany volumes on a local cluster: a default StorageClass, and volumes in a shared
folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.cluster.cluster import Cluster

CLASS = "shared"
VOLUMES = 4
SIZE = "10Gi"


def objects(folder: Path) -> dict[str, Any]:
    """Return the StorageClass and the volumes as a List for `kubectl apply`. Each volume is a subfolder of
    `folder`.
    """
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "reclaimPolicy": "Retain",
    }
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "convoy-local"}},
            "spec": {
                "storageClassName": CLASS,
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": SIZE},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder / name), "type": "Directory"},
            },
        }
        for name in names()
    ]
    return {"apiVersion": "v1", "kind": "List", "items": [storage_class, *volumes]}


def names() -> list[str]:
    """Return the names of the volumes."""
    return [f"{CLASS}-{number}" for number in range(1, VOLUMES + 1)]


def provide(cluster: Cluster) -> None:
    """Create the volumes. If the claim of a volume was deleted, make the volume available again, with its
    files.
    """
    for name in names():
        folder = cluster.shared_dir / name
        folder.mkdir(mode=0o777, exist_ok=True)
        folder.chmod(0o777)  # Pods run as another user, and mkdir applies this process's umask.
    cluster.kubectl("apply", "-f", "-", text=json.dumps(objects(cluster.shared_dir)))
    for volume in cluster.get("pv")["items"]:
        name = volume["metadata"]["name"]
        if name in names() and volume["status"].get("phase") == "Released":
            cluster.kubectl("patch", "pv", name, "--type=merge", "--patch", '{"spec": {"claimRef": null}}')
