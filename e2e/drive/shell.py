"""The shell environment of a reader who follows the documentation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from e2e.cluster.cluster import Cluster

BIN = Path(sys.executable).parent


def shell(cluster: Cluster, namespace: str, folder: Path) -> dict[str, str]:
    """Return environment variables that put `convoy` and `kubectl` on the PATH and name a kubeconfig in
    `folder`.
    """
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_bytes(cluster.kubeconfig.read_bytes())
    cluster.kubectl(
        "config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={kubeconfig}"
    )
    return {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{BIN}:{cluster.binaries}:{os.environ['PATH']}",
        "COLUMNS": "200",
    }
