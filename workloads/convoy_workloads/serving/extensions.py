"""The optional parts of an engine: several models, metrics and admin routes of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from convoy_workloads.serving.protocol import ModelCard

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from convoy_workloads.serving.metrics import Metrics

T = TypeVar("T")


class Caller(Protocol):
    """The way from an admin route to the compute thread."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]:
        """Call a function in the compute thread, between two iterations. Return its result."""
        ...


@runtime_checkable
class ManyModels(Protocol):
    """An engine with several models. Each request names one."""

    def cards(self) -> Mapping[str, ModelCard]:
        """Return the models by name. All threads may call this."""
        ...


@runtime_checkable
class OwnMetrics(Protocol):
    """An engine with metrics of its own."""

    def register(self, metrics: Metrics) -> None:
        """Add the metrics to `metrics.registry`. They are collected in the event loop."""
        ...


@runtime_checkable
class OwnAdminRoutes(Protocol):
    """An engine with admin routes of its own."""

    def admin_routes(self, call: Caller) -> Sequence[BaseRoute]:
        """Return the routes. They use the engine by `call` only."""
        ...
