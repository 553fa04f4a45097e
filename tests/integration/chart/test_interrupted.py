"""Tests of an installation on a local cluster after an earlier one was killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e import install
from e2e.cluster.errors import ClusterError
from e2e.cluster.run import run

NEVER_READY = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "never-bound"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@dataclass(frozen=True)
class Server:
    """A stand-in for a local cluster: an API server without nodes."""

    binaries: Path
    kubeconfig: Path

    def kubectl(self, *arguments: str) -> str:
        return run([self.binaries / "kubectl", *arguments], env={"KUBECONFIG": str(self.kubeconfig)})


@pytest.fixture
def server(helm: Path, control_plane: Any) -> Iterator[Any]:
    found: Any = Server(helm.parent, control_plane.kubeconfig())
    yield found
    install.helm(found, "uninstall", install.RELEASE, "--ignore-not-found")


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "claim.yaml").write_text(json.dumps(NEVER_READY))
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: small, version: 0.1.0}")
    return tmp_path


def killed(server: Server, chart: Path, *arguments: str) -> None:
    """Start helm, and kill it while it waits for an object that never becomes ready."""
    words = [server.binaries / "helm", "-n", install.NAMESPACE, *arguments, install.RELEASE, chart, "--wait"]
    process = subprocess.Popen(words, env={"KUBECONFIG": str(server.kubeconfig)})
    try:
        deadline = time.monotonic() + 30
        pending = f"owner=helm,name={install.RELEASE},status=pending-{arguments[0]}"
        get = ("-n", install.NAMESPACE, "get", "secrets", "-o", "name", f"--selector={pending}")
        while not server.kubectl(*get):
            assert time.monotonic() < deadline and process.poll() is None, "helm does not wait"
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()


def test_an_installation_goes_on_after_helm_was_killed(server: Any, chart: Path) -> None:
    again = ("upgrade", "--install", install.RELEASE, str(chart))
    for arguments in (("install", "--create-namespace"), ("upgrade",)):
        killed(server, chart, *arguments)
        with pytest.raises(ClusterError, match="another operation"):
            install.helm(server, *again)
        install.drop_interrupted(server)
        install.helm(server, *again)
        (release,) = json.loads(install.helm(server, "list", "--all", "--output=json"))
        assert release["status"] == "deployed"
