"""The places that Kueue's topology-aware scheduling has chosen for the pods of a podSet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HOSTNAME = "kubernetes.io/hostname"
MAX_DOMAINS = 100_000
"""Maximum number of domains of an assignment. Larger ones are refused, because they come from a fault."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of the topology, and the number of pods that belong there."""

    values: tuple[str, ...]
    """Value of each level's node label."""
    count: int

    @property
    def key(self) -> str:
        """Return the domain as text."""
        return "/".join(self.values)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The domains of a podSet, in the order of its ranks."""

    levels: tuple[str, ...]
    """Node labels, the widest first."""
    domains: tuple[Domain, ...]

    def selector(self, domain: Domain) -> dict[str, str]:
        """Return the node selector of a domain."""
        return dict(zip(self.levels, domain.values, strict=True))

    def host(self, domain: Domain) -> str:
        """Return the hostname of a domain; empty if the lowest level is wider than a node."""
        return domain.values[-1] if self.levels and self.levels[-1] == HOSTNAME else ""

    def choose(self, rank: int, taken: Mapping[str, int], closed: Collection[str] = ()) -> Domain | None:
        """Return the domain of a missing pod; None if no domain has room.

        The pod gets the place of its rank in the list of all places, or else the first place that is free.
        `taken`: number of pods in each domain, by `Domain.key`. `closed`: hostnames where no pod may start.
        """
        free = [one for one in self.domains if taken.get(one.key, 0) < one.count]
        own = self._at(rank)
        for domain in ([own] if own in free else []) + free:
            if domain is not None and self.host(domain) not in closed:
                return domain
        return None

    def _at(self, rank: int) -> Domain | None:
        """Return the domain of the place with this number."""
        for one in self.domains:
            if rank < one.count:
                return one
            rank -= one.count
        return None


def decode(raw: Mapping[str, Any] | None) -> Assignment | None:
    """Return the assignment that a Workload's status contains; None without one.

    Kueue shortens the list: equal values are written once, and a common prefix or suffix too. Raises
    ValueError if the lists contradict each other.
    """
    if not raw:
        return None
    levels = tuple(str(one) for one in raw.get("levels") or ())
    merged: Counter[tuple[str, ...]] = Counter()
    for one in raw.get("slices") or ():
        count = int(one["domainCount"])
        if not 0 < count <= MAX_DOMAINS:
            raise ValueError(f"a slice has {count} domains")
        per_level = [_values(values, count) for values in one.get("valuesPerLevel") or ()]
        if len(per_level) != len(levels):
            raise ValueError(f"a slice has values for {len(per_level)} of {len(levels)} levels")
        for values, pods in zip(zip(*per_level, strict=True), _counts(one["podCounts"], count), strict=True):
            merged[values] += pods
    return Assignment(levels, tuple(Domain(values, pods) for values, pods in merged.items()))


def _values(raw: Mapping[str, Any], count: int) -> list[str]:
    if raw.get("universal") is not None:
        return [str(raw["universal"])] * count
    own = raw.get("individual") or {}
    roots = own.get("roots") or ()
    if len(roots) != count:
        raise ValueError(f"a level has {len(roots)} values for {count} domains")
    prefix, suffix = own.get("prefix") or "", own.get("suffix") or ""
    return [f"{prefix}{one}{suffix}" for one in roots]


def _counts(raw: Mapping[str, Any], count: int) -> list[int]:
    if raw.get("universal") is not None:
        return [int(raw["universal"])] * count
    own = [int(one) for one in raw.get("individual") or ()]
    if len(own) != count:
        raise ValueError(f"a slice has {len(own)} numbers of pods for {count} domains")
    return own


def levels_of(flavors: Iterable[Mapping[str, Any]], topologies: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the node labels that the topologies of some ResourceFlavors have. `topologies`: specs by
    name.
    """
    found: dict[str, None] = {}
    for flavor in flavors:
        spec = topologies.get(str(flavor.get("topologyName") or "")) or {}
        found |= {str(one.get("nodeLabel")): None for one in spec.get("levels") or ()}
    return list(found)
