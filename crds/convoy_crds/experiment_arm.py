"""The arms of an Experiment: the alternatives that it compares."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from convoy_crds.meta import Model, ObjectName, Rule, validated
from convoy_crds.podtemplate import depth_checked

ArmName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=20)]
"""Name of an arm. It is a part of the names of the arm's jobs."""
FieldPath = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_-]+)*$", max_length=253)]
"""Path of a field, such as `spec.engine.params.rate`. An item of a list is named by its number."""
OpenValue = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    AfterValidator(depth_checked),
]
"""An object whose fields another schema defines."""


OpenAny = Annotated[Any, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""Any JSON value."""


class ArmType(StrEnum):
    """Kind of the runs of an arm."""

    TRAINING_JOB = "TrainingJob"
    SERVING_JOB = "ServingJob"
    SIMULATION = "Simulation"


class ArmRole(StrEnum):
    """Purpose of an arm in the comparison."""

    CANDIDATE = "Candidate"
    """The alternative about which the experiment makes predictions."""
    COMPARATOR = "Comparator"
    """The best known alternative, tuned as well as the candidate."""
    DEFAULT = "Default"
    """The comparator with its default settings. It shows what the tuning is worth."""
    NAIVE = "Naive"
    """A simple alternative. A comparator that is worse than this one has collapsed."""
    ORACLE = "Oracle"
    """A bound that no real alternative reaches, for example because it knows the future."""
    NEGATIVE_CONTROL = "NegativeControl"
    """The same as the arm `controlOf`. A difference makes the experiment invalid."""
    POSITIVE_CONTROL = "PositiveControl"
    """Worse than the arm `controlOf` on purpose. Without a difference the experiment is invalid."""


class JobTemplate(Model):
    """The spec of each run of an arm."""

    spec: OpenValue
    """Spec of a TrainingJob or ServingJob."""


class Simulation(Model):
    """A simulator and its settings."""

    simulator: Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]*$", max_length=63)]
    """Name of a simulator of the Engine `experiment-simulation`."""
    params: OpenValue = Field(default_factory=dict)
    """Settings of the simulator."""


class ParameterType(StrEnum):
    """Type of a tuned parameter."""

    DOUBLE = "Double"
    INT = "Int"
    CATEGORICAL = "Categorical"


_CATEGORICAL = "(has(self.type) && self.type == 'Categorical')"
"""CEL that is true for a Categorical parameter. The API server fills in no default inside of a list."""


class TunedParameter(Model):
    """A parameter that the tuning chooses."""

    model_config = validated(
        Rule(
            f"has(self.values) == {_CATEGORICAL}",
            "a Categorical parameter needs values; a Double or Int parameter needs min and max",
            ".values",
        ),
        Rule(
            f"{_CATEGORICAL} ? (!has(self.min) && !has(self.max))"
            " : (has(self.min) && has(self.max) && self.min < self.max)",
            "a Double or Int parameter needs min and max with min < max; a Categorical parameter has neither",
            ".min",
        ),
    )

    path: FieldPath
    """Field of the arm that gets the value: a path in `template`, or a name in `simulation.params`."""
    type: ParameterType = ParameterType.DOUBLE
    min: float | None = None
    """Smallest value of a Double or Int parameter."""
    max: float | None = None
    """Largest value of a Double or Int parameter."""
    log: bool = False
    """True to search on a logarithmic scale."""
    values: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=32)] | None = None
    """Values of a Categorical parameter."""


class TunedElsewhere(Model):
    """An arm of a finished Experiment in the same namespace, whose tuned parameters an arm takes over."""

    experiment: ObjectName
    """Name of the Experiment. It must have ended."""
    arm: ArmName
    """Name of its arm."""


class ArmTuning(Model):
    """The tuning of one arm before its first block."""

    model_config = validated(
        Rule(
            "has(self.search) != has(self.reuse)",
            "set either search, to tune the arm, or reuse, to take over tuned parameters",
        ),
    )

    trials: Annotated[int, Field(ge=1, le=1000)]
    """Number of settings that the tuning tries. Candidates and comparators must have the same number."""
    search: Annotated[list[TunedParameter], Field(min_length=1, max_length=16)] | None = None
    """The parameters to tune, and their ranges."""
    reuse: TunedElsewhere | None = None
    """Experiment and arm whose tuned parameters this arm takes over. Its tuning must have had as many
    trials.
    """


class Arm(Model):
    """One alternative: a job or a simulation that each block runs once."""

    model_config = validated(
        Rule(
            "has(self.simulation) == (self.type == 'Simulation') || self.role == 'NegativeControl'",
            "an arm of type Simulation needs simulation; other arms have none",
            ".simulation",
        ),
        Rule(
            "has(self.template) == (self.type != 'Simulation') || self.role == 'NegativeControl'",
            "an arm of type TrainingJob or ServingJob needs template; a Simulation has none",
            ".template",
        ),
        Rule(
            "has(self.load) == (self.type == 'ServingJob') || self.role == 'NegativeControl'",
            "an arm of type ServingJob needs load; other arms have none",
            ".load",
        ),
        Rule(
            "has(self.controlOf) == (self.role in ['NegativeControl', 'PositiveControl'])",
            "controlOf is needed for a NegativeControl or PositiveControl, and only for these",
            ".controlOf",
        ),
        Rule(
            "self.role != 'NegativeControl' || (!has(self.template) && !has(self.simulation)"
            " && !has(self.load) && !has(self.tuning))",
            "a NegativeControl runs the same as controlOf: it has no template, simulation, load or tuning",
            ".role",
        ),
        Rule(
            "!has(self.tuning) || !has(self.tuning.search) || self.type == 'Simulation'",
            "tuning.search is only for arms of type Simulation; other arms take over tuned parameters with "
            "tuning.reuse",
            ".tuning",
        ),
    )

    name: ArmName
    """Name of the arm, which is a part of the names of its jobs."""
    type: ArmType
    role: ArmRole
    control_of: ArmName | None = None
    """Arm with which a control is compared."""
    template: JobTemplate | None = None
    """Job of each run, for the types TrainingJob and ServingJob."""
    simulation: Simulation | None = None
    load: OpenValue | None = None
    """Parameters of the Engine `load`, which sends the requests of each run of a ServingJob."""
    tuning: ArmTuning | None = None


class SweepParameter(Model):
    """One parameter of a sweep."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]{0,31}$")]
    """Name of the parameter in results."""
    path: FieldPath
    """Field of the arm that gets the value: a path in `template`, or a name in `simulation.params`."""
    values: Annotated[list[OpenAny], Field(min_length=1, max_length=200)]
    """Values of the parameter. The sweep runs every combination of all parameters' values."""


class Sweep(Model):
    """A job array: one arm, run with every combination of parameters. It makes no predictions."""

    parameters: Annotated[list[SweepParameter], Field(min_length=1, max_length=8)]
    """The parameters. With `spec.blocks` above 1, each combination runs more than once."""
