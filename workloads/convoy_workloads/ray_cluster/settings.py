"""The settings of a Ray node, as arguments and environment variables: ports, folders, health checks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.ray_cluster import notice

GCS_PORT = 6379
"""Port of the head's control service. Workers and drivers connect to it."""
NODE_PORTS = {
    "object-manager-port": 8076,
    "node-manager-port": 8077,
    "dashboard-agent-listen-port": 8078,
    "dashboard-agent-grpc-port": 8079,
    "runtime-env-agent-port": 8080,
    "metrics-export-port": 8081,
    "min-worker-port": 10002,
    "max-worker-port": 10101,
}
"""Ports that every Ray node listens on. They are fixed, so a network policy can name them."""
HEALTH_CHECKS = {"initial_delay_ms": 0, "period_ms": 1000, "timeout_ms": 2000, "failure_threshold": 4}
"""Health checks of the head. They find a silent node within 12 s; Ray's defaults need 65 s. With shorter ones
a busy node would count as lost. No work waits for them, because leases time out by themselves.
"""
RECONNECT_SECONDS = 10
"""Seconds after which a worker's node ends if the head does not respond. Its program then starts another."""
SINCE_LABEL = "convoy-since"
"""Label of a Ray node with the Unix time at which its pod started. It stays if the pod joins another head."""
MAX_FOLDER = 45
"""Longest path of a node's folder. The paths of Ray's sockets, of at most 107 characters, are in it."""
MIN_STORE_BYTES = 80 * 1024 * 1024
"""Smallest object store that Ray accepts, with some room."""


@dataclass(frozen=True)
class NodeSettings:
    """The settings with which a pod starts its Ray node."""

    address: str
    """This node's own address. It is never a loopback address: Ray would silently use another one."""
    head: str
    """Address of the head; equal to `address` on the head."""
    folder: Path
    """Folder that Ray may write to. It is short, because Ray's sockets are in it."""
    token_file: Path
    """File with the token of the cluster."""
    store_bytes: int = MIN_STORE_BYTES
    """Size of the object store, in the shared memory of the pod."""
    slots: int = 1
    """Number of actors with one CPU each that Ray may place on this node; 0 for none."""
    since: float | None = None
    """Unix time at which the node's pod started; None on the head."""

    def __post_init__(self) -> None:
        if len(str(self.folder)) > MAX_FOLDER:
            raise ValueError(f"the folder {self.folder} of a Ray node has more than {MAX_FOLDER} characters")
        if self.address.startswith("127.") or self.address in {"", "localhost", "::1"}:
            raise ValueError(
                f"the address of a Ray node is {self.address!r}: it must be an address that other nodes reach"
            )
        if self.store_bytes < MIN_STORE_BYTES:
            raise ValueError(
                f"the object store has {self.store_bytes} bytes: Ray needs at least {MIN_STORE_BYTES}. Give "
                "the pod a larger /dev/shm"
            )

    @property
    def is_head(self) -> bool:
        """True if this node is the head."""
        return self.address == self.head

    @property
    def gcs(self) -> str:
        """Return the address of the head's control service."""
        return f"{self.head}:{GCS_PORT}"


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return a folder of this pod that Ray may write to."""
    return Path(environ.get("CONVOY_HOME") or tempfile.gettempdir()) / "ray"


def arguments(settings: NodeSettings) -> list[str]:
    """Return the arguments of `ray start` for this node."""
    role = (
        [
            "--head",
            f"--port={GCS_PORT}",
            "--include-dashboard=false",
            "--no-monitor",
        ]
        if settings.is_head
        else [f"--address={settings.gcs}"]
    )
    return [
        *role,
        f"--node-ip-address={settings.address}",
        *(f"--{name}={port}" for name, port in NODE_PORTS.items()),
        f"--object-store-memory={settings.store_bytes}",
        f"--num-cpus={settings.slots}",
        f"--temp-dir={settings.folder}",
        *([] if settings.since is None else [f"--labels={SINCE_LABEL}={settings.since:.0f}"]),
        "--include-log-monitor=false",
        "--disable-usage-stats",
        "--block",
    ]


def environment(settings: NodeSettings, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Ray's processes and of drivers: `base` without settings of Ray, and ours."""
    own = {name: value for name, value in base.items() if not name.startswith("RAY_")}
    checks = {f"RAY_health_check_{name}": str(value) for name, value in HEALTH_CHECKS.items()}
    return {
        **own,
        **checks,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(settings.token_file),
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(RECONNECT_SECONDS),
        # Convoy drains a node itself, so the end of a node never waits for Ray.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_TMPDIR": str(settings.folder),
        notice.VARIABLE: str(settings.folder / notice.FILE),
    }
