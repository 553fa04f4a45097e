"""The operator's own metrics: prefix `convoy_`, base units, labels of bounded sets only."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from convoy_crds.trainingjob import Phase

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self, version: str = "") -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.build_info = Gauge(
            "convoy_build_info", "1, with the version as a label.", ["version", "python"], registry=registry
        )
        self.build_info.labels(version, platform.python_version()).set(1)
        self.reconcile_seconds = Histogram(
            "convoy_reconcile_seconds",
            "Time of one reconcile.",
            ["kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.reconcile_errors = Counter(
            "convoy_reconcile_errors",
            "Reconciles that did not finish, by cause: api, conflict or bug.",
            ["kind", "cause"],
            registry=registry,
        )
        self.queue_depth = Gauge("convoy_queue_depth", "Keys that wait for a worker.", registry=registry)
        self.queue_seconds = Histogram(
            "convoy_queue_seconds",
            "Time a key waited for a worker once due.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.api_requests = Counter(
            "convoy_api_requests",
            "Requests to the API server by verb, resource and status code (0: no answer).",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.api_seconds = Histogram(
            "convoy_api_request_seconds",
            "Time of a request to the API server.",
            ["verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.api_wait_seconds = Counter(
            "convoy_api_throttle_seconds",
            "Time requests waited for the client's own limit.",
            registry=registry,
        )
        self.relists = Counter(
            "convoy_watch_relists", "LISTs made to repair or begin a watch.", ["resource"], registry=registry
        )
        self.leader = Gauge("convoy_leader", "1 while this replica leads.", registry=registry)
        self.agents = Gauge("convoy_agents_connected", "Node agents with a live session.", registry=registry)
        self.agents_alarm = Gauge(
            "convoy_agents_silent_alarm",
            "1 while so many agents are silent at once that the operator's own network is suspected.",
            registry=registry,
        )
        self.nodes_silent = Gauge(
            "convoy_nodes_silent",
            "Nodes whose agent is silent and believed to be.",
            registry=registry,
        )
        self.agent_messages = Counter(
            "convoy_agent_messages", "Messages from node agents by type.", ["type"], registry=registry
        )
        self.enrolments = Counter(
            "convoy_enrolments", "Certificates asked for by outcome.", ["outcome"], registry=registry
        )
        self.commands_dropped = Counter(
            "convoy_agent_commands_dropped", "Commands an agent could not be given.", registry=registry
        )
        self.events_dropped = Counter(
            "convoy_events_dropped",
            "Events not posted: repeated, too many, or refused.",
            ["cause"],
            registry=registry,
        )
        self.jobs = Gauge("convoy_jobs", "TrainingJobs by phase.", ["phase"], registry=registry)
        self.goodput_seconds = Counter(
            "convoy_goodput_seconds",
            "Seconds of all TrainingJobs by their one cause, see status.goodput.",
            ["cause"],
            registry=registry,
        )
        self.restarts = Counter(
            "convoy_restarts",
            "Restarts of TrainingJobs by reason, and whether they count against spec.recovery.maxRestarts.",
            ["reason", "counted"],
            registry=registry,
        )
        self.guard_windows = Counter(
            "convoy_guard_windows", "Windows of steps that ranks have told of.", registry=registry
        )
        self.guard_seconds = Counter(
            "convoy_guard_detector_seconds", "Time spent on looking for stragglers.", registry=registry
        )
        self.guard_canaries = Counter(
            "convoy_guard_canaries",
            "Turns of whether a rank that was made up to be slow was found: Sees, Blind, Untried.",
            ["sight"],
            registry=registry,
        )
        self.guard_nodes = Gauge(
            "convoy_guard_nodes", "Nodes' hardware by its state of health.", ["state"], registry=registry
        )
        self.guard_breakers = Gauge(
            "convoy_guard_breakers_open", "GuardPolicies whose breaker is not closed.", registry=registry
        )
        self.guard_sweeps = Counter(
            "convoy_guard_sweeps", "Nodes that health sweeps have judged.", ["verdict"], registry=registry
        )
        self.guard_evictions = Counter(
            "convoy_guard_evictions", "Pods that were moved off nodes out of service.", registry=registry
        )
        # A counter that first appears with its first error hides that error from rate().
        for cause in ("api", "conflict", "bug"):
            for kind in ("TrainingJob", "Engine"):
                self.reconcile_errors.labels(kind, cause)
        for phase in Phase:
            self.jobs.labels(phase.value)
        for outcome in ("issued", "refused", "failed"):
            self.enrolments.labels(outcome)
