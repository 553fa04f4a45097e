"""The detector's state for one incarnation of a job: plain arrays, carried from window to window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from convoy_controllers.guard.cells import Cells
from convoy_controllers.guard.channel_state import ChannelState, Rules
from convoy_controllers.guard.channels import Channel, Division, FindingPlace, Level
from convoy_controllers.guard.few_peers import FewPeers, SmallGroups
from convoy_controllers.guard.imbalance import Unevenness
from convoy_controllers.guard.loss import Shape, Shares
from convoy_controllers.guard.residuals import MODELS
from convoy_controllers.guard.signals import InitialMean, numbered
from convoy_controllers.guard.telemetry import Bools, Floats, Group, Ints, Layout

RANKS = (*MODELS, Channel.DATA, Channel.HOST)
"""Channels with one unit per rank. Among the compute channels, only that of the chosen model can blame
ranks.
"""
FEW = (Channel.OWN_PAST, Channel.FEW_PEERS)
"""Channels of the ranks with one or two peers: one unit per rank, or none if no rank has so few."""
JOB = (
    Channel.JOB_COMPUTE,
    Channel.JOB_DATA,
    Channel.JOB_HOST,
    Channel.JOB_PAUSES,
    Channel.JOB_TRANSFER,
    Channel.JOB_WALL,
)
"""Channels with one unit: the job as a whole."""
PLACES = {
    Channel.RACKS: Division.RACKS,
    Channel.CLASSES: Division.CLASSES,
    Channel.REPLICAS: Division.REPLICAS,
}
"""Channels with one unit per place, and the division that gives the places."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The constant part of the state: the layout, and the data derived from the layout."""

    layout: Layout
    rules: Rules
    peers: Ints
    """Peer group number of each rank."""
    cells: Cells | None
    small: SmallGroups
    """The ranks with one or two peers."""
    shape: Shape
    places: Mapping[Division, tuple[Ints, Ints]]
    """Two arrays for each division: the numbers of its places in the layout, and each rank's index among
    these places.
    """

    @classmethod
    def of(cls, layout: Layout, rules: Rules) -> Setting:
        """Return the constant part of the state for a layout."""
        places = {
            Division.RACKS: numbered(layout.rack),
            Division.CLASSES: numbered(layout.hardware),
            Division.REPLICAS: numbered(layout.replica),
            Division.NODES: numbered(layout.node),
        }
        return cls(
            layout,
            rules,
            layout.peers,
            Cells.of(layout),
            SmallGroups.of(layout),
            Shape.of(layout),
            places,
        )


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The detector's state for one incarnation of a job, after all windows so far."""

    setting: Setting
    channels: Mapping[Channel, ChannelState]
    initial_means: Mapping[Level, InitialMean]
    few_peers: FewPeers
    """State of the ranks with one or two peers."""
    clock_deficit: Floats
    """Clock deficit of each rank: the logarithm of the other ranks' median clock rate divided by the rank's
    own, as a moving average.
    """
    throttled: Floats
    """Share of the recent windows in which the device was throttled, by rank."""
    imbalanced_share: Mapping[FindingPlace, float]
    """Share of the recent windows in which imbalance was costly, for stages and for replicas."""
    unevenness: Unevenness
    """Differences between replicas and between stages, for jobs in which few ranks do the same work."""
    alarmed_ranks: Bools
    """Mask of the ranks with a compute alarm in the last window."""
    communicators: tuple[Group, ...] = ()
    """Communicators whose members have all reported in one window, in the order of these windows. Each has
    the byte count that it had in that window. Their times are NaN.
    """
    silent_windows: tuple[int, ...] = ()
    """Number of windows since the last report of each communicator."""
    transferring: tuple[float, ...] = ()
    """Seconds that the largest transfers of each communicator took in one window. The window is the last
    one that all members of the communicator reported.
    """
    pauses: tuple[float, ...] = ()
    """Host pauses of outlier ranks, as shares of a step; one value for each of the last windows."""
    model: Channel = MODELS[0]
    """The compute model with the least noise so far."""
    shares: Shares | None = None
    """Shares of the step time that improvements would save (`Shares`): the mean over the windows since the
    set of alarmed ranks last changed.
    """
    unchanged: int = 0
    """Number of windows since the set of alarmed ranks last changed."""
    windows: int = 0
    recent: Mapping[Channel, Floats] = field(default_factory=dict)
    """Residuals of the last window, by channel."""

    @property
    def family(self) -> int:
        """Return the number of units of all channels. Each unit may raise an alarm."""
        return sum(len(watch.alarmed) for watch in self.channels.values())

    @property
    def compute(self) -> ChannelState:
        """Return the state of the chosen model's compute channel. Ranks with one or two peers have the state
        of their own channel.
        """
        chosen, few = self.channels[self.model], self.setting.small.ranks
        if not few.any():
            return chosen
        past, peers = self.channels[Channel.OWN_PAST], self.channels[Channel.FEW_PEERS]
        return chosen.replaced(past, few).replaced(peers, few & peers.alarmed & ~past.alarmed)


def initial_state(layout: Layout, rules: Rules | None = None) -> State:
    """Return the state before the first window of an incarnation."""
    setting = Setting.of(layout, rules or Rules())
    size = layout.size
    units = dict.fromkeys(RANKS, size) | dict.fromkeys(JOB, 1)
    units |= {Channel.GROUPS: 0, Channel.GROUPS_PAST: 0}
    units |= dict.fromkeys(FEW, size if setting.small.ranks.any() else 0)
    units |= {channel: len(setting.places[division][0]) for channel, division in PLACES.items()}
    initial_means = dict.fromkeys(Level, 1) | {Level.COMPUTE: size, Level.GROUPS: 0}
    channels = {name: ChannelState.initial(count) for name, count in units.items()}
    # Two or three ranks are too few for a spread across ranks: start with their variation over windows.
    channels |= {name: replace(channels[name], windows=1) for name in FEW}
    return State(
        setting=setting,
        channels=channels,
        initial_means={name: InitialMean.initial(count) for name, count in initial_means.items()},
        few_peers=FewPeers.initial(setting.small),
        clock_deficit=np.zeros(size),
        throttled=np.zeros(size),
        imbalanced_share={FindingPlace.STAGES: 0.0, FindingPlace.REPLICAS: 0.0},
        unevenness=Unevenness.initial(setting.shape),
        alarmed_ranks=np.zeros(size, dtype=np.bool_),
    )
