"""Infrastructures of the package `infragraph`, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infragraph import Infrastructure
from infragraph.blueprints.devices.generic.generic_switch import Switch
from infragraph.blueprints.devices.generic.server import Server
from infragraph.blueprints.devices.nvidia.cx5 import Cx5
from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX
from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric
from infragraph.blueprints.fabrics.closfabric import ClosFabric
from infragraph.blueprints.fabrics.dragonfly_fabric import DragonflyFabric
from infragraph.blueprints.fabrics.hybrid_debruijn_fabric import HybridDeBruijnFabric
from infragraph.blueprints.fabrics.single_tier_fabric import SingleTierFabric


def _one(device: Any, *inner: Any) -> Infrastructure:
    """Return an infrastructure of two copies of a device, and the devices in it."""
    found = Infrastructure(name="one")
    for one in (device, *inner):
        found.devices.append(one)
    found.instances.add(name="one", device=device.name, count=2)
    return found


def _dgx_with_cards() -> Infrastructure:
    card = Cx5()
    return _one(NvidiaDGX("dgx_a100", card), card)


BLUEPRINTS: Mapping[str, Callable[[], Infrastructure]] = {
    "single tier": lambda: SingleTierFabric(Server(2), 3, 100),
    "clos": ClosFabric,
    "fat tree": lambda: ClosFatTreeFabric(Switch(4), Server(1), 2, [100, 100]),
    "dragonfly": lambda: DragonflyFabric(Switch(16), Server(1), 4, 2, 2),
    "hybrid de Bruijn": lambda: HybridDeBruijnFabric(Switch(16), Server(1), 2),
    "dgx": lambda: _one(NvidiaDGX("dgx_h100")),
    "dgx with network cards": _dgx_with_cards,
}
