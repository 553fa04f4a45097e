"""Masks of the ranks whose slowness has a common cause. Such ranks are not stragglers: too many ranks of a
peer group, of a rack, or of the ranks with few peers are slow at once.
"""

from __future__ import annotations

import numpy as np

from convoy_controllers.guard import evidence
from convoy_controllers.guard.channels import Division
from convoy_controllers.guard.state import State
from convoy_controllers.guard.telemetry import Bools, Ints, Table

COMMON_SHARE = 0.2
"""Share of a peer group. If more of the group is slow at once, the slow ranks have a common cause and are
not stragglers.
"""
_TOGETHER = evidence.MOST + 2.0
"""Logarithm of the evidence from which a rank with few peers counts as slower together with others. It is
more than a single late window gives.
"""
_MOST_OF_A_RACK = 0.6
_SEVERAL_NODES = 3
"""Minimum number of nodes with slow ranks for a common cause. Fewer nodes may each have a fault."""


def slow_among_peers(alarmed: Bools, state: State, table: Table) -> Bools:
    """Return a mask of the ranks whose peer group is slow as a whole: more than a fifth of the group, on at
    least three nodes, is slow at once.
    """
    return _in_slow_groups(alarmed, state.setting.peers, COMMON_SHARE, state, table)


def in_slow_racks(alarmed: Bools, state: State, table: Table) -> Bools:
    """Return a mask of the ranks in racks that are slow as a whole: most ranks of the rack, on at least
    three nodes, are slow at once. The mask is empty if the job uses one rack only.
    """
    names, rack = state.setting.places[Division.RACKS]
    if len(names) < 2:
        return np.zeros_like(alarmed)
    return _in_slow_groups(alarmed, rack, _MOST_OF_A_RACK, state, table)


def slower_together(state: State) -> Bools:
    """Return a mask of the ranks with few peers that become slower together: more than one node, and more
    than a fifth of the nodes of such ranks. The mask is empty if fewer do.
    """
    few, nodes = state.setting.small.ranks, state.setting.places[Division.NODES][1]
    if not few.any():
        return few
    slower = few & (state.compute.strength >= _TOGETHER)
    count = len(np.unique(nodes[slower]))
    share = count / max(1, len(np.unique(nodes[few])))
    return slower & (count > 1) & (share > COMMON_SHARE)


def _in_slow_groups(alarmed: Bools, groups: Ints, most: float, state: State, table: Table) -> Bools:
    """Return a mask of the ranks in groups of which more than the share `most` is slow at once, on several
    nodes. `groups`: group number of each rank.
    """
    if not alarmed.any():
        return alarmed
    nodes, count = state.setting.places[Division.NODES][1], int(groups.max()) + 1
    slow = np.bincount(groups[alarmed], minlength=count)
    reported = np.bincount(groups[table.reported], minlength=count)
    pairs = np.unique(np.stack([groups[alarmed], nodes[alarmed]]), axis=1)[0]
    broad = np.bincount(pairs, minlength=count) >= _SEVERAL_NODES
    return np.asarray(broad & (slow > most * reported))[groups]
