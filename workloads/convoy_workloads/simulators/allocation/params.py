"""Parameters of the simulator allocation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model
from convoy_workloads.simulators.allocation import sizing
from convoy_workloads.simulators.allocation.learned import SHAPE, WEIGHTS, Learned
from convoy_workloads.simulators.allocation.policies import Order, Ordered
from convoy_workloads.simulators.allocation.view import Policy
from convoy_workloads.simulators.allocation.workload import Workload
from convoy_workloads.simulators.learned_choice import learned_choice


class RequestSizing(Model):
    """The owner's request is reserved."""

    name: Literal["request"] = "request"

    def create(self) -> sizing.Sizing:
        """Return the rule."""
        return sizing.Requested()


class OracleSizing(Model):
    """The amount that the job will use is reserved. It knows the future."""

    name: Literal["oracle"]

    def create(self) -> sizing.Sizing:
        """Return the rule."""
        return sizing.Exact()


class HistogramSizing(Model):
    """A percentile of a decaying histogram, as in the VerticalPodAutoscaler. The defaults are its own."""

    name: Literal["vpa"]
    percentile: Annotated[float, Field(gt=0, le=100)] = 90.0
    """Percentile of the use of a job's class."""
    margin: Annotated[float, Field(ge=-0.5, le=10)] = 0.15
    """Share of the percentile that is added to it."""
    half_life_seconds: Annotated[float, Field(gt=0, le=604_800)] = 86_400.0
    """Time after which a measurement weighs half."""

    def create(self) -> sizing.Sizing:
        """Return the rule."""
        return sizing.DecayingHistogram(self.percentile, self.margin, self.half_life_seconds)


class WindowSizing(Model):
    """The largest of the newest measurements, as in the rule of Autopilot."""

    name: Literal["autopilot"]
    samples: Annotated[int, Field(ge=4, le=1000)] = 50
    """Number of the newest measurements of a job's class."""
    margin: Annotated[float, Field(ge=-0.5, le=10)] = 0.1
    """Share of the largest measurement that is added to it."""

    def create(self) -> sizing.Sizing:
        """Return the rule."""
        return sizing.MovingWindow(self.samples, self.margin)


AnySizing = Annotated[
    RequestSizing | OracleSizing | HistogramSizing | WindowSizing, Field(discriminator="name")
]


class OrderedPolicy(Model):
    """An order of the jobs, and a rule for the amount that each one reserves."""

    name: Literal["ordered"] = "ordered"
    order: Order = Order.OLDEST
    """Job that starts first: the oldest, the shortest, the one that packs best, or the longest."""
    sizing: AnySizing = Field(default_factory=RequestSizing)
    """Rule for the amount that a job reserves. Its `name` selects it; the default is `request`."""
    shortness: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of little work against a good alignment, for the order `packing`."""

    def create(self, seed: int) -> Policy:
        """Return the policy for one run."""
        return Ordered(self.order, self.sizing.create(), self.shortness)


class LearnedPolicy(Model):
    """A network that scores starts, after DeepRM. The Engine `orchestration` trains it."""

    name: Literal["learned"]
    weights: Annotated[list[float], Field(min_length=WEIGHTS, max_length=WEIGHTS)]
    """Weights of the network, as the Engine `orchestration` writes them to `study.json`."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0 to choose the best start. Above 0, starts are drawn at random by their scores."""
    start_bias: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Number that is added to the score of every start. Above 0, jobs wait less often."""

    def create(self, seed: int) -> Policy:
        """Return the policy for one run."""
        # The first feature is 1 for a start and 0 for waiting.
        weights = [self.weights[0] + self.start_bias, *self.weights[1:]]
        return Learned(learned_choice(SHAPE, weights, self.temperature, seed))


class Params(Model):
    """A cluster with nodes, its jobs, and the policy that starts them."""

    policy: Annotated[OrderedPolicy | LearnedPolicy, Field(discriminator="name")] = Field(
        default_factory=OrderedPolicy
    )
    """Scheduler. Its `name` selects it; the default is `ordered`."""
    workload: Workload = Field(default_factory=Workload)
    """Jobs of the run."""
    nodes: Annotated[int, Field(ge=1, le=200)] = 4
    """Number of nodes. They are all alike."""
    cores: Annotated[float, Field(ge=1, le=1024)] = 16.0
    """Cores of each node."""
    memory: Annotated[float, Field(ge=1, le=65_536)] = 64.0
    """Memory of each node in GiB."""
    visible: Annotated[int, Field(ge=1, le=100)] = 6
    """Number of waiting jobs that the policy sees, the oldest first."""
