"""What an agent is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from convoy_crds.terms import STORES_PATH

SUN_PATH_LIMIT = 107
"""Bytes a Unix socket's path may have (Linux `sockaddr_un`, less its terminator)."""
LONGEST_SOCKET = "/pods/0123456789abcdef/agent.sock.new"


class SettingsError(ValueError):
    """An environment variable is missing or unusable; the message names it."""


def _env(name: str) -> dict[str, str]:
    return {"env": name}


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field's variable is in its metadata; those without a default must be set."""

    node: str = field(metadata=_env("CONVOY_NODE_NAME"))
    """The Kubernetes node this agent serves (downward API spec.nodeName)."""
    pod_ip: str = field(metadata=_env("CONVOY_POD_IP"))
    """Address other agents reach this one at (downward API status.podIP)."""
    hub: str = field(default="convoy-hub.convoy-system.svc:8470", metadata=_env("CONVOY_HUB"))
    """host:port of the hub's enrolment service."""
    hub_session: str = field(default="", metadata=_env("CONVOY_HUB_SESSION"))
    """host:port of the hub's session service; empty: the host of `hub` at 8471."""
    token_file: Path = field(
        default=Path("/var/run/secrets/convoy.dev/token"), metadata=_env("CONVOY_TOKEN_FILE")
    )
    """Projected service-account token with the audience convoy-hub; the kubelet rotates it."""
    ca_file: Path = field(default=Path("/etc/convoy/ca/ca.crt"), metadata=_env("CONVOY_CA_FILE"))
    """PEM certificates the hub and other agents must chain to."""
    run_dir: Path = field(default=Path("/run/convoy"), metadata=_env("CONVOY_RUN_DIR"))
    """Sockets, pods' folders, state. The same path on the node and in the agent's container."""
    kubelet_dir: Path = field(default=Path("/var/lib/kubelet"), metadata=_env("CONVOY_KUBELET_DIR"))
    """The kubelet's root folder, at the same path in the agent's container."""
    stores_dir: Path = field(default=Path(STORES_PATH), metadata=_env("CONVOY_STORES_DIR"))
    """Where claims of CheckpointStores are mounted, each in a folder of its name; a path without links."""
    peer_port: int = field(default=8472, metadata=_env("CONVOY_PEER_PORT"))
    """TCP port of the Peer service; 0 lets the system choose."""
    metrics_port: int = field(default=8082, metadata=_env("CONVOY_METRICS_PORT"))
    """TCP port of /metrics, /healthz and /readyz; 0 lets the system choose."""
    api_host: str = field(default="", metadata=_env("KUBERNETES_SERVICE_HOST"))
    """Address of the API server, as the kubelet tells every container. All that is ever asked of it is
    whether anything answers there. Empty: nothing does."""
    api_port: int = field(default=443, metadata=_env("KUBERNETES_SERVICE_PORT"))
    """TCP port of the API server."""
    garbage_seconds: float = field(default=60.0, metadata=_env("CONVOY_GARBAGE_SECONDS"))
    """Seconds between looks for folders whose mount is gone; one look costs about a millisecond."""
    checkpoint_memory: int = field(default=0, metadata=_env("CONVOY_CHECKPOINT_MEMORY"))
    """Bytes of the node's memory that jobs may fill with checkpoints. The container's own limit must cover it
    besides what the agent needs."""
    copy_rate: float = field(default=0.0, metadata=_env("CONVOY_COPY_RATE"))
    """Most bytes per second of checkpoints that are sent to other nodes; 0 for no bound."""
    scrub_seconds: float = field(default=600.0, metadata=_env("CONVOY_SCRUB_SECONDS"))
    """Between two looks at every byte of the checkpoints in memory; damage is rare, and slow to multiply."""
    probe_dir: Path = field(default=Path("/tmp"), metadata=_env("CONVOY_PROBE_DIR"))  # noqa: S108
    """A folder on the disk that health sweeps measure; nothing is left there."""
    probe_python: str = field(default="", metadata=_env("CONVOY_PROBE_PYTHON"))
    """An interpreter that has torch, for probes of accelerators; empty for the agent's own."""
    log_level: str = field(default="INFO", metadata=_env("CONVOY_LOG_LEVEL"))
    """DEBUG, INFO, WARNING or ERROR."""

    def __post_init__(self) -> None:
        longest = len(str(self.run_dir).encode()) + len(LONGEST_SOCKET)
        if longest > SUN_PATH_LIMIT:
            raise SettingsError(
                f"CONVOY_RUN_DIR: {self.run_dir} makes socket paths of {longest} bytes, "
                f"the kernel takes {SUN_PATH_LIMIT}: choose a shorter folder"
            )
        if not self.run_dir.is_absolute() or not self.kubelet_dir.is_absolute():
            raise SettingsError("CONVOY_RUN_DIR and CONVOY_KUBELET_DIR must be absolute paths")
        if self.log_level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise SettingsError(f"CONVOY_LOG_LEVEL: {self.log_level!r} is not DEBUG, INFO, WARNING or ERROR")

    @property
    def session_address(self) -> str:
        """host:port to dial for a session when no leader has been named."""
        return self.hub_session or f"{self.hub.rpartition(':')[0]}:8471"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Reads every variable; SettingsError names the first that is missing or does not parse."""
        values: dict[str, object] = {}
        for entry in fields(cls):
            name: str = entry.metadata["env"]
            text = environ.get(name, "")
            if not text:
                if entry.name in {"node", "pod_ip"}:
                    raise SettingsError(f"{name} is not set")
                continue
            convert = {"int": int, "float": float, "Path": Path}.get(str(entry.type), str)
            try:
                values[entry.name] = convert(text)
            except ValueError as error:
                raise SettingsError(f"{name}: {text!r} is not a number") from error
        return cls(**values)  # type: ignore[arg-type]  # each value was converted to its field's type
