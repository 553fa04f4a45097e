"""Resource requests of pods, as the scheduler of Kubernetes counts them. Amounts are thousandths of the
resource's unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from convoy_controllers.autoscale.quantity import milli_value

Amounts = Mapping[str, int]
"""Thousandths of each resource's unit, by name of the resource."""
PODS = "pods"
"""Resource of which every pod uses 1."""


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of a pod with this spec.

    The sum of the containers and sidecars counts, or the largest init container beside the sidecars before
    it, plus the overhead (KEP-753; k8s.io/component-helpers `resource.PodRequests`). Pod-level requests
    (KEP-2837) replace the sums. A container without a request but with a limit requests its limit.

    Raises ValueError if an amount is no quantity.
    """
    running: Counter[str] = Counter()
    sidecars: Counter[str] = Counter()
    peak: dict[str, int] = {}
    for one in _parts(spec, "initContainers"):
        own = _requests(one)
        if one.get("restartPolicy") == "Always":
            sidecars.update(own)
            own = dict(sidecars)
        else:
            own = _sum(own, sidecars)
        peak = _largest(peak, own)
    for one in _parts(spec, "containers"):
        running.update(_requests(one))
    found = {**_largest(_sum(running, sidecars), peak), **_requests(spec)}
    found = _sum(found, _amounts(spec.get("overhead")))
    return {**{name: amount for name, amount in found.items() if amount}, PODS: 1000}


def known_requests(spec: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the requests of a pod with this spec; None if they are malformed. The API server then refuses
    the pod with a message that names the field.
    """
    try:
        return pod_requests(spec)
    except (ValueError, TypeError, AttributeError):
        return None


def amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return quantities by name, such as a node's allocatable resources, in thousandths. Raises ValueError
    if one is no quantity.
    """
    return _amounts(resources)


def subtract(free: dict[str, int], used: Amounts) -> None:
    """Subtract `used` from `free`. An amount may become negative."""
    for name, amount in used.items():
        free[name] = free.get(name, 0) - amount


def copies_that_fit(free: Amounts, wanted: Amounts) -> int:
    """Return how many pods with the requests `wanted` fit into `free`."""
    return min((max(0, free.get(name, 0)) // amount for name, amount in wanted.items() if amount), default=0)


def _parts(spec: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    return [one for one in spec.get(name) or () if isinstance(one, Mapping)]


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: _milli(quantity or 0) for name, quantity in (resources or {}).items()}


@lru_cache(maxsize=1024)
def _milli(quantity: str | int) -> int:
    return milli_value(quantity)


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _largest(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
