"""The optional parts of an engine: several models, metrics, routes and a service of its own, and peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from convoy_workloads.serving.protocol import ModelCard

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from convoy_workloads.serving.metrics import Metrics

T = TypeVar("T")


class Guard(Protocol):
    """The checks that a request to a route of the engine must pass. Both raise RequestError."""

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Check the token, and that this replica accepts requests."""
        ...

    def authenticate(self, headers: Mapping[bytes, bytes]) -> None:
        """Check the token only. Peers talk to a replica that is not ready too."""
        ...


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


@runtime_checkable
class OwnRoutes(Protocol):
    """An engine with public routes of its own."""

    def routes(self, guard: Guard) -> Sequence[BaseRoute]:
        """Return the routes. They are served before the model is loaded. Each must let `guard` check its
        requests.
        """
        ...


@runtime_checkable
class OwnService(Protocol):
    """An engine with tasks of its own in the event loop."""

    async def serve(self) -> None:
        """Run from before the load of the model until the drain has ended, when this call is cancelled. An
        error, or a return before that, ends the rank.
        """
        ...

    async def drain(self) -> None:
        """Finish, after the last request has ended. What is left of the drain time limits this call."""
        ...


@runtime_checkable
class PeersListener(Protocol):
    """An engine whose replicas talk to each other (`EngineEntry.replica_peers`)."""

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        """Set the addresses (`host:port`) of this replica and of the others. They replace the previous
        addresses.

        Called in the event loop, from the start of the process on. It is not called outside of a job.
        """
        ...
