"""The registered part of an Experiment: outcomes, perturbations, predictions, and how they are analysed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.experiment_arm import ArmName, FieldPath
from convoy_crds.meta import DnsLabel, Model, Rule, validated
from convoy_crds.perturbations import PERTURBATIONS, PerturbationKind

FigureName = Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$", max_length=63)]
"""Name of an outcome, or of a figure that a program reports."""
MAX_LIMIT = 1e18
"""Largest absolute value of a limit or margin. The API server compares a whole number with the bounds of its
schema in 64 bits.
"""
Value = Annotated[float, Field(ge=-MAX_LIMIT, le=MAX_LIMIT)]
"""A value of an outcome, or a limit for it."""


def _allowed_magnitudes() -> str:
    """Return CEL that is true if all magnitudes of `self` are allowed for its kind."""
    least = {one.kind.value: float(one.least) for one in PERTURBATIONS}
    most = {one.kind.value: float(one.most) for one in PERTURBATIONS}
    whole = [one.kind.value for one in PERTURBATIONS if one.whole]
    return (
        f"self.magnitudes.all(m, m >= {least}[self.kind] && m <= {most}[self.kind]"
        f" && (!(self.kind in {whole}) || m == double(int(m))))"
    )


class Better(StrEnum):
    """Direction in which an outcome is better."""

    HIGHER = "Higher"
    LOWER = "Lower"
    NEITHER = "Neither"
    """A fact that no arm can influence, such as the number of offered requests. It must be equal in all arms
    of a block.
    """


class OutcomeSource(Model):
    """Place of an outcome's value after a run."""

    model_config = validated(
        Rule(
            "[has(self.status), has(self.metric), has(self.load)].filter(one, one).size() == 1",
            "set exactly one of status, metric and load",
        ),
        Rule(
            "!has(self.absentAs) || has(self.status)",
            "absentAs is only for a path in the status",
            ".absentAs",
        ),
    )

    status: FieldPath | None = None
    """Path in the job's status, such as `goodput.ratio` or `restarts.total`."""
    absent_as: Value | None = None
    """Value if the status lacks the field after a run that succeeded, such as 0 for
    `goodput.seconds.recompute`, which is absent without a second. If absent, such a run has failed. Only
    with `status`.
    """
    metric: FigureName | None = None
    """Metric that the engine reports, or a figure of the simulator."""
    load: FigureName | None = None
    """Figure of the load's report, such as `p99Ms`. Only for arms of type ServingJob."""


class Outcome(Model):
    """A quantity that is measured in each run."""

    name: FigureName
    """Name of the outcome in predictions and results."""
    source: OutcomeSource
    unit: Annotated[str, Field(max_length=32)] = ""
    """Unit of the values, for results and reports."""
    better: Better
    censored_at: Value | None = None
    """Value that stands for a run without a value that ended as it should, such as a target that was not
    reached in time. The analysis keeps such a run as censored. If absent, such a run has failed.
    """


class Target(Model):
    """The part of a job that a perturbation affects."""

    role: Annotated[str, Field(max_length=24)] | None = None
    """Role of the job. If absent, it is the first."""
    slot: Annotated[int, Field(ge=0, le=9999)] | None = None
    """Number of the pod in the role. If absent, the block's seed chooses it."""
    volume: DnsLabel | None = None
    """Volume that FullDisk fills: an emptyDir with `medium: Memory` and a `sizeLimit`. If absent, the pod
    must have exactly one.
    """


class Perturbation(Model):
    """A disturbance of known magnitude that the experiment registers before it starts."""

    model_config = validated(
        Rule(
            _allowed_magnitudes(),
            "a magnitude is outside the range of its kind: see the table of perturbations",
            ".magnitudes",
        ),
        Rule(
            "self.magnitudes.all(m, self.magnitudes.filter(n, n == m).size() == 1)",
            "each magnitude is a condition of its own: name it only once",
            ".magnitudes",
        ),
    )

    name: DnsLabel
    """Name of the perturbation in predictions and results."""
    kind: PerturbationKind
    magnitudes: Annotated[list[float], Field(min_length=1, max_length=8)]
    """Magnitudes in the unit of the kind. Each one is a condition of its own under which all arms run."""
    start_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Seconds from the run's first step, or from the start of the load, until the perturbation begins."""
    duration_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Length of the perturbation. If absent, it lasts until the run ends."""
    target: Target = Field(default_factory=Target)


class Direction(StrEnum):
    """Predicted direction of the difference between candidate and comparator."""

    BETTER = "Better"
    """The candidate is better by more than `margin`."""
    WORSE = "Worse"
    """The candidate is worse by more than `margin`."""
    NOT_WORSE = "NotWorse"
    """The candidate is at most `margin` worse."""


class Contrast(StrEnum):
    """Quantity that a prediction compares."""

    LEVEL = "Level"
    """The outcome under the perturbation."""
    DEGRADATION = "Degradation"
    """The change of the outcome from the unperturbed to the perturbed run of the same block."""


class Prediction(Model):
    """A prediction that the experiment registers before its first run."""

    model_config = validated(
        Rule(
            "self.candidate != self.comparator",
            "candidate and comparator must be two different arms",
            ".comparator",
        )
    )

    name: DnsLabel
    """Name of the prediction in results."""
    outcome: FigureName
    """Name of the outcome that is compared."""
    candidate: ArmName
    """Name of the arm that the prediction is about."""
    comparator: ArmName
    """Name of the arm with which the candidate is compared."""
    direction: Direction
    """Predicted direction. There is no default: a prediction without a direction is none."""
    margin: Annotated[float, Field(ge=0, le=MAX_LIMIT)] = 0.0
    """Smallest difference that counts, in the unit of the outcome."""
    perturbation: DnsLabel | None = None
    """Perturbation under which the prediction holds, at each of its magnitudes. If absent, it is the
    unperturbed condition.
    """
    contrast: Contrast = Contrast.LEVEL


class HealthLimit(Model):
    """A limit that a comparator must keep, or its comparison is void."""

    model_config = validated(
        Rule("has(self.min) || has(self.max)", "set min, max or both"),
    )

    arm: ArmName
    """Name of the arm."""
    outcome: FigureName
    """Name of the outcome whose median is checked."""
    min: Value | None = None
    """Smallest allowed median."""
    max: Value | None = None
    """Largest allowed median."""


class Analysis(Model):
    """Settings of the statistical analysis."""

    alpha: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Probability of at least one wrong verdict in the whole family of predictions (Holm)."""
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.8
    """Probability with which the announced minimum effect would be found."""
    resamples: Annotated[int, Field(ge=1000, le=100_000)] = 10_000
    """Resamples of the bootstrap, and of permutation tests that cannot be exact."""
    health: Annotated[list[HealthLimit], Field(max_length=16)] = Field(default_factory=list)
    """Limits that arms must keep in the median of their blocks. A comparator that breaks one has collapsed.
    """


class TuningSettings(Model):
    """Settings for all arms that are tuned."""

    outcome: FigureName
    """Outcome that the tuning improves, as the mean over its blocks."""
    blocks: Annotated[int, Field(ge=1, le=32)] = 4
    """Number of blocks that each trial simulates. Their seeds differ from those of the experiment."""
