"""The interface to the API server: verbs on plain dicts, with typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from convoy_controllers.children import manifest
from convoy_controllers.resources import Resource
from convoy_operator import errors

Object = dict[str, Any]
"""An API object as JSON."""
Page = tuple[list[Object], str]
"""A page of objects of one kind, with the resourceVersion of the list."""


class ApiGateway(Protocol):
    """Requests to the API server. Every method raises errors.ApiError."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """Return one object."""
        ...

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """Return the Events about one object, in no particular order."""
        ...

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """Return all objects of all namespaces, and the resourceVersion to watch from."""
        ...

    def pages(self, resource: Resource, selector: str = "") -> AsyncIterator[Page]:
        """Yield the result of `list` page by page, for callers that need not hold all objects at once."""
        ...

    def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (type, object) for every change after `version`, BOOKMARKs included, until the server ends
        the watch.

        Raise Gone if `version` is too old, Unavailable if the connection breaks or falls silent.
        """
        ...

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """Create an object. Raise AlreadyExists if the name is taken."""
        ...

    async def dry_run(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """Validate an object on the server as a create would, unknown fields included. Nothing is stored."""
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
    ) -> Object:
        """Delete the object if it has that uid. Raise Conflict if the name belongs to another object."""
        ...

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        """Apply a merge patch to an object, except its status."""
        ...

    async def patch_status(
        self, resource: Resource, namespace: str | None, name: str, version: str, patch: Mapping[str, Any]
    ) -> Object:
        """Apply a merge patch to `status`. Raise Conflict unless the object still has resourceVersion
        `version`.
        """
        ...

    async def apply(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = True,
    ) -> Object:
        """Apply the fields of `body` by server-side apply; the operator then owns them.

        Without `force`, raise Conflict if another manager owns one of the fields with another value.
        """
        ...

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict the pod of that uid. Raise TooManyRequests if a PodDisruptionBudget forbids it."""
        ...


async def ensure(gateway: ApiGateway, resource: Resource, name: str) -> Object:
    """Return the cluster-scoped object of that name; create an empty one if there is none."""
    try:
        return await gateway.create(resource, None, manifest(resource, name, {}))
    except errors.AlreadyExists:
        return await gateway.get(resource, None, name)
