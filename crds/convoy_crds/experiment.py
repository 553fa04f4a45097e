"""Experiment: a comparison of arms in paired blocks, with predictions that are registered before the first
run.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.experiment_arm import Arm, Sweep
from convoy_crds.experiment_plan import Analysis, Outcome, Perturbation, Prediction, TuningSettings
from convoy_crds.experiment_status import MAX_BLOCKS, MAX_FIGURES, ExperimentStatus
from convoy_crds.kind import Column, CreatedKind, Editors, Kind, Scope
from convoy_crds.meta import Model, ObjectMeta, ObjectName, Rule, map_list, validated

MAX_PREDICTIONS = 16
MAX_NAME = 30
"""Maximum number of characters in an experiment's name. Its jobs are named <name>-<hash>-<block>-<arm>."""
MAX_PERTURBATIONS = 8
_MAGNITUDES = " + ".join(
    f"(self.perturbations.size() > {number} ? self.perturbations[{number}].magnitudes.size() : 0)"
    for number in range(MAX_PERTURBATIONS)
)
"""Number of magnitudes of all perturbations. `sum()` is Kubernetes' own, and not in other versions of CEL."""
_CELLS = (
    f"((has(self.unperturbed) && !self.unperturbed ? 0 : 1) + (has(self.perturbations) ? {_MAGNITUDES} : 0))"
)
_COMPARED = "self.arms.filter(c, c.role in ['Candidate', 'Comparator'])"
MUTABLE = ("suspend", "stop")
"""Fields of the spec that are no part of the plan. They may change while the experiment runs."""
_FIXED = (
    "store", "seed", "blocks", "parallelism", "arms", "sweep", "outcomes", "unperturbed", "perturbations",
    "predictions", "analysis", "tuning", "runDeadlineSeconds", "activeDeadlineSeconds", "maxFailedBlocks",
    "maxAttempts",
)  # fmt: skip
"""Fields of the spec that make up the plan. They never change."""


_NAMED = ("arms", "outcomes", "perturbations", "predictions")
"""Lists whose items have names. CEL compares such lists without their order."""


def _unchanged() -> str:
    fields = [
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in _FIXED
    ]
    orders = [
        f"(!has(self.{name}) || self.{name}.map(i, i.name) == oldSelf.{name}.map(i, i.name))"
        for name in _NAMED
    ]
    return " && ".join((*fields, *orders))


class ExperimentSpec(Model):
    """The plan. Except `suspend` and `stop` it never changes: a changed plan is another experiment."""

    model_config = validated(
        Rule(
            _unchanged(),
            f"the plan is registered and never changes, except {' and '.join(MUTABLE)}: create an experiment "
            "with another name",
        ),
        Rule(
            "has(self.sweep) || self.arms.exists(a, a.role == 'Comparator')",
            "an experiment needs an arm with role Comparator; a sweep needs none",
            ".arms",
        ),
        Rule(
            "has(self.sweep) || self.arms.exists(a, a.role == 'Candidate')",
            "an experiment needs an arm with role Candidate; a sweep needs none",
            ".arms",
        ),
        Rule(
            "!has(self.sweep) || (self.arms.size() == 1 && !has(self.predictions)"
            " && !has(self.perturbations) && !has(self.tuning))",
            "a sweep has one arm, and no predictions, perturbations or tuning",
            ".sweep",
        ),
        Rule(
            "has(self.sweep) || self.blocks >= 2",
            "one block has no spread, so nothing could be concluded: set blocks to 2 or more (9 or more for "
            "verdicts on 10 predictions)",
            ".blocks",
        ),
        Rule(
            "has(self.sweep) || (has(self.predictions) && self.predictions.size() > 0)",
            "an experiment needs at least one prediction; use sweep to try parameters without one",
            ".predictions",
        ),
        Rule(
            f"has(self.sweep) || self.arms.size() * self.outcomes.size() <= {MAX_FIGURES}",
            f"arms x outcomes must be at most {MAX_FIGURES}: leave out outcomes or split the experiment",
            ".outcomes",
        ),
        Rule(
            f"has(self.sweep) || {_CELLS} * self.blocks <= {MAX_BLOCKS}",
            f"conditions (unperturbed and each magnitude) x blocks must be at most {MAX_BLOCKS}",
            ".blocks",
        ),
        Rule(
            f"has(self.sweep) || {_CELLS} >= 1",
            "there is no condition: set unperturbed: true or add a perturbation",
            ".unperturbed",
        ),
        Rule(
            "!has(self.predictions) || self.predictions.all(p, self.outcomes.exists(o, o.name == p.outcome"
            " && o.better != 'Neither'))",
            "a prediction's outcome must be the name of an outcome whose better is Higher or Lower",
            ".predictions",
        ),
        Rule(
            "!has(self.predictions) || self.predictions.all(p, self.arms.exists(a, a.name == p.candidate))",
            "a prediction's candidate must be the name of an arm",
            ".predictions",
        ),
        Rule(
            "!has(self.predictions) || self.predictions.all(p, self.arms.exists(a, a.name == p.comparator))",
            "a prediction's comparator must be the name of an arm",
            ".predictions",
        ),
        Rule(
            "!has(self.predictions) || self.predictions.all(p, !has(p.perturbation)"
            " || (has(self.perturbations) && self.perturbations.exists(q, q.name == p.perturbation)))",
            "a prediction's perturbation must be registered in spec.perturbations",
            ".predictions",
        ),
        Rule(
            "!has(self.predictions) || self.predictions.all(p, has(p.perturbation)"
            " ? (!has(p.contrast) || p.contrast == 'Level' || !has(self.unperturbed) || self.unperturbed)"
            " : ((!has(p.contrast) || p.contrast == 'Level')"
            " && (!has(self.unperturbed) || self.unperturbed)))",
            "contrast Degradation needs a perturbation and unperturbed: true; a prediction without a "
            "perturbation needs unperturbed: true",
            ".predictions",
        ),
        Rule(
            "self.arms.all(a, !has(a.controlOf) || self.arms.exists(b, b.name == a.controlOf"
            " && b.type == a.type && !has(b.controlOf)))",
            "controlOf must be the name of an arm of the same type that is no control itself",
            ".arms",
        ),
        Rule(
            f"{_COMPARED}.all(a, has(a.tuning) == has({_COMPARED}[0].tuning)"
            f" && (!has(a.tuning) || a.tuning.trials == {_COMPARED}[0].tuning.trials))",
            "candidates and comparators must have the same tuning budget: give each the same tuning.trials, "
            "or none a tuning",
            ".arms",
        ),
        Rule(
            "has(self.tuning) || !self.arms.exists(a, has(a.tuning) && has(a.tuning.search))",
            "tuned arms need tuning.outcome, the outcome that the tuning improves",
            ".tuning",
        ),
        Rule(
            "!has(self.tuning) || self.outcomes.exists(o, o.name == self.tuning.outcome"
            " && o.better != 'Neither')",
            "tuning.outcome must be the name of an outcome whose better is Higher or Lower",
            ".tuning.outcome",
        ),
        Rule(
            "!has(self.analysis) || !has(self.analysis.health)"
            " || self.analysis.health.all(h, self.arms.exists(a, a.name == h.arm)"
            " && self.outcomes.exists(o, o.name == h.outcome))",
            "a limit in analysis.health needs the name of an arm and the name of an outcome",
            ".analysis.health",
        ),
        Rule(
            "self.outcomes.all(o, !has(o.source.load) || self.arms.all(a, a.type == 'ServingJob'))",
            "an outcome from load needs arms of type ServingJob",
            ".outcomes",
        ),
    )

    arms: Annotated[list[Arm], Field(min_length=1, max_length=16, json_schema_extra=map_list("name"))]
    """The alternatives. In each block, each arm runs once."""
    outcomes: Annotated[list[Outcome], Field(min_length=1, max_length=16, json_schema_extra=map_list("name"))]
    """The quantities that are measured in each run."""
    store: ObjectName
    """CheckpointStore that keeps the plan, the data and the report. They stay when the experiment is deleted.
    """
    seed: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Number from which the seeds of all blocks and the order of the arms follow."""
    blocks: Annotated[int, Field(ge=1, le=MAX_BLOCKS)] = 10
    """Number of repetitions under each condition. In each one, all arms run with the same seed. In a sweep it
    is the number of runs of each combination.
    """
    parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Maximum number of runs at the same time, and of arms that are tuned at the same time. A run of a
    ServingJob has two jobs: the servers and the load.
    """
    unperturbed: bool = True
    """True to run all arms also without a perturbation."""
    perturbations: (
        Annotated[list[Perturbation], Field(max_length=MAX_PERTURBATIONS, json_schema_extra=map_list("name"))]
        | None
    ) = None
    """Disturbances under which all arms run."""
    predictions: (
        Annotated[list[Prediction], Field(max_length=MAX_PREDICTIONS, json_schema_extra=map_list("name"))]
        | None
    ) = None
    """Statements about the arms, which are registered before the first run. Each one gets a verdict."""
    analysis: Analysis = Field(default_factory=Analysis)
    tuning: TuningSettings | None = None
    sweep: Sweep | None = None
    run_deadline_seconds: Annotated[int, Field(ge=1, le=604_800)] = 3600
    """Longest time of one arm's run. A run that takes longer has failed."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=7_776_000)] | None = None
    """Longest time of the whole experiment. After it, the blocks that have ended are analysed."""
    max_failed_blocks: Annotated[int, Field(ge=0, le=MAX_BLOCKS)] = 3
    """Number of failed blocks that the experiment accepts. With one more, it ends with phase Failed."""
    max_attempts: Annotated[int, Field(ge=1, le=5)] = 2
    """Number of times that a run starts if its job disappears before it has ended. A run whose job failed
    never starts again: its block has failed.
    """
    suspend: bool = False
    """True: no further run starts. Running ones go on to their end."""
    stop: bool = False
    """True: the experiment ends, and the blocks that have ended are analysed. It cannot go on afterwards."""


class Experiment(Model):
    """Arms that are compared in paired blocks, under registered perturbations."""

    model_config = validated(
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"the name may have at most {MAX_NAME} characters: it is a part of the names of all its jobs",
        ),
    )

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["Experiment"] = "Experiment"
    metadata: ObjectMeta
    spec: ExperimentSpec
    status: ExperimentStatus = Field(default_factory=ExperimentStatus)


KIND = Kind(
    Experiment,
    plural="experiments",
    short=("cexp",),
    scope=Scope.NAMESPACED,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Blocks", ".status.progress"),
        Column("Failed", ".status.failedBlocks", "integer"),
        Column("Verdicts", ".status.summary"),
        Column("Reason", ".status.reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Plan", ".status.plan.hash", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    editors=Editors.NAMESPACE_USERS,
    creates=(
        CreatedKind("trainingjobs"),
        CreatedKind("servingjobs", "object.spec.arms.exists(a, a.type == 'ServingJob')"),
    ),
)
