"""The agent's settings, read from environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from convoy_crds.terms import STORES_PATH

SUN_PATH_LIMIT = 107
"""Maximum bytes of a Unix socket's path (Linux `sockaddr_un` without its terminator)."""
LONGEST_SOCKET = "/pods/0123456789abcdef/agent.sock.new"


class SettingsError(ValueError):
    """An environment variable is missing or invalid. The error message names the variable."""


def _env(name: str) -> dict[str, str]:
    return {"env": name}


_CONVERSIONS: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "Path": Path,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}
"""Function that converts the text of a variable, by type of the field. Other fields keep the text."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the agent. Each field's metadata names its environment variable. A field without a
    default is required.
    """

    node: str = field(metadata=_env("CONVOY_NODE_NAME"))
    """Name of the Kubernetes node (downward API spec.nodeName)."""
    pod_ip: str = field(metadata=_env("CONVOY_POD_IP"))
    """Address at which other agents reach this agent (downward API status.podIP)."""
    hub: str = field(default="convoy-hub.convoy-system.svc:8470", metadata=_env("CONVOY_HUB"))
    """host:port of the hub's enrolment service."""
    hub_session: str = field(default="", metadata=_env("CONVOY_HUB_SESSION"))
    """host:port of the hub's session service. If it is empty, the agent uses port 8471 of the host in
    `hub`.
    """
    token_file: Path = field(
        default=Path("/var/run/secrets/convoy.dev/token"), metadata=_env("CONVOY_TOKEN_FILE")
    )
    """File with the projected service-account token for the audience convoy-hub. The kubelet rotates the
    token.
    """
    ca_file: Path = field(default=Path("/etc/convoy/ca/ca.crt"), metadata=_env("CONVOY_CA_FILE"))
    """PEM file with the certificate authorities of the hub's and the agents' certificates."""
    run_dir: Path = field(default=Path("/run/convoy"), metadata=_env("CONVOY_RUN_DIR"))
    """Folder for sockets, pods' folders and state. The folder has the same path on the node and in the
    agent's container.
    """
    kubelet_dir: Path = field(default=Path("/var/lib/kubelet"), metadata=_env("CONVOY_KUBELET_DIR"))
    """The kubelet's root folder. The folder has the same path on the node and in the agent's container."""
    stores_dir: Path = field(default=Path(STORES_PATH), metadata=_env("CONVOY_STORES_DIR"))
    """Folder with the mounted volume claims of CheckpointStores, one subfolder per claim. The path must not
    contain symbolic links.
    """
    models_dir: Path = field(default=Path("/var/lib/convoy/models"), metadata=_env("CONVOY_MODELS_DIR"))
    """Folder on the node's disk with the models of serving pods."""
    model_limit: int = field(default=0, metadata=_env("CONVOY_MODEL_LIMIT"))
    """Maximum bytes of all models on the node; 0 for no limit."""
    model_reserve: int = field(default=0, metadata=_env("CONVOY_MODEL_RESERVE"))
    """Bytes of the disk that models leave free. The kubelet evicts pods if too little of the disk is free."""
    model_reserve_percent: int = field(default=0, metadata=_env("CONVOY_MODEL_RESERVE_PERCENT"))
    """Percentage of the disk that models leave free, if it is more than `model_reserve`."""
    peer_port: int = field(default=8472, metadata=_env("CONVOY_PEER_PORT"))
    """TCP port of the Peer service. With 0 the kernel chooses a port."""
    metrics_port: int = field(default=8082, metadata=_env("CONVOY_METRICS_PORT"))
    """TCP port of /metrics, /healthz and /readyz. With 0 the kernel chooses a port."""
    api_host: str = field(default="", metadata=_env("KUBERNETES_SERVICE_HOST"))
    """Address of the API server, set by the kubelet in every container. The agent only tests whether the
    address is reachable. An empty address counts as unreachable.
    """
    api_port: int = field(default=443, metadata=_env("KUBERNETES_SERVICE_PORT"))
    """TCP port of the API server."""
    garbage_seconds: float = field(default=60.0, metadata=_env("CONVOY_GARBAGE_SECONDS"))
    """Seconds between two searches for stale pod folders. One search takes about a millisecond."""
    checkpoint_memory: int = field(default=0, metadata=_env("CONVOY_CHECKPOINT_MEMORY"))
    """Bytes of the node's memory that all jobs together may use for checkpoints. The container's memory
    limit must be larger, because the agent needs memory itself.
    """
    copy_rate: float = field(default=0.0, metadata=_env("CONVOY_COPY_RATE"))
    """Maximum bytes per second for sending checkpoints to other nodes; 0 for no limit."""
    scrub_seconds: float = field(default=600.0, metadata=_env("CONVOY_SCRUB_SECONDS"))
    """Maximum seconds between two integrity checks of all checkpoints in memory. Damage is rare, so a long
    interval suffices.
    """
    probe_dir: Path = field(default=Path("/tmp"), metadata=_env("CONVOY_PROBE_DIR"))  # noqa: S108
    """Folder on the disk whose speed health sweeps measure. Probes leave no files in the folder."""
    probe_python: str = field(default="", metadata=_env("CONVOY_PROBE_PYTHON"))
    """Path of a Python interpreter with torch, for accelerator probes. If it is empty, the agent's own
    interpreter runs them.
    """
    fault_injection: bool = field(default=False, metadata=_env("CONVOY_FAULT_INJECTION"))
    """`true` to let the operator inject faults into pods of Experiments on this node."""
    node_root: Path = field(default=Path("/proc/1/root"), metadata=_env("CONVOY_NODE_ROOT"))
    """Root folder of the node, for faults. The default needs the node's process namespace (hostPID)."""
    fake_notices: str = field(default="", metadata=_env("CONVOY_FAKE_NOTICES"))
    """Address of the notice source Fake, for tests: file:///PATH, or http://HOST:PORT/PREFIX. If it is empty,
    the source is not allowed.
    """
    log_level: str = field(default="INFO", metadata=_env("CONVOY_LOG_LEVEL"))
    """Log level: DEBUG, INFO, WARNING or ERROR."""

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
        """Return the host:port at which the agent requests a session while it does not know the leader's
        address.
        """
        return self.hub_session or f"{self.hub.rpartition(':')[0]}:8471"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read all settings from environment variables. Raises SettingsError for a missing or invalid
        variable.
        """
        values: dict[str, object] = {}
        for entry in fields(cls):
            name: str = entry.metadata["env"]
            text = environ.get(name, "")
            if not text:
                if entry.name in {"node", "pod_ip"}:
                    raise SettingsError(f"{name} is not set")
                continue
            convert = _CONVERSIONS.get(str(entry.type), str)
            try:
                values[entry.name] = convert(text)
            except (ValueError, KeyError) as error:
                wanted = "true or false" if entry.type == "bool" else "a number"
                raise SettingsError(f"{name}: {text!r} is not {wanted}") from error
        return cls(**values)  # type: ignore[arg-type]  # each value was converted to its field's type
