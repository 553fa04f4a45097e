"""Faults of synthetic telemetry, and the cause that the detector must report for each fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.telemetry import Bools, Floats, Ints, Layout


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. It starts at window `onset` and ends before window `end`."""

    kind: str
    """Kind of the fault: a key of KINDS."""
    where: tuple[int, ...] = ()
    """Numbers of ranks, nodes, racks or replicas. KINDS says which of these, for each kind of fault."""
    size: float = 0.1
    """Extra time as a share: 0.1 is 10 %. The share is relative to the compute for input and host faults,
    and to the transfer for link faults.
    """
    onset: int = 1
    end: int = 1 << 60
    period: int = 60
    """Number of windows of one sawtooth or ramp, or between two bursts or checkpoints."""


KINDS: dict[str, tuple[str, str]] = {
    "slow": ("Compute", "ranks"),
    "drift": ("Compute", "ranks"),
    "bursts": ("Compute", "ranks"),
    "thermal": ("Thermal", "ranks"),
    "replica": ("Compute", "replicas"),
    "nic": ("Communication", "nodes"),
    "link": ("Communication", "nodes"),
    "uplink": ("Communication", "racks"),
    "nvlink": ("Communication", "nodes"),
    "crowd": ("Communication", "nodes"),
    "storage": ("Input", ""),
    "loader": ("Input", "ranks"),
    "hog": ("Host", "nodes"),
    "pauses": ("Host", ""),
    "checkpoint": ("", ""),
    "sequences": ("Imbalance", ""),
    "cap": ("CommonMode", ""),
    "hot rack": ("CommonMode", "racks"),
    "lost telemetry": ("", ""),
}
"""Cause to report (empty if none) and meaning of `Fault.where`, by kind of fault."""
_BURST = 10
CROWD = 32
"""Minimum number of nodes in a communicator that a "crowd" fault slows. In a smaller communicator the
faulty node is fast.
"""


@dataclass(slots=True, eq=False)
class Effects:
    """The combined effects of all faults in one window. Arrays have one entry per rank."""

    compute: Floats
    """Logarithm of the factor by which the faults change each rank's compute time."""
    data: Floats
    host: Floats
    clock: Floats
    throttled: Bools
    silent: Bools
    save: float
    work: float
    nodes: dict[tuple[int, ...], float]
    """Factor on the duration of transfers. Key: (n,) for node n, (a, b) for the link between nodes a and b,
    (n, n) for the links inside node n.
    """
    crowds: dict[int, float]
    """Factor on the duration of transfers among at least CROWD nodes, by node."""
    racks: dict[int, float]

    @classmethod
    def of(cls, faults: Sequence[Fault], layout: Layout, window: int, rng: np.random.Generator) -> Effects:
        """Return the effects of the faults active in `window`."""
        size = layout.size
        none = np.zeros(size, dtype=np.bool_)
        effects = cls(
            compute=np.zeros(size),
            data=np.zeros(size),
            host=np.zeros(size),
            clock=np.ones(size),
            throttled=none,
            silent=none.copy(),
            save=0.0,
            work=0.0,
            nodes={},
            crowds={},
            racks={},
        )
        for fault in faults:
            if fault.onset <= window < fault.end:
                effects._add(fault, layout, window - fault.onset, rng)
        return effects

    def transfer(self, members: Ints, layout: Layout) -> float:
        """Return the factor on the duration of a communicator's transfer: the largest factor among its
        nodes, links and racks.
        """
        nodes = [int(node) for node in layout.node[members]]
        if len(set(nodes)) == 1:
            return self.nodes.get((nodes[0], nodes[0]), 1.0)
        ring = zip(nodes, nodes[1:] + nodes[:1], strict=True)
        links = {(min(pair), max(pair)) for pair in ring}
        factors = [self.nodes.get((node,), 1.0) for node in nodes] + [
            self.nodes.get(link, 1.0) for link in links
        ]
        if len(set(nodes)) >= CROWD:
            factors += [self.crowds.get(node, 1.0) for node in nodes]
        racks = {int(rack) for rack in layout.rack[members]}
        if len(racks) > 1:
            factors += [self.racks.get(rack, 1.0) for rack in racks]
        return max(factors)

    def _add(self, fault: Fault, layout: Layout, age: int, rng: np.random.Generator) -> None:  # noqa: PLR0912
        where, log = list(fault.where), float(np.log1p(fault.size))
        match fault.kind:
            case "slow":
                self.compute[where] += log
            case "drift":
                self.compute[where] += log * min(1.0, age / fault.period)
            case "bursts":
                self.compute[where] += log if age % fault.period < _BURST else 0.0
            case "thermal":
                hot = 0.5 + 0.5 * (age % fault.period) / fault.period
                self.compute[where] += log * hot
                self.clock[where] = np.exp(-log * hot)
                self.throttled[where] = True
            case "replica":
                self.compute[np.isin(layout.replica, where)] += log
            case "nic":
                self.nodes |= {(node,): 1 + fault.size for node in where}
            case "link":
                self.nodes[min(where), max(where)] = 1 + fault.size
            case "nvlink":
                self.nodes |= {(node, node): 1 + fault.size for node in where}
            case "crowd":
                self.crowds |= dict.fromkeys(where, 1 + fault.size)
            case "uplink":
                self.racks |= dict.fromkeys(where, 1 + fault.size)
            case "storage":
                self.data += fault.size * rng.gamma(8, 1 / 8) * np.exp(rng.normal(0, 0.2, len(self.data)))
            case "loader":
                self.data[where] += fault.size * rng.gamma(8, 1 / 8, len(where))
            case "hog":
                ranks = np.isin(layout.node, where)
                self.host[ranks] += fault.size * rng.gamma(8, 1 / 8, int(ranks.sum()))
                self.compute[ranks] += 0.2 * log
            case "pauses":
                self.host += np.where(rng.random(len(self.host)) < 0.02, fault.size, 0.0)
            case "checkpoint":
                self.save += fault.size if age % fault.period == 0 else 0.0
            case "sequences":
                self.work += fault.size
            case "cap":
                self.compute += log
            case "hot rack":
                self.compute[np.isin(layout.rack, where)] += log
            case "lost telemetry":
                self.silent |= rng.random(len(self.silent)) < fault.size
            case other:
                raise ValueError(f"unknown kind of fault {other!r}; known kinds: {', '.join(KINDS)}")
