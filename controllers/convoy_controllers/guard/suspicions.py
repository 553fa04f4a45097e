"""From what the detector says of windows to what is held against nodes: since when, and what it has cost.

Only what may lie in the node itself counts. Slow input, uneven work, garbage collection and what all ranks
share say nothing about hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from convoy_controllers.guard.findings import Cause, Finding

CAUSES = frozenset((Cause.COMPUTE, Cause.THERMAL, Cause.COMMUNICATION))
PLACES = frozenset(("rank", "node", "inside"))
_SMOOTH = 0.2
"""Weight of the last window."""
GAP_SECONDS = 120.0
"""A suspicion that is not renewed for so long is over; another begins anew."""


@dataclass(frozen=True, slots=True)
class Held:
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


def blamed(finding: Finding) -> bool:
    """Whether a finding may be held against the nodes of its culprits."""
    return finding.cause in CAUSES and finding.place in PLACES and bool(finding.ranks)


def held(
    before: Mapping[str, Held],
    found: Iterable[tuple[tuple[str, ...], Finding]],
    accelerators: int,
    steps: int,
    now: float,
) -> dict[str, Held]:
    """After one more window of so many steps. `found`: its findings with the nodes of their culprits;
    `accelerators`: of the job, all of which wait for the slowest.
    """
    kept = {
        node: replace(one, lasting=False) for node, one in before.items() if now - one.seen <= GAP_SECONDS
    }
    for nodes, finding in found:
        if not blamed(finding):
            continue
        for node in nodes:
            known = kept.get(node)
            loss = finding.lost * accelerators / len(nodes)
            gain = finding.lost / steps
            kept[node] = Held(
                since=known.since if known is not None else now,
                seen=now,
                loss=loss + (known.loss if known is not None else 0.0),
                slowdown=finding.slowdown,
                cause=finding.cause,
                gain=gain if known is None else known.gain + _SMOOTH * (gain - known.gain),
                lasting=finding.persistent or (known is not None and known.lasting),
            )
    return kept
