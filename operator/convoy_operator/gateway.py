"""The interface to the API server. Its methods take and return plain dicts and raise typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from convoy_controllers.children import manifest
from convoy_controllers.resources import Resource
from convoy_operator import errors

Object = dict[str, Any]
"""An API object as decoded JSON."""
Page = tuple[list[Object], str]
"""Some of the objects of a LIST, with the resourceVersion of the LIST."""


class ApiGateway(Protocol):
    """The requests to the API server. Every method raises errors.ApiError if its request fails."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """Return one object."""
        ...

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """Return the Events about one object, in no particular order."""
        ...

    async def served(self, group: str, version: str) -> frozenset[str]:
        """Return the plurals of the resources that the API server serves in this version of an API group;
        nothing if it does not serve the version.
        """
        ...

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """Return all objects of all namespaces, and the resourceVersion from which to watch."""
        ...

    def pages(self, resource: Resource, selector: str = "") -> AsyncIterator[Page]:
        """Yield the result of `list` page by page, for a caller that does not need all objects at the same
        time.
        """
        ...

    def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (type, object) for every change after `version`, including BOOKMARKs, until the server ends
        the watch.

        Raises errors.Gone if `version` is too old, and errors.Unavailable if the connection breaks or is
        silent for too long.
        """
        ...

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """Create an object. Raises errors.AlreadyExists if the name is in use."""
        ...

    async def dry_run(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """Let the API server check an object as it would for a create, and reject unknown fields. The
        object is not stored.
        """
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
        """Delete the object if it has this uid. Raises errors.Conflict if the name belongs to another
        object.
        """
        ...

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        """Apply a merge patch to an object. The status is not changed."""
        ...

    async def patch_status(
        self, resource: Resource, namespace: str | None, name: str, version: str, patch: Mapping[str, Any]
    ) -> Object:
        """Apply a merge patch to an object's status. Raises errors.Conflict if the object's resourceVersion
        is not `version`.
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
        """Apply the fields in `body` by server-side apply. The operator then owns these fields.

        Without `force`, raises errors.Conflict if another manager owns one of the fields with a different
        value.
        """
        ...

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict the pod with this uid. Raises errors.TooManyRequests if a PodDisruptionBudget forbids the
        eviction.
        """
        ...


async def ensure(gateway: ApiGateway, resource: Resource, name: str) -> Object:
    """Return the cluster-scoped object with this name. Create an empty one if it does not exist."""
    try:
        return await gateway.create(resource, None, manifest(resource, name, {}))
    except errors.AlreadyExists:
        return await gateway.get(resource, None, name)
