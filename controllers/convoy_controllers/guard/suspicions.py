"""Suspicions against nodes, derived from the detector's findings: their start and their cost.

Only slowness that may be the node's own fault counts. Slow input, uneven work, the program's garbage
collection, and slowness of all ranks prove nothing about hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from convoy_controllers.guard.channels import FindingPlace
from convoy_controllers.guard.findings import Cause, Finding
from convoy_crds.trainingjob_straggler import Proof

CAUSES = frozenset((Cause.COMPUTE, Cause.THERMAL, Cause.COMMUNICATION))
NOTICED = frozenset((Cause.INPUT, Cause.HOST))
"""Causes that may be a node's fault but do not prove it. A health sweep of the node can decide."""
PLACES = frozenset((FindingPlace.RANK, FindingPlace.NODE, FindingPlace.INSIDE))
_SMOOTH = 0.2
"""Weight of the last window in the moving average `SuspicionRecord.gain`."""
GAP_SECONDS = 120.0
"""Seconds without a finding after which a suspicion ends. A later finding starts a new suspicion."""


@dataclass(frozen=True, slots=True)
class SuspicionRecord:
    """The suspicion of one job against one node."""

    since: float
    """Unix time in seconds of this suspicion's first window."""
    seen: float
    """Unix time in seconds of this suspicion's last window."""
    loss: float
    """GPU-seconds that the job has lost since `since`."""
    slowdown: float
    """Extra time compared with the peers, as a share: 0.1 is 10 %."""
    cause: Cause
    gain: float
    """Seconds that each step would save without the slow node, averaged over the recent windows."""
    lasting: bool
    """True if the last window found persistent slowness. Only persistent slowness permits an action."""
    ranks: tuple[int, ...] = ()
    """Ranks on this node that the last window blamed."""


def blamed(finding: Finding) -> bool:
    """Return True if a finding counts against the nodes on which its ranks run. A finding about ranks with
    few peers never counts.
    """
    return _of_nodes(finding) and finding.cause in CAUSES and finding.proof is Proof.PEERS


def noticeable(finding: Finding) -> bool:
    """Return True if a finding is a reason to sweep the nodes on which its ranks run, but does not count
    against them.
    """
    unproven = finding.cause in CAUSES and finding.proof is Proof.FEW_PEERS
    return _of_nodes(finding) and (unproven or finding.cause in NOTICED)


def _of_nodes(finding: Finding) -> bool:
    return finding.place in PLACES and bool(finding.ranks)


def update_suspicions(
    before: Mapping[str, SuspicionRecord],
    found: Iterable[tuple[Mapping[str, tuple[int, ...]], Finding]],
    accelerators: int,
    steps: int,
    now: float,
    which: Callable[[Finding], bool] = blamed,
) -> dict[str, SuspicionRecord]:
    """Return the suspicions by node after one more window.

    `found`: the window's findings, each with its ranks by node; `accelerators`: number of the job's
    accelerators, all of which wait for the slowest one; `steps`: number of steps in the window; `which`:
    returns True for a finding that counts.
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
    """Return by node its most costly finding, the ranks of all its findings, the seconds lost on the node,
    and True if any finding is persistent.

    The seconds lost are those of the most costly finding, divided equally among the finding's nodes.
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
