"""The choice of the network model."""

from __future__ import annotations

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import UnawareMedium
from convoy_controllers.astrasim.network.fabrics.dimension import DimensionFabric
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric
from convoy_controllers.astrasim.network.fair_share import FairShareMedium
from convoy_controllers.astrasim.network.links import AwareMedium
from convoy_controllers.astrasim.network.medium import Deliver, Medium
from convoy_controllers.astrasim.network.unshared import UnsharedMedium
from convoy_controllers.astrasim.parameters import AnyNetwork, Backend, GraphNetwork


def select_medium(clock: Clock, network: AnyNetwork, deliver: Deliver) -> Medium:
    """Return the model of a network. Dimensions with shared links must be a single one."""
    if isinstance(network, GraphNetwork):
        return _on_links(clock, network.fabric, network.backend, deliver)
    if network.backend is Backend.UNAWARE:
        return UnawareMedium(clock, network, deliver)
    (dimension,) = network.dimensions
    return _on_links(clock, DimensionFabric(dimension), network.backend, deliver)


def _on_links(clock: Clock, fabric: Fabric, backend: Backend, deliver: Deliver) -> Medium:
    match backend:
        case Backend.UNAWARE:
            return UnsharedMedium(clock, fabric, deliver)
        case Backend.AWARE:
            return AwareMedium(clock, fabric, deliver)
        case Backend.FAIR_SHARE:
            return FairShareMedium(clock, fabric, deliver)
