"""The metrics of the placement of TrainingJobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from convoy_crds.placement import GangBackend, QueueState
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import TERMINAL, Phase

BACKENDS = tuple(one.value for one in GangBackend if one is not GangBackend.AUTO)
"""Backends that may be in use. A job with `gang: Auto` uses one of them."""
STATES = ("waiting", "placed")
_FORMING = (None, Phase.PENDING, Phase.RESTARTING)


class PlacementMetrics:
    """The metrics of the gangs, queues, claims and rings of all TrainingJobs that have not ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.gangs = Gauge(
            "convoy_gangs",
            "TrainingJobs with pods by gang backend and state. A waiting job does not run, and a pod of it "
            "has no node.",
            ["backend", "state"],
            registry=registry,
        )
        self.queued = Gauge(
            "convoy_queued_jobs",
            "TrainingJobs in queues of Kueue, by state.",
            ["state"],
            registry=registry,
        )
        self.claimed = Gauge(
            "convoy_claimed_pods",
            "Pods of elastic TrainingJobs that leave, to make room for a job of higher priority.",
            registry=registry,
        )
        self.hops = Gauge(
            "convoy_ring_hops",
            "Hops between ring neighbours, summed over the running TrainingJobs with topology keys.",
            registry=registry,
        )
        self.domains = Gauge(
            "convoy_ring_domains",
            "Domains of the first topology key, summed over the running TrainingJobs with topology keys.",
            registry=registry,
        )
        self.advised = Gauge(
            "convoy_advised_jobs",
            "TrainingJobs with placement.advise whose places are ranked, or cannot be compared (skipped).",
            ["state"],
            registry=registry,
        )
        self.forecast_error = Gauge(
            "convoy_forecast_error_ratio",
            "Difference between the predicted and the measured step as a share of the measured one, mean of "
            "the absolute values over the running TrainingJobs with placement.advise.",
            registry=registry,
        )
        self.show(())

    def show(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges from the statuses of all TrainingJobs."""
        gangs: Counter[tuple[str, str]] = Counter()
        queued: Counter[str] = Counter()
        advised: Counter[str] = Counter()
        errors: list[float] = []
        claimed = hops = domains = 0
        for status in statuses:
            placed = status.get("placement") or {}
            if status.get("phase") in TERMINAL:
                continue
            if backend := placed.get("gang"):
                gangs[backend, "waiting" if _waits(status) else "placed"] += 1
            queued[(placed.get("queue") or {}).get("state", "")] += 1
            claimed += len(placed.get("claims") or ())
            if (advice := placed.get("advice")) is not None:
                advised["skipped"] += bool(advice.get("skipped"))
                advised["ranked"] += bool(advice.get("places"))
                if status.get("phase") == Phase.RUNNING and (error := advice.get("errorPercent")) is not None:
                    errors.append(abs(error) / 100)
            if status.get("phase") == Phase.RUNNING and (keys := placed.get("keys")):
                hops += placed.get("hops") or 0
                domains += keys[0].get("domains") or 0
        for backend in BACKENDS:
            for state in STATES:
                self.gangs.labels(backend, state).set(gangs[backend, state])
        for queue_state in QueueState:
            self.queued.labels(queue_state.value).set(queued[queue_state.value])
        for state in ("ranked", "skipped"):
            self.advised.labels(state).set(advised[state])
        self.forecast_error.set(fmean(errors) if errors else 0.0)
        self.claimed.set(claimed)
        self.hops.set(hops)
        self.domains.set(domains)


def _waits(status: Mapping[str, Any]) -> bool:
    scheduled = any(
        one["type"] == ConditionType.SCHEDULED and one["status"] == "True"
        for one in status.get("conditions") or ()
    )
    return status.get("phase") in _FORMING and not scheduled
