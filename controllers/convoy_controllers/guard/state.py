"""What the detector knows of one incarnation of a job: plain arrays, carried from window to window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from convoy_controllers.guard.cells import Cells
from convoy_controllers.guard.channel_state import ChannelState, Rules
from convoy_controllers.guard.channels import Channel, Division, FindingPlace, Level
from convoy_controllers.guard.loss import Shape, Shares
from convoy_controllers.guard.residuals import MODELS
from convoy_controllers.guard.signals import InitialMean, numbered
from convoy_controllers.guard.telemetry import Bools, Floats, Group, Ints, Layout

RANKS = (*MODELS, Channel.DATA, Channel.HOST)
"""Channels of ranks; of those over compute only the chosen model's counts."""
JOB = (
    Channel.JOB_COMPUTE,
    Channel.JOB_DATA,
    Channel.JOB_HOST,
    Channel.JOB_PAUSES,
    Channel.JOB_TRANSFER,
    Channel.JOB_WALL,
)
"""Channels of the job as a whole."""
PLACES = {
    Channel.RACKS: Division.RACKS,
    Channel.CLASSES: Division.CLASSES,
    Channel.REPLICAS: Division.REPLICAS,
}
"""Channels of places."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What stays as it is: the layout, and what is made of it once."""

    layout: Layout
    rules: Rules
    peers: Ints
    """By rank, the number of its group of peers."""
    cells: Cells | None
    shape: Shape
    places: Mapping[Division, tuple[Ints, Ints]]
    """By kind of place: the places' names, and by rank the number of its own."""

    @classmethod
    def of(cls, layout: Layout, rules: Rules) -> Setting:
        """Prepared."""
        places = {
            Division.RACKS: numbered(layout.rack),
            Division.CLASSES: numbered(layout.hardware),
            Division.REPLICAS: numbered(layout.replica),
            Division.NODES: numbered(layout.node),
        }
        return cls(layout, rules, layout.peers, Cells.of(layout), Shape.of(layout), places)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """After some windows."""

    setting: Setting
    channels: Mapping[Channel, ChannelState]
    initial_means: Mapping[Level, InitialMean]
    heat: Floats
    """By rank, lately: logarithm of how much slower its clock is than the others'."""
    throttled: Floats
    """By rank, share of the last windows in which it was."""
    often: Mapping[FindingPlace, float]
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
    model: Channel = MODELS[0]
    """The one whose noise is least."""
    shares: Shares | None = None
    """Averaged over the last windows, since others were named."""
    unchanged: int = 0
    """How many these are."""
    windows: int = 0
    recent: Mapping[Channel, Floats] = field(default_factory=dict)
    """Residuals of the last window."""

    @property
    def family(self) -> int:
        """Units that may raise an alarm."""
        return sum(len(watch.alarmed) for watch in self.channels.values())

    @property
    def compute(self) -> ChannelState:
        """The watch whose verdicts on compute count."""
        return self.channels[self.model]


def initial_state(layout: Layout, rules: Rules | None = None) -> State:
    """Nothing seen. Another incarnation of the job begins anew."""
    setting = Setting.of(layout, rules or Rules())
    size = layout.size
    units = dict.fromkeys(RANKS, size) | dict.fromkeys(JOB, 1)
    units |= {Channel.GROUPS: 0, Channel.GROUPS_PAST: 0}
    units |= {channel: len(setting.places[division][0]) for channel, division in PLACES.items()}
    initial_means = dict.fromkeys(Level, 1) | {Level.COMPUTE: size, Level.GROUPS: 0}
    return State(
        setting=setting,
        channels={name: ChannelState.initial(count) for name, count in units.items()},
        initial_means={name: InitialMean.initial(count) for name, count in initial_means.items()},
        heat=np.zeros(size),
        throttled=np.zeros(size),
        often={FindingPlace.STAGES: 0.0, FindingPlace.REPLICAS: 0.0},
        named=np.zeros(size, dtype=np.bool_),
    )
