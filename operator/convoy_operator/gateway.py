"""What the operator asks of the API server: verbs on plain dicts, with typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from convoy_controllers.children import manifest
from convoy_controllers.resources import Resource
from convoy_operator import errors

Object = dict[str, Any]
"""One object, as JSON."""
Page = tuple[list[Object], str]
"""Objects of one kind, and the resourceVersion of the list that they are of."""


class ApiGateway(Protocol):
    """Every verb raises errors.ApiError."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object."""
        ...

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """The Events about one object, in no order."""
        ...

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """All objects of all namespaces, and the resourceVersion to watch from."""
        ...

    def pages(self, resource: Resource, selector: str = "") -> AsyncIterator[Page]:
        """What `list` answers with, page by page: for who need not hold all objects at once."""
        ...

    def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """(type, object) of every change after `version`, BOOKMARKs included, until the server ends it.

        Raises Gone when `version` is too old, Unavailable when the connection breaks or falls silent.
        """
        ...

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """Creates an object; AlreadyExists when the name is taken."""
        ...

    async def dry_run(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """Has the server check an object as it would be created, unknown fields included; stores nothing."""
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
        """Deletes the object of that uid and no other: Conflict when the name is another's now."""
        ...

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        """Merge patch of the object, its status excepted."""
        ...

    async def patch_status(
        self, resource: Resource, namespace: str | None, name: str, version: str, patch: Mapping[str, Any]
    ) -> Object:
        """Merge patch of `status` alone; Conflict unless the object still has resourceVersion `version`."""
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
        """Server-side apply of the fields in `body`, which become the operator's.

        Without `force`, Conflict if another manager owns one of the fields with another value.
        """
        ...

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Has the pod of that uid leave, if its PodDisruptionBudgets let it: else TooManyRequests."""
        ...


async def ensure(gateway: ApiGateway, resource: Resource, name: str) -> Object:
    """The object of that name, of a kind without namespaces; an empty one is made if there is none."""
    try:
        return await gateway.create(resource, None, manifest(resource, name, {}))
    except errors.AlreadyExists:
        return await gateway.get(resource, None, name)
