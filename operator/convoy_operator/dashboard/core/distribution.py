"""Comparison of a node's measurements with those of its hardware class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from convoy_crds.hardwareclass import ClassMetric, HardwareClass
from convoy_crds.hardwareclass import Row as ClassRow
from convoy_operator.dashboard.core.formatting import figure
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

NOTABLE = 0.05
"""A node is marked if it is worse than the median of its class by at least this share. The mark is only a
hint: sweeps decide if a node is slow.
"""
COLUMNS = (
    Column("Metric"),
    Column("This node", number=True),
    Column("Class median", number=True),
    Column("Difference", number=True),
    Column("Nodes", number=True),
)


@dataclass(frozen=True, slots=True)
class Strip:
    """The values of one metric, as percentages of the median of the hardware class."""

    name: str
    unit: str
    own: tuple[float, ...]
    """This node's values: one for each accelerator, or a single one for the node."""
    others: tuple[float, ...]
    own_value: float
    """Median of the values of this node's accelerators, in `unit`."""
    class_value: float
    higher_is_better: bool
    nodes: int

    @property
    def difference(self) -> float:
        """Return the share by which the node's value is above the median of the class; negative if below."""
        return self.own_value / self.class_value - 1.0

    @property
    def worse(self) -> float:
        """Return the share by which the node is worse than the median of its class; negative if the node is
        better.
        """
        return -self.difference if self.higher_is_better else self.difference


def hardware_of(row: str) -> str:
    """Return the name of the NodeHealth from the name of a HardwareClass row, which is `NAME` or
    `NAME/accelerator`.
    """
    return row.split("/", 1)[0]


def class_of(hardware: str, classes: Iterable[HardwareClass]) -> HardwareClass | None:
    """Return the class that has the newest measurement of the hardware; None if no class has one."""
    found = [
        (row.at, one)
        for one in classes
        for metric in one.status.metrics
        for row in (*metric.recent, *metric.reference)
        if hardware_of(row.name) == hardware
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def strips(hardware: str, one: HardwareClass) -> list[Strip]:
    """Return one Strip for each metric of the class `one`. Metrics that were not measured on the hardware
    are left out.
    """
    found = (_strip(hardware, metric) for metric in one.status.metrics)
    return [strip for strip in found if strip is not None]


def _strip(hardware: str, metric: ClassMetric) -> Strip | None:
    newest: dict[str, ClassRow] = {row.name: row for row in metric.reference}
    newest |= {row.name: row for row in metric.recent}
    levels = {name: median(row.levels) for name, row in newest.items() if row.levels}
    middle = metric.median or (median(levels.values()) if levels else None)
    own = [value for name, value in levels.items() if hardware_of(name) == hardware]
    if not own or not middle:
        return None
    others = [value for name, value in levels.items() if hardware_of(name) != hardware]
    return Strip(
        name=metric.name,
        unit=metric.unit,
        own=tuple(100 * value / middle for value in own),
        others=tuple(100 * value / middle for value in others),
        own_value=median(own),
        class_value=middle,
        higher_is_better=metric.higher_is_better,
        nodes=len({hardware_of(name) for name in levels}),
    )


def rows(found: Iterable[Strip]) -> list[Row]:
    """Return the strips as table rows."""
    return [
        Row(
            strip.name,
            (
                Cell(strip.name),
                Cell(f"{figure(strip.own_value)} {strip.unit}".strip(), order=strip.own_value),
                Cell(f"{figure(strip.class_value)} {strip.unit}".strip(), order=strip.class_value),
                Cell(
                    f"{strip.difference:+.1%} {'worse' if strip.worse >= NOTABLE else ''}".strip(),
                    Tone.WARN if strip.worse >= NOTABLE else Tone.PLAIN,
                    order=strip.worse,
                ),
                Cell(str(strip.nodes), order=float(strip.nodes)),
            ),
        )
        for strip in found
    ]
