"""The results of an Experiment so far: the values of each outcome, by condition and arm. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_crds.experiment import Experiment, ExperimentSpec
from convoy_crds.experiment_plan import Contrast, Direction, Prediction
from convoy_crds.experiment_schedule import Cell, cells, combination_count, combinations
from convoy_crds.experiment_status import EXPERIMENT_ENDED, BlockStatus, TuningStatus, VerdictStatus
from convoy_crds.perturbations import perturbation_type

UNPERTURBED = "unperturbed"
_WORDS = {Direction.BETTER: "better", Direction.WORSE: "worse", Direction.NOT_WORSE: "not worse"}


@dataclass(slots=True)
class Sample:
    """The values of one outcome in one arm's runs under one condition."""

    values: list[float] = field(default_factory=list)
    censored: int = 0
    """Number of values that are only a limit, because the run did not reach the value's event."""

    @property
    def median(self) -> float | None:
        """Return the median; None without a value."""
        return statistics.median(self.values) if self.values else None


@dataclass(slots=True)
class CellSummary:
    """The blocks under one condition."""

    cell: Cell
    title: str
    planned: int
    ended: int = 0
    failed: int = 0
    samples: dict[tuple[str, str], Sample] = field(default_factory=dict)
    """The values by arm and outcome. For a sweep, the arm is the number of the combination."""

    def sample(self, arm: str, outcome: str) -> Sample:
        """Return the values of an arm's outcome."""
        return self.samples.get((arm, outcome), Sample())


def values_shown(experiment: Experiment) -> bool:
    """Return True if the values of arms may be summarised. Before the end of a comparison they are not: who
    has seen them could stop at the moment that suits a prediction.
    """
    return experiment.spec.sweep is not None or experiment.status.phase in EXPERIMENT_ENDED


def summarise(experiment: Experiment) -> list[CellSummary]:
    """Return a summary of each condition, in the order of the spec. A failed block counts with the figures
    of those runs that did not fail. There are no samples unless `values_shown`.
    """
    spec, shown = experiment.spec, values_shown(experiment)
    planned = spec.blocks * (1 if spec.sweep is None else combination_count(spec.sweep.parameters))
    found = {
        (cell.perturbation, cell.magnitude): CellSummary(cell, condition_title(spec, cell), planned)
        for cell in cells(spec)
    }
    for block in experiment.status.blocks:
        here = found.get((block.perturbation, block.magnitude))
        if here is not None:
            _add(here, block, shown)
    return list(found.values())


def _add(summary: CellSummary, block: BlockStatus, shown: bool) -> None:
    summary.ended += 1
    summary.failed += block.failed
    for figure in block.figures if shown else ():
        sample = summary.samples.setdefault((figure.arm, figure.outcome), Sample())
        sample.values.append(figure.value)
        sample.censored += bool(figure.censored)


def condition_title(spec: ExperimentSpec, cell: Cell) -> str:
    """Return the name of a condition, such as `lag 60 s`."""
    if cell.magnitude is None:
        return cell.perturbation or UNPERTURBED
    known = next((one for one in spec.perturbations or () if one.name == cell.perturbation), None)
    if known is None:
        return f"{cell.perturbation} {cell.magnitude:g}"
    return f"{cell.perturbation} {perturbation_type(known.kind).text(cell.magnitude)}"


def comparison_title(prediction: Prediction) -> str:
    """Return the statement of a prediction, such as `ours better than hpa in the degradation of p99`."""
    margin = f", margin {prediction.margin:g}" if prediction.margin else ""
    outcome = prediction.outcome
    what = f"the degradation of {outcome}" if prediction.contrast is Contrast.DEGRADATION else outcome
    words = _WORDS[prediction.direction]
    return f"{prediction.candidate} {words} than {prediction.comparator} in {what}{margin}"


def verdict_title(one: VerdictStatus) -> str:
    """Return a verdict, with a remark if the perturbation did not disturb both arms equally."""
    return f"{one.verdict} (unequal magnitudes)" if one.unequal else one.verdict.value


def tuned_values(one: TuningStatus) -> str:
    """Return the values that the tuning of an arm chose, and the arm that they come from."""
    values = ", ".join(f"{v.path}={v.value}{' (at the edge)' if v.at_edge else ''}" for v in one.values)
    source = f"from arm {one.source.arm} of experiment/{one.source.experiment}" if one.source else ""
    return "; ".join(part for part in (values, source) if part)


def arm_labels(spec: ExperimentSpec) -> Mapping[str, str]:
    """Return a description of each arm: its role. For a sweep: the parameters of each combination, by the
    number of the combination.
    """
    if spec.sweep is None:
        return {arm.name: arm.role.value for arm in spec.arms}
    parameters = spec.sweep.parameters
    return {
        str(number): ", ".join(f"{one.name}={value}" for one, value in zip(parameters, values, strict=True))
        for number, values in enumerate(combinations(parameters))
    }
