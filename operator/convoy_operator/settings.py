"""The operator's settings. An attribute's environment variable is `CONVOY_` + its name in capitals."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from convoy_controllers import progress_throttle, queue_timings
from convoy_controllers.liveness import timings

PREFIX = "CONVOY_"
CA_MAKERS = ("Operator", "CertManager")


class SettingError(ValueError):
    """A setting that cannot be used. The message names the variable and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one operator process. Times are seconds."""

    namespace: str = "convoy-system"
    """Namespace of the operator, its Lease, its CA and the agents."""
    pod_name: str = ""
    """Name of this replica in the Lease and in Events; the host's name if empty."""
    pod_ip: str = "127.0.0.1"
    """Address at which agents reach this replica's hub; the chart sets it from `status.podIP`."""

    engines_dir: str = ""
    """Folder of Engine manifests that a new leader applies; none if empty."""

    workers: int = 16
    """Number of concurrent reconciles. They mostly wait for the API server; 16 keep it busy."""
    resync_seconds: float = 600.0
    """Seconds between two LISTs of everything. A LIST repairs what a watch lost; ten minutes keep the cost
    low.
    """
    debounce_seconds: float = queue_timings.DEBOUNCE_SECONDS
    """Seconds for which changes of children are gathered: a job's pods change together, and users do not
    notice 0.15 s.
    """
    backoff_min_seconds: float = queue_timings.BACKOFF_MIN_SECONDS
    """Seconds of the first back-off after a failed reconcile."""
    backoff_max_seconds: float = queue_timings.BACKOFF_MAX_SECONDS
    """Seconds of the longest back-off after repeated failures."""
    parallel_creates: int = 50
    """Maximum number of pods of one job that are created at the same time, so that a large job leaves room
    for others.
    """
    progress_seconds: float = progress_throttle.PROGRESS_SECONDS
    """Shortest time in seconds between two progress writes of one job."""
    progress_writes_per_second: float = progress_throttle.WRITES_PER_SECOND
    """Progress writes per second of all jobs together. Status may cost etcd 5 writes per second; the rest
    is for changes of state. With more jobs, each writes less often.
    """

    qps: float = 100.0
    """Average requests per second to the API server, per gateway; an operator has three gateways (app.py).
    0 leaves the limit to the server's priority and fairness.
    """
    burst: int = 200
    """Requests that one gateway may send at once after an idle time."""
    request_seconds: float = 30.0
    """Timeout of one request to the API server in seconds; a large LIST needs most of it."""
    request_tries: int = 4
    """Maximum number of attempts of one request, the first included, while the retry budget lasts."""
    connections: int = 64
    """Connections to the API server, shared by workers, parallel creates and watches."""
    list_page: int = 500
    """Objects per page of a LIST, as in kubectl."""
    watch_seconds: float = 290.0
    """Duration of one watch in seconds, shortened at random by up to a fifth so that replicas do not
    reconnect together.
    """
    watch_silence_seconds: float = 75.0
    """Seconds without a byte after which a watch counts as dead: the API server sends a bookmark every
    minute.
    """

    lease_seconds: int = 8
    """Seconds without a renewal after which another replica may replace the leader."""
    renew_seconds: float = 5.0
    """Seconds without a successful renewal after which a leader gives up, 3 s before another may take over.
    """
    retry_seconds: float = 1.0
    """Seconds between two attempts to acquire or renew the Lease."""

    hub_bind: str = ""
    """Address of the hub's two ports; all IPv4 and IPv6 addresses if empty."""
    enrolment_port: int = 8470
    """Port at which agents request certificates (server TLS)."""
    session_port: int = 8471
    """Port of the agents' streams (mutual TLS)."""
    agent_service_account: str = "convoy-agent"
    """Service account in the operator's namespace whose tokens entitle to certificates."""
    agent_quiet_seconds: float = timings.PROBE_AFTER_SECONDS
    """Seconds of an agent's silence after which the hub probes its node."""
    agent_silent_seconds: float = timings.SILENT_SECONDS
    """Seconds of silence after which an agent counts as not connected; it sends a heartbeat every second."""
    agent_grace_seconds: float = timings.GRACE_SECONDS
    """Seconds that a new leader gives agents to connect before it judges any of them absent."""
    agent_unready_seconds: float = timings.UNREADY_SECONDS
    """Seconds of an agent's silence after which its node loses the agent-ready label, even if the node
    replies to probes. Longer than an agent's restart.
    """
    ca_maker: str = "Operator"
    """Creator of the certificate authority: Operator, or CertManager, whose Secret the operator then waits
    for.
    """
    certificate_hours: float = 24.0
    """Lifetime of an agent's certificate in hours; agents renew it after two thirds."""

    metrics_port: int = 8080
    """Port of /metrics."""
    probe_port: int = 8081
    """Port of /healthz and /readyz."""
    http_bind: str = ""
    """Address of the metrics and probe ports; all IPv4 and IPv6 addresses if empty."""
    log_level: str = "INFO"
    """Log level: DEBUG, INFO, WARNING or ERROR."""

    @property
    def name(self) -> str:
        """Name of this replica."""
        return self.pod_name or socket.gethostname()

    @property
    def hub_address(self) -> str:
        """Address and port at which agents dial this replica's sessions."""
        return host_port(self.pod_ip, self.session_port)


def host_port(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings from the `CONVOY_*` variables. Raise SettingError for a value that cannot be
    used.
    """
    given: dict[str, Any] = {}
    for item in fields(Settings):
        variable = PREFIX + item.name.upper()
        text = environ.get(variable)
        if text is None or item.default is MISSING:
            continue
        kind = type(item.default)
        try:
            given[item.name] = kind(text)
        except ValueError:
            raise SettingError(f"{variable}={text!r} is not of type {kind.__name__}") from None
        if kind in (int, float) and given[item.name] < 0:
            raise SettingError(f"{variable}={text!r} must not be negative")
    settings = Settings(**given)
    if not settings.retry_seconds * 1.2 < settings.renew_seconds < settings.lease_seconds:
        raise SettingError(
            "CONVOY_RENEW_SECONDS must be > 1.2 x CONVOY_RETRY_SECONDS and < CONVOY_LEASE_SECONDS"
        )
    if settings.ca_maker not in CA_MAKERS:
        raise SettingError(f"CONVOY_CA_MAKER={settings.ca_maker!r} is not one of {', '.join(CA_MAKERS)}")
    if settings.workers < 1 or settings.parallel_creates < 1 or settings.request_tries < 1:
        raise SettingError(
            "CONVOY_WORKERS, CONVOY_PARALLEL_CREATES and CONVOY_REQUEST_TRIES must be at least 1"
        )
    return settings
