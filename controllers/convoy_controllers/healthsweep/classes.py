"""Hardware classes: the values that nodes with the same hardware reach. They are learned from sweeps and
then frozen.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import median

from convoy_controllers.guard.sweep import fingerprint, metric, reference
from convoy_controllers.guard.sweep.measuring import Better
from convoy_controllers.guard.sweep.reference import LEVELS, Reference
from convoy_controllers.guard.sweep.verdict import Outcome
from convoy_controllers.healthsweep.observed import INVENTORY, End, Measurement, NodeReport
from convoy_crds.hardwareclass import MOST_ROWS, ClassMetric, HardwareClass, HardwareClassStatus, Row

FEWEST_NODES = 4
"""Minimum number of nodes for a reference, however many accelerators each node has."""
FEWEST_ROWS = metric.FEWEST + 1
"""Minimum number of rows of a reference. A row has the values of one node, or of one accelerator. Each row
is compared with the other rows, so this is one more than `metric.FEWEST`.
"""
KEPT = timedelta(days=365)
"""Time for which a class is kept after its last measurement."""
OWN = "own."
"""Prefix of facts that differ between the nodes of a class."""
_MOST_FACTS = 64
_DIGITS = 5
"""Number of significant digits of stored values: no metric is more exact."""


def learned(
    known: HardwareClassStatus, hardware: str, report: NodeReport, now: datetime
) -> HardwareClassStatus:
    """Return the class with the measurements of a node's first run added. Adding the same run twice changes
    nothing. Call `settled` next.
    """
    metrics = {one.name: one for one in known.metrics}
    for found in report.metrics:
        if _has(metrics.get(found.metric), found.row(hardware), now):
            continue
        if (row := _row(found, hardware, now)) is not None:
            before = metrics.get(found.metric) or ClassMetric(
                name=found.metric, unit=found.unit, higher_is_better=found.higher_is_better
            )
            metrics[found.metric] = _joined(before, row)
    facts = {name: value[:128] for name, value in sorted(report.facts.items()) if not name.startswith(OWN)}
    facts = dict(list(facts.items())[:_MOST_FACTS])
    update = {"facts": facts or known.facts, "metrics": list(metrics.values())}
    return known.model_copy(update=update)


def settled(known: HardwareClassStatus, *, freeze: bool) -> HardwareClassStatus:
    """Return the class with its counts, medians and drifts computed again from its rows.

    With `freeze`, every metric without a reference gets one if it has enough rows.
    """
    metrics = [_frozen(one) if freeze and not one.reference else one for one in known.metrics]
    found = sorted((_compared(one) for one in metrics), key=lambda one: one.name)
    nodes = {row.name.partition("/")[0] for one in found for row in one.recent}
    return known.model_copy(
        update={
            "metrics": found,
            "nodes": len(nodes),
            "referenced": sum(1 for one in found if one.reference),
            "drifted": [one.name for one in found if abs(one.drift or 0.0) > reference.ALARM],
        }
    )


def expires(one: HardwareClass) -> datetime | None:
    """Return the time at which a class is deleted: KEPT after its last measurement.

    Return None if there is no measurement and the API server has set no creation time yet.
    """
    times = [row.at for found in one.status.metrics for row in found.recent]
    last = max(times, default=one.metadata.creation_timestamp)
    return last + KEPT if last is not None else None


def reference_of(known: HardwareClassStatus, found: Measurement) -> Reference:
    """Return the reference for a metric. It has no members until the metric is frozen."""
    one = next((one for one in known.metrics if one.name == found.metric), None)
    return _reference(found.metric, found.higher_is_better, one.reference if one is not None else ())


def _reference(name: str, higher_is_better: bool, rows: Iterable[Row]) -> Reference:
    members = tuple((row.name, tuple(row.levels)) for row in rows if len(row.levels) == LEVELS)
    return Reference(name, "", Better.HIGHER if higher_is_better else Better.LOWER, 1, members)


def digests_of(known: HardwareClassStatus, name: str) -> tuple[dict[str, str], str | None]:
    """Return each node's last digest in a metric, and the correct digest; None if the correct digest is
    unknown.
    """
    one = next((one for one in known.metrics if one.name == name), None)
    if one is None:
        return {}, None
    return {row.name: row.digest for row in one.recent}, next((row.digest for row in one.reference), None)


def _row(found: Measurement, hardware: str, now: datetime) -> Row | None:
    if found.end is not End.MEASURED or found.metric == INVENTORY:
        return None
    name = found.row(hardware)
    if found.digests:
        same = len(set(found.digests)) == 1
        return Row(name=name, at=now, digest=found.digests[0]) if same else None
    levels = reference.quantiles(found.samples)
    return None if levels is None else Row(name=name, at=now, levels=[_rounded(one) for one in levels])


def _has(known: ClassMetric | None, row: str, now: datetime) -> bool:
    return known is not None and any(one.name == row and one.at == now for one in known.recent)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _joined(known: ClassMetric, row: Row) -> ClassMetric:
    """Return the metric with the row of one more measurement. The row replaces an earlier row of the same
    name. If there are more than MOST_ROWS rows, the oldest are dropped.
    """
    others = sorted((one for one in known.recent if one.name != row.name), key=lambda one: one.at)
    recent = [*others, row][-MOST_ROWS:]
    return known.model_copy(update={"recent": sorted(recent, key=lambda one: one.name)})


def _frozen(known: ClassMetric) -> ClassMetric:
    rows = {row.name: row for row in known.recent}
    if len({name.partition("/")[0] for name in rows}) < FEWEST_NODES:
        return known
    if all(row.digest for row in rows.values()):
        right = fingerprint.agreed({name: row.digest for name, row in rows.items()})
        kept = [row for row in rows.values() if row.digest == right]
        return known.model_copy(update={"reference": kept}) if right is not None else known
    if len(rows) < FEWEST_ROWS:
        return known
    good = _without_outliers(known, list(rows.values()))
    return known.model_copy(update={"reference": good}) if len(good) >= FEWEST_ROWS else known


def _without_outliers(known: ClassMetric, rows: list[Row]) -> list[Row]:
    """Return the rows without outliers. An outlier is a row that fails the comparison with all rows. The
    worst one is removed first, then the remaining rows are compared again.
    """
    while len(rows) >= FEWEST_ROWS:
        against = _reference(known.name, known.higher_is_better, rows)
        failed = []
        for row in rows:
            # `judge` fails a node only after two runs, so pass the only run twice.
            verdict = metric.judge(row.name, [row.levels, row.levels], against)
            if verdict.outcome is Outcome.FAIL:
                failed.append((dict(verdict.evidence).get("deficit", 0.0), row.name))
        if not failed:
            return rows
        worst = max(failed)[1]
        rows = [row for row in rows if row.name != worst]
    return rows


def _compared(one: ClassMetric) -> ClassMetric:
    if not one.reference or one.reference[0].digest:
        return one
    middle = _rounded(median(row.levels[len(row.levels) // 2] for row in one.reference))
    return one.model_copy(update={"median": middle, "drift": _drift(one)})


def _drift(one: ClassMetric) -> float | None:
    """Return the share by which the class's recent values have drifted from the reference. Return None
    while too few nodes have been swept, because one slow node is no drift of the class.
    """
    if len(one.recent) < FEWEST_ROWS:
        return None
    recent = {row.name: row.levels for row in one.recent}
    found = reference.drift(_reference(one.name, one.higher_is_better, one.reference), recent)
    return None if found is None else round(found.change, 4)
