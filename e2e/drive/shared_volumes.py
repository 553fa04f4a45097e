"""Creates claims on a disk that all nodes share, and CheckpointStores on such claims."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convoy_crds.meta import API_VERSION
from e2e.cluster.cluster import Cluster
from e2e.cluster.run import wait_for
from e2e.install import CHART, NAMESPACE, helm

STORE = "disk"
PART = "clusters/e2e"


@contextmanager
def shared_volume(cluster: Cluster, namespace: str) -> Iterator[str]:
    """Create a ReadWriteMany claim and yield its name. The claim's folder is `cluster.shared_dir / name`."""
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


@contextmanager
def volume_store(cluster: Cluster) -> Iterator[Path]:
    """Create the CheckpointStore `disk` on a shared volume. Yield the store's folder when the store is
    Ready.
    """
    with shared_volume(cluster, NAMESPACE) as claim:
        store = {
            "apiVersion": API_VERSION,
            "kind": "CheckpointStore",
            "metadata": {"name": STORE},
            "spec": {"allowedNamespaces": ["*"], "volume": {"claimName": claim, "path": PART}},
        }
        cluster.kubectl("apply", "-f", "-", text=json.dumps(store))
        try:
            # The operator reports ClaimNotMounted until the administrator mounts the claim into the agents.
            _wait_reason(cluster, "ClaimNotMounted")
            _mount_claims(cluster, claim)
            _wait_reason(cluster, "Probed")
            yield cluster.shared_dir / claim / PART
        finally:
            cluster.kubectl("delete", "checkpointstore", STORE, "--ignore-not-found")
            # Kubernetes does not delete a mounted claim, so unmount it from the agents.
            _mount_claims(cluster)


def _wait_reason(cluster: Cluster, reason: str) -> None:
    """Wait until one of the store's conditions has this reason."""

    def found() -> bool:
        conditions = cluster.get("checkpointstore", STORE).get("status", {}).get("conditions", [])
        return any(one["reason"] == reason for one in conditions)

    wait_for(found, deadline=60, what=f"reason {reason} of store {STORE}", every=0.5)


def _mount_claims(cluster: Cluster, *claims: str) -> None:
    """Mount these claims, and no others, into the agents."""
    values = f"--set-json=agent.storeVolumes={json.dumps(claims)}"
    helm(cluster, "upgrade", "convoy", str(CHART), "--reuse-values", values, "--wait", "--timeout=180s")
    cluster.kubectl(
        "-n", NAMESPACE, "rollout", "status", "daemonset/convoy-agent", "--timeout=180s", deadline=190
    )
