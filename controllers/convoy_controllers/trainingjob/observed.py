"""All that a decision about a TrainingJob may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_controllers.views import GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the job and everything around it."""

    job: TrainingJob
    engine: Engine | None = None
    """The Engine that `spec.engine` names, if it exists."""
    known_engines: tuple[str, ...] = ()
    store: CheckpointStore | None = None
    """The CheckpointStore that `spec.checkpoint.tiers.remote.store` names, if it exists."""
    known_stores: tuple[str, ...] = ()
    """Those that jobs of its namespace may name."""
    source: TrainingJob | None = None
    """The job that `spec.checkpoint.resumeFrom` names, if it exists."""
    pods: tuple[PodView, ...] = ()
    """Pods labelled with the job's name, its own and others'."""
    slots: Mapping[str, SlotView] = field(default_factory=dict)
    """By pod uid, as far as agents have reported."""
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """By name, the nodes that hold these pods."""
    silent_seconds: float = SILENT_SECONDS
    """Silence after which the operator counts an agent as absent."""
    agent_nodes: int = 0
    """Nodes that carry the agent-ready label."""
    holders: tuple[str, ...] = ()
    """Nodes whose memory holds checkpoints of the job."""
    guard: GuardView | None = None
    """What its ranks' telemetry shows; None before they have told of a step."""
    warnings: Mapping[str, PodWarning] = field(default_factory=dict)
    """The newest Event of each pod that does not come up, by pod uid."""
    create_errors: Mapping[str, Refusal] = field(default_factory=dict)
    """By pod name: why the API server refused to create it at the last try."""
