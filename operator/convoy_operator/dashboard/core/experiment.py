"""The content of an Experiment's page."""

from __future__ import annotations

from datetime import datetime

from convoy_crds.experiment import Experiment
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_schedule import Cell as Condition
from convoy_crds.experiment_status import EXPERIMENT_ENDED, BlockStatus, Verdict, VerdictStatus
from convoy_crds.experiment_summary import (
    CellSummary,
    arm_labels,
    comparison_title,
    condition_title,
    summarise,
    tuned_values,
    values_shown,
    verdict_title,
)
from convoy_operator.dashboard.core import conditions
from convoy_operator.dashboard.core.formatting import (
    ago,
    clock,
    cluster_link,
    duration,
    figure,
    job_link,
    serving_link,
)
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

VERDICT_TONES = {
    Verdict.SUPPORTED: Tone.GOOD,
    Verdict.CONTRADICTED: Tone.BAD,
    Verdict.UNDECIDED: Tone.QUIET,
    Verdict.COMPARATOR_COLLAPSED: Tone.WARN,
}
VERDICTS = (
    Column("Prediction"),
    Column("Condition"),
    Column("Comparison", wide=True),
    Column("Verdict", badge=True),
    Column("Effect", number=True),
    Column("Interval", number=True),
    Column("p (Holm)", number=True),
    Column("Minimum effect", number=True),
    Column("Blocks", number=True),
)
CONTROLS = (
    Column("Control"),
    Column("Result", badge=True),
    Column("Message", wide=True),
)
MEDIANS = (
    Column("Condition"),
    Column("Arm"),
    Column("Role"),
    Column("Outcome"),
    Column("Median", number=True),
    Column("Runs", number=True),
    Column("Censored", number=True),
)
BLOCKS = (
    Column("Block", number=True),
    Column("Condition"),
    Column("Repetition", number=True),
    Column("State", badge=True),
    Column("Figures", wide=True),
    Column("Achieved magnitude"),
    Column("Took", number=True),
    Column("Ended", number=True),
)
FAILURES = (
    Column("Block", number=True),
    Column("Condition"),
    Column("Arm"),
    Column("Reason"),
    Column("Message", wide=True),
)
RUNS = (
    Column("Job", link=True),
    Column("Block", number=True),
    Column("Arm"),
    Column("Attempt", number=True),
    Column("State", badge=True),
    Column("Started", number=True),
)
TUNING = (
    Column("Arm"),
    Column("Trials", number=True),
    Column("Best", number=True),
    Column("Values", wide=True),
    Column("Took", number=True),
)
_RUN_TONES = {"Running": Tone.BUSY, "Succeeded": Tone.GOOD, "Failed": Tone.BAD}


def facts(experiment: Experiment, now: datetime) -> list[Fact]:
    """Return the values at the top of the page."""
    status, spec = experiment.status, experiment.spec
    failed, stale = status.failed_blocks, status.stale_results
    plan, artefact = status.plan, status.artefact
    return [
        Fact("Blocks", status.progress or "-"),
        Fact(
            "Failed blocks",
            f"{failed} (at most {spec.max_failed_blocks})",
            Tone.WARN if failed else Tone.PLAIN,
        ),
        Fact("Verdicts", status.summary or "-"),
        Fact("Plan", plan.hash if plan else "-"),
        Fact("Registered", clock(plan.registered_at) if plan else "-"),
        Fact("Result", artefact.digest if artefact and artefact.digest else "-"),
        Fact("CheckpointStore", spec.store, href=cluster_link("checkpointstores", spec.store)),
        Fact("Refused results", str(stale), Tone.WARN if stale else Tone.PLAIN),
        Fact("Started", ago(status.start_time, now)),
        Fact("Ended", ago(status.completion_time, now)),
        Fact("Created", ago(experiment.metadata.creation_timestamp, now)),
    ]


def note(experiment: Experiment) -> str:
    """Return a sentence about the meaning of the values that the page shows."""
    name = experiment.metadata.name
    if experiment.status.artefact is not None and experiment.status.artefact.digest:
        return f"The whole report: convoy experiment report {name} -n {experiment.metadata.namespace}"
    if values_shown(experiment):
        return "Medians are no result: only the analysis at the end compares the arms in pairs."
    return "Medians appear at the end: who sees them before could stop when they suit a prediction."


def condition_rows(experiment: Experiment, now: datetime) -> list[Row]:
    """Return the experiment's Kubernetes conditions as table rows."""
    return conditions.rows(experiment.status.conditions, now, lambda one: Cell(one.status))


def verdict_rows(experiment: Experiment) -> list[Row]:
    """Return the verdicts as table rows."""
    return [_verdict(experiment, number, one) for number, one in enumerate(experiment.status.verdicts)]


def verdict_condition(experiment: Experiment, one: VerdictStatus) -> str:
    """Return the condition of a verdict."""
    return condition_title(experiment.spec, Condition(one.perturbation, one.magnitude))


def _verdict(experiment: Experiment, number: int, one: VerdictStatus) -> Row:
    prediction = next((p for p in experiment.spec.predictions or () if p.name == one.prediction), None)
    comparison = comparison_title(prediction) if prediction is not None else "-"
    interval = "-" if one.low is None or one.high is None else f"{figure(one.low)} to {figure(one.high)}"
    cells = (
        Cell(one.prediction),
        Cell(verdict_condition(experiment, one)),
        Cell(comparison),
        Cell(verdict_title(one), VERDICT_TONES[one.verdict]),
        Cell(figure(one.effect), order=one.effect),
        Cell(interval, order=one.low),
        Cell(figure(one.p), order=one.p),
        Cell(figure(one.minimum_effect), order=one.minimum_effect),
        Cell(str(one.blocks), order=float(one.blocks)),
    )
    return Row(str(number), cells)


def no_controls(experiment: Experiment) -> str:
    """Return the text to show if there is no result of a control."""
    ended = experiment.status.phase in EXPERIMENT_ENDED
    return "No control was checked." if ended else "The controls are checked at the end."


def control_rows(experiment: Experiment) -> list[Row]:
    """Return the controls as table rows."""
    return [
        Row(
            f"{number}",
            (
                Cell(one.name),
                Cell("passed", Tone.GOOD) if one.passed else Cell("failed", Tone.BAD),
                Cell(one.message or "-"),
            ),
        )
        for number, one in enumerate(experiment.status.controls)
    ]


def median_rows(experiment: Experiment) -> list[Row]:
    """Return the median of each arm's outcome under each condition as table rows. There are none before they
    may be shown.
    """
    if not values_shown(experiment):
        return []
    labels, outcomes = arm_labels(experiment.spec), experiment.spec.outcomes
    return [
        _median(cell, arm, label, (outcome.name, outcome.unit))
        for cell in summarise(experiment)
        for outcome in outcomes
        for arm, label in labels.items()
    ]


def _median(cell: CellSummary, arm: str, label: str, outcome: tuple[str, str]) -> Row:
    name, unit = outcome
    sample = cell.sample(arm, name)
    count, median = len(sample.values), sample.median
    short = count < cell.ended
    return Row(
        f"{cell.title}/{arm}/{name}",
        (
            Cell(cell.title),
            Cell(arm),
            Cell(label),
            Cell(name + (f" ({unit})" if unit else "")),
            Cell(figure(median), order=median),
            Cell(f"{count} of {cell.ended}" if short else str(count), order=float(count)),
            Cell(str(sample.censored), Tone.WARN if sample.censored else Tone.PLAIN),
        ),
    )


def block_rows(experiment: Experiment, now: datetime) -> list[Row]:
    """Return the blocks that have ended as table rows, the newest first."""
    return [_block(experiment, one, now) for one in reversed(experiment.status.blocks)]


def _block(experiment: Experiment, one: BlockStatus, now: datetime) -> Row:
    values = (
        f"{shown.arm} {shown.outcome} {figure(shown.value)}{' (censored)' if shown.censored else ''}"
        for shown in one.figures
    )
    began, ended = one.start_time, one.completion_time
    took = (ended - began).total_seconds() if began is not None and ended is not None else None
    cells = (
        Cell(str(one.id), order=float(one.id)),
        Cell(condition_title(experiment.spec, Condition(one.perturbation, one.magnitude))),
        Cell(str(one.repetition), order=float(one.repetition)),
        Cell("failed", Tone.BAD) if one.failed else Cell("ok", Tone.GOOD),
        Cell("; ".join(values) or "-"),
        Cell(", ".join(f"{hit.arm} {figure(hit.magnitude)}" for hit in one.achieved) or "-"),
        Cell(duration(took) if took is not None else "-", order=took),
        Cell(ago(ended, now), order=-ended.timestamp() if ended else None),
    )
    return Row(str(one.id), cells, "failed" if one.failed else "ok")


def failure_rows(experiment: Experiment) -> list[Row]:
    """Return every failed run as a table row."""
    return [
        Row(
            f"{block.id}/{one.arm}",
            (
                Cell(str(block.id), order=float(block.id)),
                Cell(condition_title(experiment.spec, Condition(block.perturbation, block.magnitude))),
                Cell(one.arm),
                Cell(one.reason),
                Cell(one.message or "-"),
            ),
        )
        for block in experiment.status.blocks
        for one in block.failures
    ]


def run_rows(experiment: Experiment, now: datetime) -> list[Row]:
    """Return the runs of blocks that have not ended as table rows, with links to their jobs."""
    served = {arm.name for arm in experiment.spec.arms if arm.type is ArmType.SERVING_JOB}
    namespace = experiment.metadata.namespace or ""
    return [
        Row(
            one.name,
            (
                Cell(one.name, href=(serving_link if one.arm in served else job_link)(namespace, one.name)),
                Cell(str(one.block), order=float(one.block)),
                Cell(one.arm),
                Cell(str(one.attempt)),
                Cell(one.state, _RUN_TONES.get(one.state, Tone.PLAIN)),
                Cell(ago(one.start_time, now)),
            ),
        )
        for one in experiment.status.runs
    ]


def tuning_rows(experiment: Experiment) -> list[Row]:
    """Return the tuning of each arm as table rows."""
    found = []
    for one in experiment.status.tuning:
        cells = (
            Cell(one.arm),
            Cell(str(one.trials), order=float(one.trials)),
            Cell(figure(one.best), order=one.best),
            Cell(one.failure, Tone.BAD) if one.failure else Cell(tuned_values(one) or "-"),
            Cell(duration(one.seconds) if one.seconds is not None else "-", order=one.seconds),
        )
        found.append(Row(one.arm, cells))
    return found
