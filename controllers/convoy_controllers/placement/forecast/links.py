"""The rates of the links between nodes, from node labels."""

from __future__ import annotations

import math
from collections.abc import Mapping

from convoy_crds.placement import LABEL_HOST_RATE, LABEL_UPLINK_RATE

GIBIBYTE = 2**30
_BITS = 8
_GIGA = 1e9


class UnknownLink(ValueError):
    """Raised for a node without the label that names the rate of a link, or with an invalid value."""


def host_rate(node: str, labels: Mapping[str, str]) -> float:
    """Return GB/s (GB = 2^30 bytes) of the link between a node and its rack. Raises UnknownLink."""
    return _rate(node, labels, LABEL_HOST_RATE)


def uplink_rate(node: str, labels: Mapping[str, str]) -> float:
    """Return GB/s of the link between a node's rack and the other racks. Raises UnknownLink."""
    return _rate(node, labels, LABEL_UPLINK_RATE)


def _rate(node: str, labels: Mapping[str, str], key: str) -> float:
    text = labels.get(key)
    if text is None:
        raise UnknownLink(f"node {node} has no label {key}, the rate of its link in Gbit/s")
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise UnknownLink(f"node {node}: label {key} must be a rate in Gbit/s above 0, is {text!r}")
    return found * _GIGA / _BITS / GIBIBYTE
