"""From what the detector says of windows to what is held against nodes: since when, and what it has cost.

Only what may lie in the node itself counts. Slow input, uneven work, garbage collection and what all ranks
share say nothing about hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from convoy_controllers.guard.channels import FindingPlace
from convoy_controllers.guard.findings import Cause, Finding

CAUSES = frozenset((Cause.COMPUTE, Cause.THERMAL, Cause.COMMUNICATION))
NOTICED = frozenset((Cause.INPUT, Cause.HOST))
"""What a node may be at fault for, and is not found to be by this alone: tests of it would tell."""
PLACES = frozenset((FindingPlace.RANK, FindingPlace.NODE, FindingPlace.INSIDE))
_SMOOTH = 0.2
"""Weight of the last window."""
GAP_SECONDS = 120.0
"""A suspicion that is not renewed for so long is over; another begins anew."""


@dataclass(frozen=True, slots=True)
class SuspicionRecord:
    """What one job's telemetry holds against one node."""

    since: float
    """Unix seconds: the first window of this suspicion."""
    seen: float
    """The last."""
    loss: float
    """GPU-seconds that it has cost the job since."""
    slowdown: float
    """0.1: takes 10 % longer than its peers."""
    cause: Cause
    gain: float
    """Seconds by which a step would be shorter without it, over the last windows."""
    lasting: bool
    """Whether the last window found it slow for long: nothing else may lead to action."""
    ranks: tuple[int, ...] = ()
    """On this node, those that the last window blamed."""


def blamed(finding: Finding) -> bool:
    """Whether a finding may be held against the nodes of its culprits."""
    return finding.cause in CAUSES and finding.place in PLACES and bool(finding.ranks)


def noticeable(finding: Finding) -> bool:
    """Whether a finding is a reason to test the nodes that it names."""
    return finding.cause in NOTICED and finding.place in PLACES and bool(finding.ranks)


def update_suspicions(
    before: Mapping[str, SuspicionRecord],
    found: Iterable[tuple[Mapping[str, tuple[int, ...]], Finding]],
    accelerators: int,
    steps: int,
    now: float,
    which: Callable[[Finding], bool] = blamed,
) -> dict[str, SuspicionRecord]:
    """After one more window of so many steps. `found`: its findings, each with its culprits by node;
    `accelerators`: of the job, all of which wait for the slowest;
    `which`: of the findings.
    """
    kept = {
        node: replace(one, lasting=False) for node, one in before.items() if now - one.seen <= GAP_SECONDS
    }
    for node, (finding, ranks, share, lasting) in _by_node(found, which).items():
        known = kept.get(node)
        loss = share * accelerators
        gain = finding.lost / steps
        kept[node] = SuspicionRecord(
            since=known.since if known is not None else now,
            seen=now,
            loss=loss + (known.loss if known is not None else 0.0),
            slowdown=finding.slowdown,
            cause=finding.cause,
            gain=gain if known is None else known.gain + _SMOOTH * (gain - known.gain),
            lasting=lasting,
            ranks=ranks,
        )
    return kept


def _by_node(
    found: Iterable[tuple[Mapping[str, tuple[int, ...]], Finding]], which: Callable[[Finding], bool]
) -> dict[str, tuple[Finding, tuple[int, ...], float, bool]]:
    """By node: the finding that costs most, the ranks of all, the node's share of what is lost, and whether
    any lasts.
    """
    worst_by_node: dict[str, tuple[Finding, tuple[int, ...], float, bool]] = {}
    for nodes, finding in found:
        for node, ranks in nodes.items() if which(finding) else ():
            one = finding, ranks, finding.lost / len(nodes), finding.persistent
            if (before := worst_by_node.get(node)) is not None:
                worst = max(before, one, key=lambda entry: entry[2])
                both = tuple(sorted({*before[1], *ranks}))
                one = worst[0], both, worst[2], before[3] or finding.persistent
            worst_by_node[node] = one
    return worst_by_node
