"""What can be set about the operator: the variable of each attribute is `CONVOY_` + its name in capitals."""

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
    """A setting that cannot be used; names the variable and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one operator process. Times are seconds."""

    namespace: str = "convoy-system"
    """Namespace of the operator, its Lease, its CA and the agents."""
    pod_name: str = ""
    """Name of this replica in the Lease and in Events; the host's name when empty."""
    pod_ip: str = "127.0.0.1"
    """Address at which agents reach this replica's hub; the chart takes it from `status.podIP`."""

    engines_dir: str = ""
    """Folder of Engine manifests that the leader applies when it starts to lead; none when empty."""

    workers: int = 16
    """Reconciles at a time. They wait on the API server most of the time; 16 keep its round trips busy."""
    resync_seconds: float = 600.0
    """Time between two LISTs of everything. A LIST heals whatever a watch lost; ten minutes keep it cheap."""
    debounce_seconds: float = queue_timings.DEBOUNCE_SECONDS
    """How long news of children is gathered: a job's pods change together, and no user sees 0.15 s."""
    backoff_min_seconds: float = queue_timings.BACKOFF_MIN_SECONDS
    """First wait after a failed reconcile."""
    backoff_max_seconds: float = queue_timings.BACKOFF_MAX_SECONDS
    """Longest wait after failed reconciles in a row."""
    parallel_creates: int = 50
    """Pods of one job created at a time, so that one large job leaves room for others."""
    progress_seconds: float = progress_throttle.PROGRESS_SECONDS
    """Shortest time between two progress writes of one job."""
    progress_writes_per_second: float = progress_throttle.WRITES_PER_SECOND
    """Progress writes of all jobs together, of the 5 per second that status may cost etcd: the rest is for
    what turns. With more jobs each is written less."""

    qps: float = 100.0
    """Requests per second to the API server, on average; 0 leaves the limit to the server's own fairness. Of
    one gateway: an operator has three (app.py)."""
    burst: int = 200
    """Requests that may go at once after a quiet time, of one gateway."""
    request_seconds: float = 30.0
    """Deadline of one request to the API server; large LISTs need most of it."""
    request_tries: int = 4
    """Tries of one request, the first included, while the retry budget lasts."""
    connections: int = 64
    """Connections to the API server: workers, parallel creates and watches share them."""
    list_page: int = 500
    """Objects per page of a LIST, as kubectl has it."""
    watch_seconds: float = 290.0
    """Length of one watch, up to a fifth shorter at random so that replicas do not reconnect together."""
    watch_silence_seconds: float = 75.0
    """A watch without a byte for this long is dead: the API server sends a bookmark every minute."""

    lease_seconds: int = 8
    """A leader that has not renewed for this long may be replaced."""
    renew_seconds: float = 5.0
    """A leader that could not renew for this long gives up; leaves 3 s before another may take over."""
    retry_seconds: float = 1.0
    """Time between two tries to take or renew the Lease."""

    hub_bind: str = ""
    """Address that the hub's two ports are bound to; all of IPv4 and IPv6 when empty."""
    enrolment_port: int = 8470
    """Port where agents buy certificates (server TLS)."""
    session_port: int = 8471
    """Port of the agents' streams (mutual TLS)."""
    agent_service_account: str = "convoy-agent"
    """Service account, in the operator's namespace, whose tokens buy certificates."""
    agent_quiet_seconds: float = timings.PROBE_AFTER_SECONDS
    """From this silence of an agent on the hub asks others whether its node lives."""
    agent_silent_seconds: float = timings.SILENT_SECONDS
    """An agent that sent nothing for this long is not connected; it beats once per second."""
    agent_grace_seconds: float = timings.GRACE_SECONDS
    """Time a new leader gives agents to dial it before it judges any of them absent."""
    agent_unready_seconds: float = timings.UNREADY_SECONDS
    """An agent silent for this long loses its node's agent-ready label, also when the node answers; longer
    than an agent's restart."""
    ca_maker: str = "Operator"
    """Who makes the certificate authority: Operator, or CertManager, whose Secret is then waited for."""
    certificate_hours: float = 24.0
    """Life of an agent's certificate, in hours; agents renew at two thirds of it."""

    metrics_port: int = 8080
    """Port of /metrics."""
    probe_port: int = 8081
    """Port of /healthz and /readyz."""
    http_bind: str = ""
    """Address that metrics and probes are bound to; all of IPv4 and IPv6 when empty."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""

    @property
    def name(self) -> str:
        """This replica's name."""
        return self.pod_name or socket.gethostname()

    @property
    def hub_address(self) -> str:
        """Where agents dial this replica's session port."""
        return host_port(self.pod_ip, self.session_port)


def host_port(host: str, port: int) -> str:
    """host:port, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `CONVOY_*` variables; raises SettingError for a value that cannot be used."""
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
        raise SettingError("need 1.2 x CONVOY_RETRY_SECONDS < CONVOY_RENEW_SECONDS < CONVOY_LEASE_SECONDS")
    if settings.ca_maker not in CA_MAKERS:
        raise SettingError(f"CONVOY_CA_MAKER={settings.ca_maker!r} is none of {', '.join(CA_MAKERS)}")
    if settings.workers < 1 or settings.parallel_creates < 1 or settings.request_tries < 1:
        raise SettingError(
            "CONVOY_WORKERS, CONVOY_PARALLEL_CREATES and CONVOY_REQUEST_TRIES must be at least 1"
        )
    return settings
