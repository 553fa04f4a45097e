"""Residuals of ranks with one or two peers: two or three ranks do the same work.

One other rank shows that two ranks differ, but not which of them is slow. So a rank is compared in several
ways, and the smallest difference counts:

- with its own past: the mean of its first calm windows in this incarnation
- with its peers, whose times are compared with their own past too
- with the other stages of its replica. Longer samples prolong all stages of a replica, a slow rank only one

A rank that was slow from the first step has no calm past. With several stages, its distance to its peers is
then compared with the same distance in the other stages.

Times are divided by the effect of the tokens if all ranks report tokens. These residuals are weaker than
those against three or more peers: they make a rank a suspect, but they prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from convoy_controllers.guard.channel_state import ChannelState, Rules
from convoy_controllers.guard.channels import Channel
from convoy_controllers.guard.robust import clipped, group_medians, others_median, zeroed
from convoy_controllers.guard.signals import InitialMean
from convoy_controllers.guard.telemetry import Bools, Floats, Ints, Layout, Table

MOST = 3
"""Maximum number of ranks in a small peer group."""
_DELTA = 0.05
"""Slowness that is tolerated: more than among many peers, because few of them can share a cause."""
_CAP = 0.03
"""Maximum offset of a rank's baseline. A rank that is slow from the first step shifts the baseline."""
_SUSPECTED = 0.0
"""Logarithm of the evidence at which learning stops: early, because one slow rank is a large share of few
ranks.
"""
_ENOUGH_STAGES = 3
"""Number of other stages whose median one slow or fast rank cannot shift. With fewer stages, the rank must
also differ from its peers directly to count as slower than before.
"""
_UNEVEN = 0.5
"""Share of the difference between two replicas by which their stages may differ in addition. Stages react
differently to the length of samples.
"""
_RECENT = 1 / 4
_DIRECT = 0.5
"""Minimum ratio of a rank's distance to its peers to its residual. The distance varies with the length of
samples, so its mean over the recent windows counts.
"""
_TOKENS_PRIOR = 0.01
"""Weight of the assumption that a time grows in proportion to the tokens, as a sum of squared logarithms."""
_MOST_SLOPE = 2.0
_MOST_STEP = 0.3
"""Largest logarithm of a deviation from the own past that counts for the effect of tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class SmallGroups:
    """The ranks of a layout that have one or two peers."""

    ranks: Bools
    """Mask of these ranks."""
    unproven: Bools
    """Mask of the ranks with fewer than three peers. It includes ranks without peers."""
    peers: Ints
    """Peer group number of each rank of the job."""
    replica: Ints
    """Number of each rank's replica. It is the rank's own number if the replica has several ranks of one
    stage: then it is unknown which of them share their samples.
    """
    many_stages: Bools
    """Mask of the ranks whose replica has at least `_ENOUGH_STAGES` other stages."""

    @classmethod
    def of(cls, layout: Layout) -> SmallGroups:
        """Return the ranks with one or two peers."""
        peers = layout.peers
        sizes = np.bincount(peers, minlength=1)[peers] if layout.size else peers
        _, cell, counts = np.unique(
            np.stack([layout.replica, layout.stage]), axis=1, return_inverse=True, return_counts=True
        )
        _, replica = np.unique(layout.replica, return_inverse=True)
        replica = replica.reshape(-1).astype(np.int64)
        shared = np.bincount(replica, counts[cell.reshape(-1)] > 1)[replica] > 0
        replica = np.where(shared, layout.size + np.arange(layout.size), replica)
        stages = np.bincount(replica, minlength=1)[replica]
        unproven = sizes <= MOST
        return cls(unproven & (sizes > 1), unproven, peers, replica, stages > _ENOUGH_STAGES)


@dataclass(frozen=True, slots=True, eq=False)
class FewPeers:
    """State of the ranks with one or two peers after some windows: their past times and tokens, the effect
    of tokens on times, and recent distances to the peers.
    """

    seconds: InitialMean
    """Mean logarithm of the seconds per step, by rank, over the first calm windows."""
    tokens: InitialMean
    """Mean logarithm of the tokens per step, by rank, over the first calm windows."""
    changed: Floats
    """Recent mean of the distance to the peers, by rank, each rank compared with its own past."""
    apart: Floats
    """Recent mean of the distance to the peers, by rank."""
    product: float = _TOKENS_PRIOR
    square: float = _TOKENS_PRIOR
    """Sums over the calm windows: token deviations times second deviations, and squared token deviations."""

    @classmethod
    def initial(cls, groups: SmallGroups) -> FewPeers:
        """Return the state before the first window. It has no ranks if no rank has one or two peers."""
        size = len(groups.ranks) if groups.ranks.any() else 0
        means = InitialMean.initial(size), InitialMean.initial(size)
        return cls(*means, np.full(size, np.nan), np.full(size, np.nan))

    @property
    def slope(self) -> float:
        """Return the power of the tokens to which the times are proportional."""
        return float(np.clip(self.product / self.square, 0.0, _MOST_SLOPE))

    def learned(self, table: Table, calm: Bools) -> FewPeers:
        """Return the state with the past of one more window. Only the ranks of the mask `calm` contribute."""
        seconds, tokens = _per_step(table.compute, table), _per_step(_known_tokens(table), table)
        more, work = (
            np.where(calm, one.shift(values), np.nan)
            for one, values in ((self.seconds, seconds), (self.tokens, tokens))
        )
        more = clipped(more, -_MOST_STEP, _MOST_STEP)
        near = np.clip(seconds, self.seconds.mean - _MOST_STEP, self.seconds.mean + _MOST_STEP)
        return replace(
            self,
            seconds=self.seconds.learned(np.where(self.seconds.count > 0, near, seconds), calm),
            tokens=self.tokens.learned(tokens, calm),
            product=self.product + float(np.nansum(work * more)),
            square=self.square + float(np.nansum(np.where(np.isnan(more), 0.0, work**2))),
        )


def rules(usual: Rules) -> Rules:
    """Return the limits for the residuals of ranks with one or two peers.

    A slow rank makes its peers look fast. So a fast rank proves nothing.
    """
    delta = max(usual.delta, _DELTA)
    return replace(usual, delta=delta, cap=_CAP, fast=0.0, suspected=_SUSPECTED)


def calm(*channels: ChannelState) -> Bools:
    """Return a mask of the ranks that no channel suspects."""
    return np.asarray(np.all([~one.alarmed & (one.strength < _SUSPECTED) for one in channels], axis=0))


def advance(table: Table, groups: SmallGroups, state: FewPeers) -> tuple[FewPeers, dict[Channel, Floats]]:
    """Return the state after one more window, and the residuals of each rank. A residual is NaN for ranks
    with no or more peers, and while nothing can be compared.
    """
    if not groups.ranks.any():
        nothing = np.full(table.size, np.nan)
        return state, {Channel.OWN_PAST: nothing, Channel.FEW_PEERS: nothing}
    seconds, tokens = _per_step(table.compute, table), _per_step(_known_tokens(table), table)
    times = seconds - zeroed(state.slope * tokens)
    change = state.seconds.shift(seconds) - zeroed(state.slope * state.tokens.shift(tokens))
    changed, apart = (one - others_median(one, groups.peers) for one in (change, times))
    state = replace(state, changed=_recent(state.changed, changed), apart=_recent(state.apart, apart))
    found = {
        Channel.OWN_PAST: _against_past(change, changed, state.changed, groups),
        Channel.FEW_PEERS: _against_stages(apart, state.apart, groups.replica),
    }
    return state, {name: np.where(groups.ranks, one, np.nan) for name, one in found.items()}


def _against_past(change: Floats, peers: Floats, recent: Floats, groups: SmallGroups) -> Floats:
    """Return by rank the least of its changes: against its past, its peers and its replica.

    `change`: by rank, its time compared with its own past; `peers`: the same minus that of the peers;
    `recent`: mean of `peers` over the recent windows.
    """
    stages = change - others_median(change, groups.replica)
    both = np.minimum(stages, peers - others_median(peers, groups.replica))
    elsewhere = zeroed(others_median(group_medians(change, groups.peers)))[groups.peers]
    alone = np.minimum(change - elsewhere, peers)
    both = np.where(groups.many_stages, both, _if_direct(both, recent))
    return np.where(np.isnan(both), alone, both)


def _against_stages(peers: Floats, recent: Floats, replica: Ints) -> Floats:
    """Return by rank its distance to its peers, minus that of the other stages of its replica; NaN if the
    replica has no other stage.
    """
    load = others_median(peers, replica)
    found = peers - load - _UNEVEN * np.abs(load)
    return _if_direct(found, recent)


def _if_direct(found: Floats, recent: Floats) -> Floats:
    """Return the residuals, at most 0 for a rank that hardly differs from its peers."""
    direct = recent >= _DIRECT * found
    return np.where(direct | np.isnan(found), found, np.minimum(found, 0.0))


def _recent(before: Floats, now: Floats) -> Floats:
    mixed = np.where(np.isnan(before), now, before + _RECENT * (now - before))
    return np.where(np.isnan(now), before, mixed)


def _known_tokens(table: Table) -> Floats:
    """Return the tokens by rank; NaN for all ranks if only some ranks reported tokens. A time that is divided
    by the effect of tokens is not comparable with another rank's plain time.
    """
    return table.tokens if table.has_tokens else np.full(table.size, np.nan)


def _per_step(values: Floats, table: Table) -> Floats:
    return np.log(np.maximum(values / table.steps, 1e-9))
