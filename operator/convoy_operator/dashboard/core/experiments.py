"""The table of Experiments."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from shlex import quote

from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import ExperimentPhase
from convoy_crds.summaries import NOT_RECONCILED, age
from convoy_operator.dashboard.core.formatting import clock, experiment_link, reason_text
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.row_cache import RowCache, newest_first
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

NEW = "New"
UNREADABLE = "Unreadable"
DELETING = "Deleting"
TONES: dict[str, Tone] = {
    ExperimentPhase.PENDING: Tone.BUSY,
    ExperimentPhase.REGISTERING: Tone.BUSY,
    ExperimentPhase.TUNING: Tone.BUSY,
    ExperimentPhase.RUNNING: Tone.BUSY,
    ExperimentPhase.ANALYSING: Tone.BUSY,
    ExperimentPhase.SUSPENDED: Tone.QUIET,
    ExperimentPhase.SUCCEEDED: Tone.GOOD,
    ExperimentPhase.INVALID: Tone.BAD,
    ExperimentPhase.FAILED: Tone.BAD,
    NEW: Tone.WARN,
    DELETING: Tone.QUIET,
    UNREADABLE: Tone.BAD,
}
"""The states of an Experiment that pages show, in the order of their counts, with their tones."""
COLUMNS = (
    Column("Experiment", link=True),
    Column("Phase", badge=True),
    Column("Blocks", number=True),
    Column("Failed", number=True),
    Column("Verdicts"),
    Column("Age", number=True),
    Column("Why", wide=True, brief=True),
)


def state(experiment: Experiment) -> str:
    """Return the state that pages show for the experiment."""
    if experiment.metadata.deletion_timestamp is not None:
        return DELETING
    return experiment.status.phase or NEW


def why(experiment: Experiment) -> str:
    """Describe the reason for the experiment's state in one line."""
    status, leaves = experiment.status, experiment.metadata.deletion_timestamp
    text = reason_text(status.reason, status.message, status.conditions)
    if leaves is not None:
        text = "; ".join(part for part in (f"being deleted since {clock(leaves)}", text) if part)
    elif status.phase is None:
        text = NOT_RECONCILED
    return text or "-"


def row(parsed: ParsedObject[Experiment], now: datetime) -> Row:
    """Return the table row of an experiment."""
    key = f"{parsed.namespace}/{parsed.name}"
    name = Cell(key, href=experiment_link(parsed.namespace, parsed.name))
    experiment = parsed.model
    if experiment is None:
        rest = (Cell("-"),) * (len(COLUMNS) - 3)
        return Row(key, (name, Cell(UNREADABLE, Tone.BAD), *rest, Cell(parsed.parse_error)), UNREADABLE)
    status, shown = experiment.status, state(experiment)
    created = experiment.metadata.creation_timestamp
    failed = status.failed_blocks
    cells = (
        name,
        Cell(shown, TONES[shown]),
        Cell(status.progress or "-", order=float(status.percent), share=status.percent / 100),
        Cell(str(failed), Tone.WARN if failed else Tone.PLAIN, order=float(failed)),
        Cell(status.summary or "-"),
        Cell(age(created, now), order=-created.timestamp() if created else None),
        Cell(why(experiment)),
    )
    return Row(key, cells, shown)


def rows(
    found: Iterable[ParsedObject[Experiment]], now: datetime, cache: RowCache[Experiment] | None = None
) -> list[Row]:
    """Return all experiments as table rows, newest first."""
    make = cache.row if cache is not None else row
    return [make(parsed, now) for parsed in sorted(found, key=newest_first)]


def nothing(user: str, everywhere: bool) -> str:
    """Return the text to show if the list is empty. `everywhere` is True if the user may list the Experiments
    of all namespaces.
    """
    if everywhere:
        return "There are no Experiments."
    grant = "kubectl -n NAMESPACE create rolebinding NAME --clusterrole=convoy-experiments-viewer"
    return (
        f"There are no Experiments that {user} may list. An administrator of a namespace can grant access: "
        f"{grant} --user={quote(user)}"
    )


def counts(found: Iterable[ParsedObject[Experiment]]) -> dict[str, int]:
    """Return the number of experiments in each state, ordered like `TONES`. States without experiments are
    left out.
    """
    counted: dict[str, int] = {}
    for parsed in found:
        shown = state(parsed.model) if parsed.model else UNREADABLE
        counted[shown] = counted.get(shown, 0) + 1
    return {name: counted[name] for name in TONES if name in counted}
