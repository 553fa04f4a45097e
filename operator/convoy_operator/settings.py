"""The operator's settings. The variable of a setting is `CONVOY_` and the attribute's name in capitals."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from convoy_controllers import progress_throttle, queue_timings
from convoy_controllers.liveness import timings
from convoy_controllers.workers.network import NetworkSettings
from convoy_crds.guardpolicy import Mode
from convoy_crds.meta import in_bytes
from convoy_crds.trainingjob_checkpoint import CheckpointDefault, CheckpointDefaults

PREFIX = "CONVOY_"
CA_MAKERS = ("Operator", "CertManager")
NO_POLICY = "None"
"""Value of `default_policy` with which the operator deletes the GuardPolicy `default`."""
DEFAULT_POLICIES = ("", *(mode.value for mode in Mode), NO_POLICY)


class SettingError(ValueError):
    """Raised for an invalid setting. The message names the variable and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one operator process. Times are in seconds."""

    namespace: str = "convoy-system"
    """Namespace that contains the operator, its Lease, its CA and the agents."""
    pod_name: str = ""
    """Name of this replica in the Lease and in Events. If empty, the host's name is used."""
    pod_ip: str = "127.0.0.1"
    """Address at which agents reach this replica's hub. The chart sets it from `status.podIP`."""

    engines_dir: str = ""
    """Folder of Engine manifests that a new leader applies. If empty, no Engines are applied."""
    default_policy: str = ""
    """Mode of the GuardPolicy `default` that a new leader applies: `Observe` or `Act`. With `None`, the
    leader deletes the policy. If empty, the leader does neither.
    """
    checkpoints_default: str = CheckpointDefault.NONE.value
    """Tiers of jobs with an empty `spec.checkpoint.tiers`: `Memory` or `None`. A job's own
    `spec.checkpoint.default` takes precedence.
    """
    checkpoints_most: str = ""
    """Maximum memory of such a job on one node, such as 8Gi. If empty, only half of the memory of the node's
    agent limits the job.
    """
    network_policies: int = 0
    """1 if each job gets NetworkPolicies, otherwise 0."""

    workers: int = 16
    """Number of concurrent reconciles. A reconcile mostly waits for the API server, and 16 reconciles are
    enough to keep the API server busy.
    """
    resync_seconds: float = 600.0
    """Seconds between two LISTs of all resources. A LIST repairs changes that a watch lost. Ten minutes
    keep the cost low.
    """
    debounce_seconds: float = queue_timings.DEBOUNCE_SECONDS
    """Seconds for which changes of children are collected before a reconcile. The pods of a job change
    together, so one reconcile handles many changes. Users do not notice 0.15 s.
    """
    backoff_min_seconds: float = queue_timings.BACKOFF_MIN_SECONDS
    """Back-off in seconds after the first failed reconcile."""
    backoff_max_seconds: float = queue_timings.BACKOFF_MAX_SECONDS
    """Maximum back-off in seconds after repeated failures."""
    parallel_creates: int = 50
    """Maximum number of pods of one job that are created at the same time. The limit leaves room for the
    requests of other jobs.
    """
    progress_seconds: float = progress_throttle.PROGRESS_SECONDS
    """Minimum number of seconds between two progress writes of one job."""
    progress_writes_per_second: float = progress_throttle.WRITES_PER_SECOND
    """Maximum number of progress writes per second for all jobs together. With more jobs, each job writes
    less often. etcd should get at most 5 status writes per second in total; the remaining one is
    reserved for changes of state.
    """

    qps: float = 100.0
    """Maximum average number of requests per second to the API server, for each gateway. An operator has
    three gateways (see app.py). With 0, only the server's Priority and Fairness limits the requests.
    """
    burst: int = 200
    """Number of requests that one gateway may send at once after an idle time."""
    request_seconds: float = 30.0
    """Timeout of one request to the API server in seconds. A large LIST needs most of this time."""
    request_tries: int = 4
    """Maximum number of attempts of one request, including the first. Retries also need the retry budget."""
    connections: int = 64
    """Maximum number of connections to the API server. Workers, parallel creates and watches share them."""
    list_page: int = 500
    """Number of objects per page of a LIST, the same as in kubectl."""
    watch_seconds: float = 290.0
    """Maximum duration of one watch in seconds. A random part of up to a fifth is subtracted, so that
    replicas do not reconnect at the same time.
    """
    watch_silence_seconds: float = 75.0
    """Seconds without a byte after which a watch counts as broken. The API server sends a bookmark every
    minute.
    """

    lease_seconds: int = 8
    """Seconds without a renewal after which another replica may replace the leader."""
    renew_seconds: float = 5.0
    """Seconds without a successful renewal after which a leader stops leading. This is 3 s before another
    replica may take over.
    """
    retry_seconds: float = 1.0
    """Seconds between two attempts to acquire or renew the Lease."""

    hub_bind: str = ""
    """Address on which the hub's two ports listen. If empty, they listen on all IPv4 and IPv6 addresses."""
    enrolment_port: int = 8470
    """Port at which agents request certificates. It uses TLS with a server certificate."""
    session_port: int = 8471
    """Port of the agents' streams. It uses mutual TLS."""
    agent_service_account: str = "convoy-agent"
    """Service account of the agents in the operator's namespace. Its tokens entitle an agent to a
    certificate.
    """
    agent_quiet_seconds: float = timings.PROBE_AFTER_SECONDS
    """Seconds without a message from an agent after which the hub probes the agent's node."""
    agent_silent_seconds: float = timings.SILENT_SECONDS
    """Seconds without a message after which an agent counts as not connected. An agent sends a heartbeat
    every second.
    """
    agent_grace_seconds: float = timings.GRACE_SECONDS
    """Seconds for which a new leader waits for agents to connect before it considers an agent absent."""
    agent_unready_seconds: float = timings.UNREADY_SECONDS
    """Seconds without a message from an agent after which its node loses the agent-ready label, even if the
    node replies to probes. This must be longer than an agent needs for a restart.
    """
    ca_maker: str = "Operator"
    """Creator of the certificate authority: `Operator` or `CertManager`. With `CertManager`, the operator
    waits for the Secret.
    """
    certificate_hours: float = 24.0
    """Lifetime of an agent's certificate in hours. An agent renews its certificate after two thirds of it."""

    metrics_port: int = 8080
    """Port of the path /metrics."""
    probe_port: int = 8081
    """Port of the paths /healthz and /readyz."""
    http_bind: str = ""
    """Address on which the metrics and probe ports listen. If empty, they listen on all IPv4 and IPv6
    addresses.
    """
    log_level: str = "INFO"
    """Minimum level of logged messages: DEBUG, INFO, WARNING or ERROR."""

    @property
    def name(self) -> str:
        """Return the name of this replica."""
        return self.pod_name or socket.gethostname()

    def checkpoint_defaults(self) -> CheckpointDefaults:
        """Return the settings for jobs without tiers. Raises ValueError for an invalid quantity."""
        most = in_bytes(self.checkpoints_most) if self.checkpoints_most else 0
        return CheckpointDefaults(CheckpointDefault(self.checkpoints_default), most)

    def network(self) -> NetworkSettings:
        """Return the settings for the NetworkPolicies of jobs."""
        return NetworkSettings(self.network_policies == 1, self.namespace)

    @property
    def hub_address(self) -> str:
        """Return the address and port at which agents reach the session port of this replica."""
        return host_port(self.pod_ip, self.session_port)


def host_port(host: str, port: int) -> str:
    """Return `host:port`. An IPv6 address is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in the `CONVOY_*` variables. Raises SettingError for an invalid value."""
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
    if settings.default_policy not in DEFAULT_POLICIES:
        allowed = ", ".join(name for name in DEFAULT_POLICIES if name)
        raise SettingError(f"CONVOY_DEFAULT_POLICY={settings.default_policy!r} is not one of {allowed}")
    if settings.checkpoints_default not in list(CheckpointDefault):
        allowed = ", ".join(CheckpointDefault)
        given_text = f"CONVOY_CHECKPOINTS_DEFAULT={settings.checkpoints_default!r}"
        raise SettingError(f"{given_text} is not one of {allowed}")
    if settings.network_policies not in (0, 1):
        raise SettingError(f"CONVOY_NETWORK_POLICIES={settings.network_policies} is not 0 or 1")
    try:
        settings.checkpoint_defaults()
    except ValueError:
        given_text = f"CONVOY_CHECKPOINTS_MOST={settings.checkpoints_most!r}"
        raise SettingError(f"{given_text} is not a quantity, such as 8Gi") from None
    if settings.workers < 1 or settings.parallel_creates < 1 or settings.request_tries < 1:
        raise SettingError(
            "CONVOY_WORKERS, CONVOY_PARALLEL_CREATES and CONVOY_REQUEST_TRIES must be at least 1"
        )
    return settings
