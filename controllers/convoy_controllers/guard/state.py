"""What the detector knows of one incarnation of a job: plain arrays, carried from window to window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from convoy_controllers.guard.cells import Cells
from convoy_controllers.guard.loss import Shape, Shares
from convoy_controllers.guard.residuals import MODELS
from convoy_controllers.guard.signals import Past, numbered
from convoy_controllers.guard.telemetry import Bools, Floats, Group, Ints, Layout
from convoy_controllers.guard.watch import Rules, Watch

RANKS = (*MODELS, "data", "host")
"""Watches over ranks; of those over compute only the chosen model's counts."""
JOB = ("job compute", "job data", "job host", "job pauses", "job transfer", "job wall")
"""Watches over the job as a whole."""
PLACES = ("racks", "classes", "replicas")


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What stays as it is: the layout, and what is made of it once."""

    layout: Layout
    rules: Rules
    peers: Ints
    """By rank, the number of its group of peers."""
    cells: Cells | None
    shape: Shape
    places: Mapping[str, tuple[Ints, Ints]]
    """By kind of place: the places' names, and by rank the number of its own."""

    @classmethod
    def of(cls, layout: Layout, rules: Rules) -> Setting:
        """Prepared."""
        places = {
            "racks": numbered(layout.rack),
            "classes": numbered(layout.hardware),
            "replicas": numbered(layout.replica),
            "nodes": numbered(layout.node),
        }
        return cls(layout, rules, layout.peers, Cells.of(layout), Shape.of(layout), places)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """After some windows."""

    setting: Setting
    watches: Mapping[str, Watch]
    pasts: Mapping[str, Past]
    heat: Floats
    """By rank, lately: logarithm of how much slower its clock is than the others'."""
    throttled: Floats
    """By rank, share of the last windows in which it was."""
    often: Mapping[str, float]
    """Of these windows, the share in which stages and replicas were imbalanced."""
    named: Bools
    """Ranks that were alarmed in them."""
    communicators: tuple[Group, ...] = ()
    """In the order in which they became known, with the size they had then; nothing else is said in them."""
    quiet: tuple[int, ...] = ()
    """Windows for which each has been silent."""
    transferring: tuple[float, ...] = ()
    """Seconds of a window in the largest transfers of each, when it was last known."""
    paused: tuple[float, ...] = ()
    """What ranks that stand out had of the host, as share of a step, in the last windows."""
    model: str = MODELS[0]
    """The one whose noise is least."""
    shares: Shares | None = None
    """Averaged over the last windows, since others were named."""
    unchanged: int = 0
    """How many these are."""
    windows: int = 0
    recent: Mapping[str, Floats] = field(default_factory=dict)
    """Residuals of the last window, by watch."""

    @property
    def family(self) -> int:
        """Units that may raise an alarm."""
        return sum(len(watch.alarmed) for watch in self.watches.values())

    @property
    def compute(self) -> Watch:
        """The watch whose verdicts on compute count."""
        return self.watches[self.model]


def begin(layout: Layout, rules: Rules | None = None) -> State:
    """Nothing seen. Another incarnation of the job begins anew."""
    setting = Setting.of(layout, rules or Rules())
    size = layout.size
    units = dict.fromkeys(RANKS, size) | dict.fromkeys(JOB, 1) | {"groups": 0, "groups past": 0}
    units |= {kind: len(setting.places[kind][0]) for kind in PLACES}
    pasts = {"compute": size, "groups": 0}
    pasts |= dict.fromkeys(("job host", "job pauses", "job transfer", "job wall"), 1)
    return State(
        setting=setting,
        watches={name: Watch.begin(count) for name, count in units.items()},
        pasts={name: Past.begin(count) for name, count in pasts.items()},
        heat=np.zeros(size),
        throttled=np.zeros(size),
        often={"stages": 0.0, "replicas": 0.0},
        named=np.zeros(size, dtype=np.bool_),
    )
