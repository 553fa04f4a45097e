"""The operator's metrics. Their names begin with `convoy_`, they use base units, and each label has a
bounded set of values.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.controller import Controller, labelled_resources
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.guard.canary import CanaryResult
from convoy_controllers.resources import NODES, PODS
from convoy_controllers.servingjob import attention as serving_attention
from convoy_controllers.trainingjob import attention
from convoy_controllers.trainingjob.timeline import RecoveryPhase
from convoy_controllers.workers.policy import POLICIES
from convoy_crds.goodput import Cause
from convoy_crds.nodehealth import State, Verdict
from convoy_crds.trainingjob_status import Phase
from convoy_operator.autoscaler_metrics import AutoscalerMetrics
from convoy_operator.independent_metrics import IndependentMetrics
from convoy_operator.kind_metrics import KindMetrics
from convoy_operator.placement_metrics import PlacementMetrics
from convoy_operator.trace_metrics import TraceMetrics

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RECOVERY_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_LOST_STEPS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_AGES = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 14_400)

SERVING_STATES = ("Available", "Unavailable", "Suspended")
"""States of a ServingJob. Unavailable: a role has too few ready replicas."""
REPLICA_STATES = ("desired", "ready", "updated")
VERBS = ("get", "list", "create", "dry_run", "delete", "patch", "patch_status", "apply", "evict")
"""Verbs of the requests to the API server whose duration is measured. Watches are not measured, because a
watch lasts until one side ends it.
"""

# Drop the creation timestamps of series, which would be half of all series.
disable_created_metrics()  # type: ignore[no-untyped-call]

M = TypeVar("M", bound=MetricWrapperBase)


class Metrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self, version: str = "", controllers: Sequence[Controller[Any]] = CONTROLLERS) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        text = "Always 1; the labels are the versions of the operator and of Python."
        self.build_info = Gauge("convoy_build_info", text, ["version", "python"], registry=self.registry)
        self.build_info.labels(version, platform.python_version()).set(1)
        self._process(controllers)
        self._hub()
        self._jobs()
        self._serving()
        self.independent = IndependentMetrics(self.registry)
        self.placement = PlacementMetrics(self.registry)
        self.traces = TraceMetrics(self.registry)
        self.autoscaler = AutoscalerMetrics(self.registry)
        self.kinds = KindMetrics(self.registry)
        self._guard()

    def _process(self, controllers: Sequence[Controller[Any]]) -> None:
        """Create the metrics of reconciles, the API server, watches and the event loop."""
        registry, kinds = self.registry, [one.resource.kind for one in controllers]
        own = [one for one in controllers if one.kind is not None]
        reflected = [one.resource.plural for one in own if one.reflector]
        watched = [
            PODS.plural,
            NODES.plural,
            *reflected,
            *(one.plural for one in labelled_resources(controllers)),
        ]
        listed = [*watched, *(one.resource.plural for one in own if not one.reflector)]
        self.leader = Gauge("convoy_leader", "1 while this replica leads.", registry=registry)
        self.loop_late_seconds = Histogram(
            "convoy_event_loop_late_seconds",
            "Delay of the leader's event loop, measured five times a second.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reconcile_seconds = _all(
            Histogram(
                "convoy_reconcile_seconds",
                "Duration of one reconcile.",
                ["kind"],
                buckets=_SECONDS,
                registry=registry,
            ),
            kinds,
        )
        self.reconcile_errors = _all(
            Counter(
                "convoy_reconcile_errors",
                "Reconciles that did not finish, by cause: api, conflict or bug.",
                ["kind", "cause"],
                registry=registry,
            ),
            kinds,
            ["api", "conflict", "bug"],
        )
        self.queue_depth = Gauge(
            "convoy_queue_depth", "Keys in the leader's work queue that wait for a worker.", registry=registry
        )
        self.queue_seconds = Histogram(
            "convoy_queue_seconds",
            "Time from the moment a key was due until a worker started it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.api_requests = Counter(
            "convoy_api_requests",
            "Requests to the API server by verb, resource and status code (0: no response).",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.api_seconds = _all(
            Histogram(
                "convoy_api_request_seconds",
                "Duration of a request to the API server, without the wait for the client's rate limit.",
                ["verb"],
                buckets=_SECONDS,
                registry=registry,
            ),
            VERBS,
        )
        self.api_wait_seconds = Counter(
            "convoy_api_throttle_seconds",
            "Time that requests waited for the client's rate limits.",
            registry=registry,
        )
        text = "LISTs made to start or repair a watch."
        relists = Counter("convoy_watch_relists", text, ["resource"], registry=registry)
        self.relists = _all(relists, listed)
        self.watch_errors = _all(
            Counter(
                "convoy_watch_errors",
                "Watches and their LISTs that were refused, broken off or silent.",
                ["resource"],
                registry=registry,
            ),
            watched,
        )
        self.watch_heard = _all(
            Gauge(
                "convoy_watch_heard_timestamp_seconds",
                "Time of a watch's last event or bookmark; the API server sends a bookmark every minute.",
                ["resource"],
                registry=registry,
            ),
            watched,
        )
        self.events_dropped = _all(
            Counter(
                "convoy_events_dropped",
                "Events not posted, by cause: repeated, too many, queue full or refused.",
                ["cause"],
                registry=registry,
            ),
            ["repeated", "too_many", "queue_full", "refused"],
        )

    def _hub(self) -> None:
        """Create the metrics of the hub and the agents."""
        registry = self.registry
        self.agents = Gauge("convoy_agents_connected", "Node agents that are connected.", registry=registry)
        self.agents_alarm = Gauge(
            "convoy_agents_silent_alarm",
            "1 while so many agents are silent at once that the operator's own network is the likely cause.",
            registry=registry,
        )
        self.nodes_silent = Gauge(
            "convoy_nodes_silent",
            "Nodes whose agent the operator considers silent.",
            registry=registry,
        )
        self.agent_messages = _all(
            Counter(
                "convoy_agent_messages", "Messages from node agents, by type.", ["type"], registry=registry
            ),
            [*(one.name for one in wire.AgentMessage.DESCRIPTOR.oneofs_by_name["body"].fields), "unknown"],
        )
        self.agent_streams_refused = Counter(
            "convoy_agent_streams_refused",
            "Streams of node agents refused over the message rate or the number of streams.",
            registry=registry,
        )
        self.enrolments = _all(
            Counter(
                "convoy_enrolments",
                "Certificate requests of agents, by outcome.",
                ["outcome"],
                registry=registry,
            ),
            ["issued", "refused", "failed", "crowded"],
        )
        self.commands_dropped = Counter(
            "convoy_agent_commands_dropped", "Commands that could not be sent to an agent.", registry=registry
        )
        self.certificate_expiry = _all(
            Gauge(
                "convoy_hub_certificate_expiry_timestamp_seconds",
                "Expiry of the hub's certificate, which the hub renews itself, and of its CA's.",
                ["certificate"],
                registry=registry,
            ),
            ["hub", "authority"],
        )

    def _jobs(self) -> None:
        """Create the metrics of TrainingJobs: phases, goodput and recoveries."""
        registry = self.registry
        self.jobs = _all(
            Gauge("convoy_jobs", "TrainingJobs by phase.", ["phase"], registry=registry), [*Phase]
        )
        self.jobs_waiting = _all(
            Gauge(
                "convoy_jobs_need_attention",
                "TrainingJobs that need a person's action, by the reason in their conditions.",
                ["reason"],
                registry=registry,
            ),
            sorted(attention.REASONS),
        )
        self.engine_metrics = Gauge(
            "convoy_engine_metric",
            "Newest value of a metric that an Engine declares, as the mean over its running TrainingJobs.",
            ["engine", "name"],
            registry=registry,
        )
        self.goodput_seconds = _all(
            Counter(
                "convoy_goodput_seconds",
                "Seconds of all TrainingJobs, by cause as in status.goodput.",
                ["cause"],
                registry=registry,
            ),
            [*Cause],
        )
        self.restarts = Counter(
            "convoy_restarts",
            "Restarts of TrainingJobs, by reason and by whether spec.recovery.maxRestarts counts them.",
            ["reason", "counted"],
            registry=registry,
        )
        for name, policy in POLICIES.items():
            if not policy.terminal:
                self.restarts.labels(name, "true" if policy.counted else "false")
        self.recovery_seconds = _all(
            Histogram(
                "convoy_recovery_seconds",
                "Duration of a TrainingJob's restart, from the fault to the end of the next step, by phase.",
                ["phase"],
                buckets=_RECOVERY_SECONDS,
                registry=registry,
            ),
            [*RecoveryPhase],
        )
        self.lost_steps = Histogram(
            "convoy_restart_lost_steps",
            "Steps lost by a restart since the newest checkpoint, for jobs with spec.checkpoint.tiers.",
            buckets=_LOST_STEPS,
            registry=registry,
        )
        self.checkpoint_age = Histogram(
            "convoy_restart_checkpoint_age_seconds",
            "Age of the newest checkpoint at the time of the fault that caused a restart.",
            buckets=_AGES,
            registry=registry,
        )

    def _serving(self) -> None:
        """Create the metrics of ServingJobs: replicas, requests and rollouts."""
        registry = self.registry
        self.serving_jobs = _all(
            Gauge("convoy_serving_jobs", "ServingJobs by state.", ["state"], registry=registry),
            SERVING_STATES,
        )
        self.serving_replicas = _all(
            Gauge(
                "convoy_serving_replicas",
                "Replicas of all ServingJobs: desired, ready, and ready with the newest revision.",
                ["state"],
                registry=registry,
            ),
            REPLICA_STATES,
        )
        self.serving_waiting = _all(
            Gauge(
                "convoy_serving_jobs_need_attention",
                "ServingJobs that need a person's action, by the reason in their conditions.",
                ["reason"],
                registry=registry,
            ),
            sorted(serving_attention.REASONS),
        )
        self.serving_rollouts = _all(
            Counter(
                "convoy_serving_rollouts",
                "Rollouts of ServingJobs that ended or halted, by result.",
                ["result"],
                registry=registry,
            ),
            ["complete", "halted"],
        )
        self.serving_restarts = Counter(
            "convoy_serving_restarts",
            "Restarts of replicas that count against spec.recovery.maxRestarts.",
            registry=registry,
        )
        self.serving_requests = Gauge(
            "convoy_serving_requests_per_second",
            "Requests per second of all ServingJobs, from their status.",
            registry=registry,
        )
        self.serving_queue = Gauge(
            "convoy_serving_queue",
            "Requests of all ServingJobs that wait, from their status.",
            registry=registry,
        )
        self.serving_in_flight = Gauge(
            "convoy_serving_in_flight",
            "Requests of all ServingJobs that are being computed, from their status.",
            registry=registry,
        )
        self.serving_p95 = Gauge(
            "convoy_serving_slowest_latency_seconds",
            "Highest 95th percentile of the duration of requests among all ServingJobs.",
            registry=registry,
        )

    def _guard(self) -> None:
        """Create the metrics of slow nodes."""
        registry = self.registry
        self.guard_windows = Counter(
            "convoy_guard_windows", "Step windows reported by ranks.", registry=registry
        )
        self.guard_windows_dropped = Counter(
            "convoy_guard_windows_dropped",
            "Step windows skipped because they came faster than the detectors can process them.",
            registry=registry,
        )
        self.guard_seconds = Counter(
            "convoy_guard_detector_seconds", "Time spent on straggler detection.", registry=registry
        )
        self.guard_canaries = _all(
            Counter(
                "convoy_guard_canaries",
                "Changes of the canary's result: Detected, Missed or Untested (too few peers).",
                ["result"],
                registry=registry,
            ),
            [*CanaryResult],
        )
        self.guard_nodes = _all(
            Gauge("convoy_guard_nodes", "NodeHealths by state.", ["state"], registry=registry),
            [*State],
        )
        self.guard_breakers = Gauge(
            "convoy_guard_breakers_open", "GuardPolicies whose breaker is not closed.", registry=registry
        )
        self.guard_sweeps = _all(
            Counter(
                "convoy_guard_sweeps",
                "Nodes judged by health sweeps, by verdict.",
                ["verdict"],
                registry=registry,
            ),
            [*Verdict],
        )
        self.guard_swaps = Counter(
            "convoy_guard_swaps", "Pods swapped off nodes that are drained or tested.", registry=registry
        )


def _all(metric: M, *values: Iterable[str]) -> M:
    """Create a series for each combination of label values and return the metric.

    The series must exist before the first error. If a counter first appears with its first error, rate()
    does not see that error.
    """
    for chosen in itertools.product(*values):
        metric.labels(*chosen)
    return metric
