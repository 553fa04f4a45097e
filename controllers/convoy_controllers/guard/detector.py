"""The online detector. A pure function maps a state and a table to the next state and a report; the
function reads no clock and does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from convoy_controllers.guard import channel_state, few_peers, signals
from convoy_controllers.guard.causes import report
from convoy_controllers.guard.channel_state import SUSPECTED
from convoy_controllers.guard.channels import Channel, Division, FindingPlace, Level
from convoy_controllers.guard.few_peers import FewPeers
from convoy_controllers.guard.findings import Report
from convoy_controllers.guard.loss import IMBALANCED, Shares, shares
from convoy_controllers.guard.residuals import FEWEST, MODELS, compute_residuals
from convoy_controllers.guard.robust import clipped, group_medians, others_median
from convoy_controllers.guard.signals import InitialMean, against_all, busy, middle, share
from convoy_controllers.guard.state import FEW, JOB, State
from convoy_controllers.guard.telemetry import Floats, Group, Ints, Table

_BETTER_NOISE = 0.8
"""Ratio of another compute model's noise to the noise of the plain peer model. Below this ratio the other
model is used instead of the plain peer model.
"""
_RECENT = 1 / 8
_WARM_UP_WINDOWS = 2
"""Number of first windows that are no part of a rank's own past: programs compile and fill their caches."""
_PAUSE_WINDOWS = 16
"""Number of windows over which pauses are averaged. Pauses are rare, so one window is not enough."""
_IGNORED_PAUSES = 3
"""Number of windows that the average of the pauses leaves out: those with the largest pauses."""
_COMMUNICATORS_PER_RANK = 4
"""Number of communicators that may be remembered for each rank. The limit for a job is this number times
the number of ranks, plus `_MORE_COMMUNICATORS`.
"""
_MORE_COMMUNICATORS = 64
"""Number of communicators that may be remembered for a job of any size, in addition to those for each rank.
"""
_DROP_AFTER = 64
"""Number of silent windows after which a communicator is dropped."""


def advance(state: State, table: Table) -> tuple[State, Report]:
    """Return the state after one more table of the same incarnation, and the report on that table.

    Raises ValueError if the table's number of ranks is not the job's.
    """
    size = state.setting.layout.size
    if table.size != size:
        raise ValueError(f"the table has {table.size} ranks, but the job has {size}")
    state, table = _known_communicators(state, table)
    state = replace(state, pauses=_recent_pauses(state, table))
    residuals, counts = _compute(state, table)
    known, few = few_peers.advance(table, state.setting.small, state.few_peers)
    residuals |= few | {
        Channel.DATA: against_all(share(table.data, table)),
        Channel.HOST: against_all(share(table.host, table)),
    }
    more, initial_means = _group_residuals(state, table, residuals)
    residuals |= more
    nothing = np.full(size, np.nan)
    rules = dict.fromkeys(state.channels, state.setting.rules)
    rules |= dict.fromkeys(FEW, few_peers.rules(state.setting.rules))
    family = state.family
    channels = {
        name: channel_state.advance(
            one,
            residuals[name],
            table.first,
            family,
            rules[name],
            state.recent.get(name, nothing) if name in FEW else None,
        )
        for name, one in state.channels.items()
    }
    state = replace(
        state,
        channels=channels,
        initial_means=initial_means,
        few_peers=_learned(state, known, table),
        recent=residuals,
        windows=state.windows + 1,
        model=_model(channels, state),
        clock_deficit=_toward(state.clock_deficit, _heat(table)),
        throttled=_toward(state.throttled, np.where(table.reported, table.throttled, np.nan)),
    )
    state = _with_shares(state, table)
    return state, report(state, table, counts < FEWEST)


def _compute(state: State, table: Table) -> tuple[dict[Channel, Floats], Ints]:
    """Return the compute residuals by model, and the number of peers of each rank."""
    found = compute_residuals(table, state.setting.peers, state.setting.cells)
    counts = found[Channel.PEERS].known
    nothing = np.full(table.size, np.nan)
    return {
        model: np.where(counts >= FEWEST, found[model].residual, np.nan) if model in found else nothing
        for model in MODELS
    }, counts


def _learned(state: State, known: FewPeers, table: Table) -> FewPeers:
    """Return `known` with the window as part of the past of the ranks that are not suspected."""
    if state.windows < _WARM_UP_WINDOWS or not state.setting.small.ranks.any():
        return known
    return known.learned(table, few_peers.calm(*(state.channels[name] for name in FEW)))


def _group_residuals(
    state: State, table: Table, residuals: Mapping[Channel, Floats]
) -> tuple[dict[Channel, Floats], dict[Level, InitialMean]]:
    """Return the residuals of the job, its places and its communicators, and the updated initial means."""
    places = state.setting.places
    times = signals.transfers(table.groups)
    values = {
        Level.COMPUTE: np.log(np.maximum(table.compute / table.steps, 1e-9)),
        Level.GROUPS: _of_equal_size(state, table, times),
        Level.JOB_HOST: _mean_of_known(share(table.host, table)),
        Level.JOB_PAUSES: _mean_pause(state),
        Level.JOB_TRANSFER: share(signals.transfer(table), table),
        Level.JOB_WALL: np.log(np.maximum(signals.stepping(table), 1e-9)),
    }
    shift = {name: state.initial_means[name].shift(value) for name, value in values.items()}
    load = residuals[Channel.PEERS if np.isnan(residuals[Channel.TOKENS]).all() else Channel.TOKENS]
    like = signals.communicator_classes(table.groups)
    found = {
        Channel.GROUPS: signals.slow_transfers(times, like),
        Channel.GROUPS_PAST: shift[Level.GROUPS],
        Channel.JOB_COMPUTE: middle(shift[Level.COMPUTE], lower=table.size < FEWEST),
        Channel.JOB_DATA: middle(share(table.data, table)),
        Channel.JOB_HOST: shift[Level.JOB_HOST],
        Channel.JOB_PAUSES: shift[Level.JOB_PAUSES],
        Channel.JOB_TRANSFER: shift[Level.JOB_TRANSFER],
        Channel.JOB_WALL: shift[Level.JOB_WALL],
        Channel.RACKS: signals.against_other_racks(shift[Level.COMPUTE], places[Division.RACKS][1]),
        Channel.CLASSES: group_medians(shift[Level.COMPUTE], places[Division.CLASSES][1]),
        Channel.REPLICAS: signals.against_other_replicas(load, places[Division.REPLICAS][1]),
    }
    # Learn the initial means even while JOB_DATA is suspected. That channel is not compared with the past,
    # and a job that always waits for input would never learn its means.
    calm = all(state.channels[name].strength[0] < SUSPECTED for name in JOB if name is not Channel.JOB_DATA)
    slow = np.maximum(state.channels[Channel.GROUPS].strength, state.channels[Channel.GROUPS_PAST].strength)
    initial_means = {
        name: initial.learned(values[name], slow < SUSPECTED if name is Level.GROUPS else np.array([calm]))
        for name, initial in state.initial_means.items()
    }
    return found, initial_means


def _of_equal_size(state: State, table: Table, times: Floats) -> Floats:
    """Return the times of communicators. The time is NaN if a communicator's byte count has changed since
    the communicator became known.

    Only transfers of equal size are comparable with the past.
    """
    same = [one.bytes == now.bytes for one, now in zip(state.communicators, table.groups, strict=True)]
    return np.where(np.array(same, dtype=np.bool_), times, np.nan)


def _known_communicators(state: State, table: Table) -> tuple[State, Table]:
    """Return the updated state, and the table with all known communicators in the order in which they
    became known.

    A communicator becomes known once all its members have reported it in one window. If the table lacks a
    known communicator, it is added as silent. After _DROP_AFTER silent windows a communicator is dropped.
    This limit is high, because some communicators work rarely, such as those of an evaluation.
    """
    reported = {group.name: group for group in table.groups}
    known = state.communicators
    quiet = [
        0 if one.name in reported else since + 1
        for one, since in zip(known, state.silent_windows, strict=True)
    ]
    kept = [number for number, since in enumerate(quiet) if since <= _DROP_AFTER]
    names = {known[number].name for number in kept}
    room = max(0, _COMMUNICATORS_PER_RANK * table.size + _MORE_COMMUNICATORS - len(kept))
    whole = (one for one in table.groups if one.name not in names and not np.isnan(one.seconds).any())
    fresh = [one.silent() for one in whole][:room]
    if fresh or len(kept) < len(known):
        order = np.array([*kept, *[-1] * len(fresh)], dtype=np.int64)
        channels = {
            name: state.channels[name].rearranged(order) for name in (Channel.GROUPS, Channel.GROUPS_PAST)
        }
        initial = state.initial_means[Level.GROUPS].rearranged(order)
        state = replace(
            state,
            channels={**state.channels, **channels},
            initial_means={**state.initial_means, Level.GROUPS: initial},
        )
    groups = (*(known[number] for number in kept), *fresh)
    now = tuple(reported.get(one.name, one) for one in groups)
    before = (*(state.transferring[number] for number in kept), *[0.0] * len(fresh))
    state = replace(
        state,
        communicators=groups,
        silent_windows=(*(quiet[number] for number in kept), *[0] * len(fresh)),
        transferring=tuple(_transferring(one, last) for one, last in zip(now, before, strict=True)),
    )
    return state, replace(table, groups=now)


def _transferring(group: Group, last: float) -> float:
    seconds = group.transfer
    return last if math.isnan(seconds) else seconds * group.count


def _model(channels: Mapping[Channel, channel_state.ChannelState], state: State) -> Channel:
    """Return the compute model with the least noise so far. The plain peer model is chosen unless another
    model has less than `_BETTER_NOISE` times its noise.
    """
    rules = state.setting.rules
    noise = {
        name: channels[name].noise(rules) * (1 if name == MODELS[0] else 1 / _BETTER_NOISE)
        for name in MODELS
        if not np.isnan(channels[name].sigma)
    }
    return min(noise, key=lambda name: noise[name], default=MODELS[0])


def _mean_of_known(values: Floats) -> Floats:
    """Return the mean of the values that are not NaN, as an array of one.

    Pauses hit a different rank each time and delay all ranks, so only the mean shows the pauses.
    """
    known = values[~np.isnan(values)]
    return np.array([known.mean() if len(known) else np.nan])


def _recent_pauses(state: State, table: Table) -> tuple[float, ...]:
    """Return the host pauses of the last windows, one value for each window, this window included.

    The pauses of a window count at most as much as its steps took longer than the steps of the first
    windows. The result is empty while a rank has an alarm for its own compute, input or host time.
    """
    if (
        state.channels[Channel.HOST].alarmed | state.channels[Channel.DATA].alarmed | state.compute.alarmed
    ).any():
        return ()
    found = share(signals.pauses(table.host), table)[0]
    initial = state.initial_means[Level.JOB_WALL]
    if initial.count[0]:
        longer = (signals.stepping(table) - np.exp(initial.mean)) * table.steps
        found = np.minimum(found, share(longer, table)[0])
    return (*state.pauses, float(np.nan_to_num(found)))[-_PAUSE_WINDOWS:]


def _mean_pause(state: State) -> Floats:
    """Return the mean of the recent pauses as an array of one. The largest pauses are left out, so that a
    rare pause, such as an evaluation by one rank, has no effect.
    """
    worst_first = sorted(state.pauses, reverse=True)
    return np.array([sum(worst_first[_IGNORED_PAUSES:]) / (_PAUSE_WINDOWS - _IGNORED_PAUSES)])


def _heat(table: Table) -> Floats:
    clock = np.log(clipped(table.clock, 0.05, 1.0))
    return others_median(clock) - clock


def _toward(before: Floats, now: Floats) -> Floats:
    return np.asarray(before + _RECENT * np.where(np.isnan(now), 0.0, now - before))


def _with_shares(state: State, table: Table) -> State:
    setting = state.setting
    alarmed = state.compute.alarmed
    now = shares(busy(table), alarmed, setting.peers, setting.shape, table.micro_batches)
    if setting.small.ranks.any():
        more = state.unevenness.updated(busy(table), alarmed, setting.peers, setting.shape)
        state = replace(state, unevenness=more)
    costly = {
        FindingPlace.STAGES: float(now.stages >= IMBALANCED),
        FindingPlace.REPLICAS: float(now.replicas >= IMBALANCED),
    }
    before = state.shares
    if before is None or (alarmed != state.alarmed_ranks).any():
        # The set of alarmed ranks has changed, so start the averages of the shares and of the costly
        # imbalance again.
        return replace(state, shares=now, imbalanced_share=costly, alarmed_ranks=alarmed, unchanged=1)
    pace = max(_RECENT / 4, 1 / (state.unchanged + 1))
    mixed = Shares(*(old + pace * (new - old) for old, new in zip(_tuple(before), _tuple(now), strict=True)))
    often = {place: old + pace * (costly[place] - old) for place, old in state.imbalanced_share.items()}
    return replace(state, shares=mixed, imbalanced_share=often, unchanged=state.unchanged + 1)


def _tuple(one: Shares) -> tuple[float, float, float, float]:
    return one.named, one.stages, one.replicas, one.seconds
