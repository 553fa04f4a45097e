"""The tables of `convoy experiment status`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from convoy.cli.table import new_table
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import VerdictStatus
from convoy_crds.experiment_summary import (
    CellSummary,
    Sample,
    arm_labels,
    comparison_title,
    condition_title,
    tuned_values,
    values_shown,
    verdict_title,
)


def make_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of texts."""
    made = new_table()
    for head in heads:
        made.add_column(head, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def number(value: float | None) -> str:
    """Return a number with four significant digits; a dash for None."""
    return "-" if value is None else f"{value:.4g}"


def cell_line(experiment: Experiment, cell: CellSummary) -> str:
    """Return a line about the blocks under a condition, or about the runs of a sweep."""
    failed = f", {cell.failed} failed" if cell.failed else ""
    end = f"{failed}; medians" if values_shown(experiment) else failed
    if experiment.spec.sweep is not None:
        return f"sweep: {cell.ended} of {cell.planned} runs{end}"
    return f"{cell.title}: {cell.ended} of {cell.planned} blocks{end}"


def cell_table(experiment: Experiment, cell: CellSummary) -> Table:
    """Return the medians of all arms and outcomes under a condition. The number of runs follows a median
    if it differs from the number of blocks.
    """
    spec, labels = experiment.spec, arm_labels(experiment.spec)
    units = [f"{one.name}{f' ({one.unit})' if one.unit else ''}" for one in spec.outcomes]
    heads = ("ARM", "COMBINATION" if spec.sweep else "ROLE", *units)
    rows = [
        (
            arm,
            label,
            *(median(cell.sample(arm, one.name), spec.blocks if spec.sweep else cell.ended)
              for one in spec.outcomes),
        )
        for arm, label in labels.items()
    ]  # fmt: skip
    return make_table(heads, rows)


def median(sample: Sample, expected: int) -> str:
    """Return the median of a sample, with remarks about missing and censored values."""
    remarks = [f"{len(sample.values)} runs"] if 0 < len(sample.values) != expected else []
    remarks += [f"{sample.censored} censored"] if sample.censored else []
    return number(sample.median) + (f" ({', '.join(remarks)})" if remarks else "")


def tuning_table(experiment: Experiment) -> Table:
    """Return a table with the tuning of each arm."""
    rows = [
        (
            one.arm,
            str(one.trials),
            number(one.best),
            tuned_values(one) or one.failure or "-",
        )
        for one in experiment.status.tuning
    ]
    return make_table(("ARM", "TRIALS", "BEST", "VALUES"), rows)


def failures_table(experiment: Experiment) -> Table:
    """Return a table with every run that failed."""
    rows = [
        (str(block.id), one.arm, one.reason, one.message)
        for block in experiment.status.blocks
        for one in block.failures
    ]
    return make_table(("BLOCK", "ARM", "REASON", "MESSAGE"), rows)


def controls_table(experiment: Experiment) -> Table:
    """Return a table with the result of each control."""
    rows = [
        (one.name, "passed" if one.passed else "FAILED", one.message) for one in experiment.status.controls
    ]
    return make_table(("CONTROL", "RESULT", "MESSAGE"), rows)


def verdicts_table(experiment: Experiment) -> Table:
    """Return a table with the verdict on each prediction under each condition."""
    heads = (
        "PREDICTION",
        "CONDITION",
        "COMPARISON",
        "VERDICT",
        "EFFECT",
        "INTERVAL",
        "P (HOLM)",
        "MINIMUM EFFECT",
        "BLOCKS",
    )
    return make_table(heads, [_verdict_row(experiment, one) for one in experiment.status.verdicts])


def _verdict_row(experiment: Experiment, one: VerdictStatus) -> tuple[str, ...]:
    spec = experiment.spec
    prediction = next((p for p in spec.predictions or () if p.name == one.prediction), None)
    comparison = comparison_title(prediction) if prediction is not None else "-"
    return (
        one.prediction,
        condition_title(spec, Cell(one.perturbation, one.magnitude)),
        comparison,
        verdict_title(one),
        number(one.effect),
        "-" if one.low is None or one.high is None else f"{number(one.low)} to {number(one.high)}",
        number(one.p),
        number(one.minimum_effect),
        str(one.blocks),
    )
