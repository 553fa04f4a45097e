"""Turns alarms into findings. Each finding names what is slow and gives exactly one cause, which may be
Unknown.

A finding with ranks blames only these ranks. A finding without ranks blames no node, so no action follows.
Common shifts of many ranks, imbalance of work and slow storage give findings without ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from convoy_controllers.guard.channel_state import ChannelState
from convoy_controllers.guard.channels import Channel, Division, FindingPlace
from convoy_controllers.guard.common_mode import (
    COMMON_SHARE,
    in_slow_racks,
    slow_among_peers,
    slower_together,
)
from convoy_controllers.guard.findings import Cause, Finding, Report, Verdict
from convoy_controllers.guard.links import Part, explain, nodes_of
from convoy_controllers.guard.loss import IMBALANCED, mended
from convoy_controllers.guard.robust import zeroed
from convoy_controllers.guard.signals import against_all, busy, middle, stepping
from convoy_controllers.guard.state import State
from convoy_controllers.guard.telemetry import Bools, Floats, Layout, Table
from convoy_crds.trainingjob_straggler import Proof

_MOST_OF_A_NODE = 0.6
_STORAGE_SHARE = 0.8
"""Minimum share of the ranks that wait for input. If fewer ranks wait, slow storage is not reported as the
cause of their waits.
"""
_INPUT_WAIT_FACTOR = 3.0
"""Multiple of the median input wait. While nearly all ranks wait for input, only ranks that wait longer
than this multiple are blamed.
"""
_EXPLAINED_SHARE = 0.5
"""Share of a slowdown that a cause must explain. The clock, the host or another finding is reported as the
cause only if it explains at least this share.
"""
_EARLIER_CAUSE_WINDOWS = 16
"""Maximum number of windows by which a finding may start before the step became slower. An older finding
does not explain the slower step.
"""
_IMBALANCED_SHARE = 0.7
"""Share of the recent windows. Imbalance is reported only if it was costly in at least this share of them."""
_LEAST_TRANSFER_SHARE = 0.002
"""Share of the median rank's compute and optimizer time. A slow transfer is reported only if it costs more
than this share.
"""
_SETTLED_WINDOWS = 4
"""Number of windows for which the set of alarmed ranks must stay the same before imbalance is reported."""


def report(state: State, table: Table, too_few: Bools) -> Report:
    """Return the findings and verdicts that follow from the state's alarms. `too_few`: mask of the ranks
    with too few peers.
    """
    findings = [*_input(state, table), *_compute_and_host(state, table), *_communication(state, table)]
    findings += _shifts(state, table, findings)
    findings += _imbalance(state, table)
    shares = state.shares
    if shares is None:
        raise ValueError("no report without a processed window: call advance() first")
    return Report(
        first=table.first,
        last=table.last,
        findings=tuple(findings),
        verdicts=_verdicts(state, table, too_few, findings),
        model=state.model,
        sigma=state.compute.sigma,
        shares=shares,
    )


def _input(state: State, table: Table) -> list[Finding]:
    ranks, job = state.channels[Channel.DATA], state.channels[Channel.JOB_DATA]
    accused, all_wait = ranks.alarmed & ~slow_among_peers(ranks.alarmed, state, table), []
    if job.alarmed[0]:
        waiting = zeroed(table.data) > state.setting.rules.delta * busy(table)
        if waiting[table.reported].mean() >= _STORAGE_SHARE:
            usual = float(np.nanmedian(table.data))
            accused &= zeroed(table.data) > _INPUT_WAIT_FACTOR * usual
            all_wait = [_job_finding(Cause.INPUT, job, usual, state)]
    own = _by_node(state, table, ranks, {Cause.INPUT: accused}, lambda: against_all(table.data))
    return [*own, *all_wait]


def _compute_and_host(state: State, table: Table) -> list[Finding]:
    compute, host = state.compute, state.channels[Channel.HOST]
    common = slow_among_peers(compute.alarmed, state, table) | in_slow_racks(compute.alarmed, state, table)
    common |= slower_together(state)
    known = host.alarmed & ~slow_among_peers(host.alarmed, state, table)
    # A slow host delays the whole rank, so the compute channel also shows the delay. Blame the host if it
    # explains enough of the delay. The host's alarm usually comes first, because the host channel has less
    # noise.
    by_host = known & (host.size >= _EXPLAINED_SHARE * compute.size)
    slow = (compute.alarmed | (known & ~by_host)) & ~common & ~by_host
    hot = (state.throttled >= _EXPLAINED_SHARE) | (
        state.clock_deficit >= _EXPLAINED_SHARE * np.maximum(compute.size, 1e-3)
    )
    whole, blamed = _replicas(state, table, slow)
    slow &= ~blamed
    healthy = mended(table.compute, compute.alarmed, state.setting.peers)
    causes = {Cause.THERMAL: slow & hot, Cause.COMPUTE: slow & ~hot}
    delays = partial(state.setting.shape.delays, healthy, table.compute, table.micro_batches)
    findings = _by_node(state, table, compute, causes, delays)
    findings += _by_node(state, table, host, {Cause.HOST: by_host}, lambda: against_all(table.host))
    if (common & compute.alarmed).any():
        lost = float(np.nanmax(table.compute - healthy, initial=0.0))
        findings.append(_common(state, compute, common, lost))
    return [*whole, *findings]


def _replicas(state: State, table: Table, slow: Bools) -> tuple[list[Finding], Bools]:
    """Return findings of replicas that are slow as a whole, and a mask of the ranks in these replicas.

    Unless all ranks report tokens, a slow replica may simply have longer samples. The finding's cause is
    then imbalance.
    """
    channel, (names, numbers) = state.channels[Channel.REPLICAS], state.setting.places[Division.REPLICAS]
    if not channel.alarmed.any():
        return [], np.zeros(table.size, dtype=np.bool_)
    size = np.bincount(numbers)
    whole = channel.alarmed & (size > 1) & (np.bincount(numbers[slow], minlength=len(size)) != 1)
    if whole.mean() > COMMON_SHARE:
        whole = np.zeros_like(whole)
    known = table.has_tokens
    persistent = channel.persistent(state.setting.rules)
    findings = []
    for place in np.nonzero(whole)[0]:
        ranks = tuple(np.nonzero(numbers == place)[0].tolist()) if known else ()
        findings.append(
            Finding(
                Cause.COMPUTE if known else Cause.IMBALANCE,
                FindingPlace.REPLICA,
                ranks,
                (int(names[place]),),
                int(channel.since[place]),
                float(np.expm1(channel.size[place])),
                float(np.nanmedian(busy(table)) * -np.expm1(-channel.size[place])),
                bool(persistent[place]),
            )
        )
    return findings, whole[numbers]


def _communication(state: State, table: Table) -> list[Finding]:
    alike, past = state.channels[Channel.GROUPS], state.channels[Channel.GROUPS_PAST]
    slow = np.nonzero(alike.alarmed | past.alarmed)[0].tolist()
    if not slow:
        return []
    layout, rules = state.setting.layout, state.setting.rules
    persistent = alike.persistent(rules) | past.persistent(rules)
    sizes = np.maximum(np.where(alike.alarmed, alike.size, 0.0), np.where(past.alarmed, past.size, 0.0))
    never = np.iinfo(np.int64).max
    since = np.minimum(np.where(alike.alarmed, alike.since, never), np.where(past.alarmed, past.since, never))
    lost = np.asarray(state.transferring) * -np.expm1(-np.maximum(sizes, 0.0))
    least = _LEAST_TRANSFER_SHARE * float(np.nanmedian(busy(table)))
    findings = []
    for part, numbers in _merge_inside_parts(explain(table.groups, slow, layout), table, layout):
        if lost[numbers].max() <= least:
            continue
        nodes = (
            set(part.where)
            if part.kind in (FindingPlace.NODE, FindingPlace.INSIDE, FindingPlace.LINK)
            else set()
        )
        ranks = tuple(np.nonzero(np.isin(layout.node, sorted(nodes)))[0].tolist()) if nodes else ()
        findings.append(
            Finding(
                Cause.COMMUNICATION,
                part.kind,
                ranks,
                part.where,
                int(np.median(since[numbers])),
                float(np.expm1(np.median(sizes[numbers]))),
                float(lost[numbers].max()),
                bool(persistent[numbers].mean() >= 0.5),
                Proof.FEW_PEERS if state.setting.small.unproven[list(ranks)].any() else Proof.PEERS,
            )
        )
    return findings


def _merge_inside_parts(
    found: list[tuple[Part, list[int]]], table: Table, layout: Layout
) -> list[tuple[Part, list[int]]]:
    """Return the parts of the network that are slow. If more than half of the nodes have slow internal
    links, merge these parts into one.

    The merged part blames no node: if so many nodes are slow at once, the program has changed.
    """
    slow = {part.where[0] for part, _ in found if part.kind is FindingPlace.INSIDE}
    if not slow:
        return found
    inside = {nodes[0] for one in table.groups if len(nodes := nodes_of(one, layout)) == 1}
    if len(inside) < 2 or 2 * len(slow) <= len(inside):
        return found
    numbers = sorted(
        number for part, several in found if part.kind is FindingPlace.INSIDE for number in several
    )
    others = [(part, several) for part, several in found if part.kind is not FindingPlace.INSIDE]
    return [*others, (Part(FindingPlace.GROUP, tuple(sorted(slow))), numbers)]


def _shifts(state: State, table: Table, known: list[Finding]) -> list[Finding]:
    """Return findings from comparisons of the job with its own past. They say that the job's compute, a
    rack, a class of hardware or the host became slower, or that a step became slower and no other
    finding explains it.
    """
    step = float(middle(busy(table))[0])
    job, classes, racks = (
        state.channels[name] for name in (Channel.JOB_COMPUTE, Channel.CLASSES, Channel.RACKS)
    )
    findings = []
    if job.alarmed[0]:
        findings.append(_job_finding(Cause.COMMON_MODE, job, step * -np.expm1(-job.size[0]), state))
    elif racks.alarmed.any() and not any(one.place is FindingPlace.RACK for one in known):
        findings.append(_places(state, racks, Division.RACKS, FindingPlace.RACK, step))
    elif classes.alarmed.any() and len(classes.alarmed) > 1:
        findings.append(_places(state, classes, Division.CLASSES, FindingPlace.CLASS, step))
    wall = state.channels[Channel.JOB_WALL]
    if not findings and not any(one.cause is Cause.HOST for one in known):
        slow = [
            one
            for one in (state.channels[name] for name in (Channel.JOB_HOST, Channel.JOB_PAUSES))
            if one.alarmed[0]
        ]
        host = max(slow, key=lambda one: float(one.size[0]), default=None)
        if host is not None:
            findings.append(_job_finding(Cause.HOST, host, step * float(np.expm1(host.size[0])), state))
    if wall.persistent(state.setting.rules)[0]:
        lost = float(stepping(table)[0]) * table.steps * -np.expm1(-wall.size[0])
        cause, others = _cause_of_slower_step(state), [*known, *findings]
        # The step is compared with its own past. An older finding already slowed the step in that past, so it
        # does not explain why the step became slower.
        fresh = [one for one in others if one.since > wall.since[0] - _EARLIER_CAUSE_WINDOWS * table.steps]
        explained = sum(one.lost for one in fresh) >= _EXPLAINED_SHARE * lost
        known_already = any((one.cause, one.place) == (cause, FindingPlace.JOB) for one in others)
        if not known_already and (not fresh or not (explained or cause is Cause.UNKNOWN)):
            findings.append(_job_finding(cause, wall, lost, state))
    return findings


def _cause_of_slower_step(state: State) -> Cause:
    """Return the cause of a step that became slower although no rank is slow. The cause follows from the
    quantity that grew with the step: host pauses or the transfer. It is unknown if neither grew enough.
    """
    needed = _EXPLAINED_SHARE * state.channels[Channel.JOB_WALL].size[0]
    if state.channels[Channel.JOB_PAUSES].size[0] >= needed:
        # Check the pauses before the transfer. Pauses of alternating ranks also make a transfer over several
        # steps look slower.
        return Cause.HOST
    return Cause.COMMUNICATION if state.channels[Channel.JOB_TRANSFER].size[0] >= needed else Cause.UNKNOWN


def _imbalance(state: State, table: Table) -> list[Finding]:
    shares = state.shares
    if shares is None or state.unchanged < _SETTLED_WINDOWS:
        return []
    setting = state.setting
    if setting.small.ranks.any():
        shares = state.unevenness.cost(setting.peers, setting.shape, table.micro_batches)
        state = replace(state, imbalanced_share=dict.fromkeys(state.imbalanced_share, 1.0))
    found = {FindingPlace.STAGES: shares.stages, FindingPlace.REPLICAS: shares.replicas}
    return [
        Finding(
            Cause.IMBALANCE, place, (), (), table.first, share / (1 - share), share * shares.seconds, False
        )
        for place, share in found.items()
        if share >= IMBALANCED and state.imbalanced_share[place] >= _IMBALANCED_SHARE
    ]


def _common(state: State, channel: ChannelState, common: Bools, lost: float) -> Finding:
    slow = common & channel.alarmed
    names, rack = state.setting.places[Division.RACKS]
    racks = np.unique(rack[slow])
    one = len(racks) < len(names)
    return Finding(
        Cause.COMMON_MODE,
        FindingPlace.RACK if one else FindingPlace.JOB,
        (),
        tuple(names[racks].tolist()) if one else (),
        int(channel.since[slow].min()),
        float(np.expm1(np.median(channel.size[slow]))),
        lost,
        bool(channel.persistent(state.setting.rules)[slow].any()),
    )


def _job_finding(cause: Cause, channel: ChannelState, lost: float, state: State) -> Finding:
    """Return a finding about the job as a whole."""
    persistent = bool(channel.persistent(state.setting.rules)[0])
    slowdown = float(np.expm1(channel.size[0]))
    return Finding(cause, FindingPlace.JOB, (), (), int(channel.since[0]), slowdown, float(lost), persistent)


def _places(state: State, channel: ChannelState, kind: Division, place: FindingPlace, step: float) -> Finding:
    slow = channel.alarmed
    size = float(np.median(channel.size[slow]))
    return Finding(
        Cause.COMMON_MODE,
        place,
        (),
        tuple(state.setting.places[kind][0][slow].tolist()),
        int(channel.since[slow].min()),
        float(np.expm1(size)),
        step * float(-np.expm1(-size)),
        bool(channel.persistent(state.setting.rules)[slow].any()),
    )


def _by_node(
    state: State,
    table: Table,
    channel: ChannelState,
    accused: dict[Cause, Bools],
    saving: Callable[[], Floats],
) -> list[Finding]:
    """Return one finding for each node, cause and proof with blamed ranks.

    `accused`: mask of the blamed ranks by cause; `saving`: returns by rank the seconds that the job would
    save if the rank were not slow.
    """
    if not any(ranks.any() for ranks in accused.values()):
        return []
    saved = zeroed(saving())
    names, numbers = state.setting.places[Division.NODES]
    reported = np.bincount(numbers[table.reported], minlength=len(names))
    persistent = channel.persistent(state.setting.rules)
    unproven = state.setting.small.unproven
    proofs = ((Proof.PEERS, ~unproven), (Proof.FEW_PEERS, unproven))
    findings = []
    for (cause, ranks), (proof, part) in product(accused.items(), proofs):
        for node in np.unique(numbers[ranks & part]):
            here = np.nonzero(ranks & part & (numbers == node))[0]
            most = len(here) > 1 and len(here) >= _MOST_OF_A_NODE * reported[node]
            findings.append(
                Finding(
                    cause,
                    FindingPlace.NODE if most else FindingPlace.RANK,
                    tuple(here.tolist()),
                    (int(names[node]),),
                    int(channel.since[here].min()),
                    float(np.expm1(channel.size[here].max())),
                    max(0.0, float(saved[here].max())),
                    bool(persistent[here].any()),
                    proof,
                )
            )
    return findings


def _verdicts(state: State, table: Table, too_few: Bools, findings: Iterable[Finding]) -> np.ndarray:
    verdicts = np.full(table.size, Verdict.HEALTHY, dtype=np.int8)
    verdicts[too_few] = Verdict.TOO_FEW_PEERS
    accused = [finding for finding in findings if finding.ranks]
    if accused:
        # A rank that did not report has no number on either side, and NaN is not greater than anything.
        verdicts[table.wait > state.setting.rules.delta * table.wall] = Verdict.VICTIM
    for finding in sorted(accused, key=lambda one: one.persistent):
        proven = finding.persistent and finding.proof is Proof.PEERS
        verdicts[list(finding.ranks)] = Verdict.PERSISTENT if proven else Verdict.SUSPECT
    verdicts[~table.reported] = Verdict.SILENT
    return verdicts
