"""The catalogue of all reasons. Each reason is defined once."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_crds.reasons.advice import AdviceReasons
from convoy_crds.reasons.checkpointing import CheckpointingReasons
from convoy_crds.reasons.common import CommonReasons
from convoy_crds.reasons.experiments import ExperimentReasons
from convoy_crds.reasons.faults import FaultReasons
from convoy_crds.reasons.guarding import GuardingReasons
from convoy_crds.reasons.independent import IndependentReasons
from convoy_crds.reasons.lifecycle import LifecycleReasons
from convoy_crds.reasons.metrics import MetricReasons
from convoy_crds.reasons.nodehealth import NodeHealthReasons
from convoy_crds.reasons.placement import PlacementReasons
from convoy_crds.reasons.pods import PodReasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.reasons.scaling import ScalingReasons
from convoy_crds.reasons.serving import ServingReasons
from convoy_crds.reasons.spec import SpecReasons
from convoy_crds.reasons.spotpools import SpotPoolReasons
from convoy_crds.reasons.stores import StoreReasons
from convoy_crds.reasons.stragglers import StragglerReasons
from convoy_crds.reasons.tracing import TraceReasons


class Reasons(
    CommonReasons,
    SpecReasons,
    StoreReasons,
    PodReasons,
    PlacementReasons,
    LifecycleReasons,
    FaultReasons,
    IndependentReasons,
    CheckpointingReasons,
    StragglerReasons,
    MetricReasons,
    TraceReasons,
    AdviceReasons,
    ServingReasons,
    ScalingReasons,
    ExperimentReasons,
    SpotPoolReasons,
    NodeHealthReasons,
    GuardingReasons,
):
    """All reasons. Each reason has exactly one meaning.

    A reason's message template names the problem, its place (field path, node, rank) and the next step.
    """


def all_reasons() -> Iterator[Reason]:
    """Yield every reason of the catalogue."""
    for part in Reasons.__mro__:
        yield from (one for one in vars(part).values() if isinstance(one, Reason))
