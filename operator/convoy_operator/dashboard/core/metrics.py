"""The table of the metrics that a job's program reports."""

from __future__ import annotations

from convoy_crds.engine import Engine, EngineMetric
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Metric
from convoy_operator.dashboard.core.formatting import figure
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

COLUMNS = (
    Column("Metric"),
    Column("Value", number=True),
    Column("Unit"),
    Column("At step", number=True),
    Column("Meaning", wide=True),
)


def declared(engine: Engine | None) -> dict[str, EngineMetric]:
    """Return the metrics that the job's Engine declares, by name."""
    return {one.name: one for one in engine.spec.metrics} if engine is not None else {}


def rows(job: TrainingJob, engine: Engine | None) -> list[Row]:
    """Return the job's metrics as table rows: first those that its Engine declares, in the Engine's order,
    then all others.
    """
    known = declared(engine)
    found = {one.name: one for one in job.status.progress.metrics} if job.status.progress else {}
    names = [*known, *(name for name in found if name not in known)]
    return [_row(name, found.get(name), known.get(name)) for name in names]


def _row(name: str, metric: Metric | None, meaning: EngineMetric | None) -> Row:
    value, step = Cell("none yet", Tone.QUIET), Cell("-")
    if metric is not None:
        number = metric.value
        value = Cell("NaN", Tone.BAD) if number is None else Cell(figure(number), order=number)
        step = Cell(f"{metric.step:,}", order=float(metric.step))
    unit = meaning.unit if meaning else ""
    about = meaning.help if meaning else ""
    return Row(name, (Cell(name), value, Cell(unit or "-"), step, Cell(about or "-")))
