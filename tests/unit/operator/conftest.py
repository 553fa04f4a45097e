"""Fixtures: an event loop with a virtual clock, and an API server in memory."""

from __future__ import annotations

import asyncio
import copy
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pytest
import structlog

from convoy_controllers.resources import PODS, Resource
from convoy_operator import errors
from convoy_operator.gateway import Object, Page

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """A selector that never waits. The clock of its loop jumps to the end of each wait instead."""

    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self.jump(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock. Its time advances only while all tasks wait."""

    def __init__(self) -> None:
        self._virtual = 1000.0
        selector = _Selector()
        selector.jump = self._jump
        super().__init__(selector)

    def _jump(self, seconds: float) -> None:
        self._virtual += seconds

    def time(self) -> float:
        return self._virtual


@pytest.fixture
def virtual() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Return a function that runs a coroutine in virtual time until it ends."""

    def run(work: Coroutine[Any, Any, T]) -> T:
        loop = VirtualLoop()
        try:
            return loop.run_until_complete(work)
        finally:
            loop.close()

    return run


@pytest.fixture(autouse=True)
def quiet_logs() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False)


class FakeApi:
    """An ApiGateway in memory with names, uids, versions and preconditions. It records all calls, and it
    raises the errors that a test sets.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.fail: Callable[[str, str, str], Exception | None] = lambda verb, plural, name: None
        self._version = 100

    def put(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Object:
        """Store an object, as if another client had written it."""
        self._version += 1
        raw = copy.deepcopy(dict(body))
        metadata = raw.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata["resourceVersion"] = str(self._version)
        if namespace:
            metadata["namespace"] = namespace
        raw.setdefault("kind", resource.kind)
        self.objects[resource.plural, namespace, metadata["name"]] = raw
        return copy.deepcopy(raw)

    def _note(self, verb: str, resource: Resource, name: str, body: Mapping[str, Any] | None = None) -> None:
        self.calls.append((verb, resource.plural, name))
        self.bodies.append(copy.deepcopy(dict(body or {})))
        if (error := self.fail(verb, resource.plural, name)) is not None:
            raise error

    def _find(self, resource: Resource, namespace: str | None, name: str) -> Object:
        try:
            return self.objects[resource.plural, namespace or "", name]
        except KeyError:
            raise errors.NotFound(404, f"{resource.plural} {name} not found") from None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self._note("get", resource, name)
        return copy.deepcopy(self._find(resource, namespace, name))

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        self._note("list", resource, "")
        items = [
            copy.deepcopy(raw) for (plural, _, _), raw in self.objects.items() if plural == resource.plural
        ]
        return items, str(self._version)

    async def pages(self, resource: Resource, selector: str = "") -> AsyncIterator[Page]:
        """Yield pages with one object each."""
        items, version = await self.list(resource, selector)
        for item in items:
            yield [item], version

    async def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        raise NotImplementedError
        yield

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        name = body.get("metadata", {}).get("name", "")
        self._note("create", resource, name, body)
        if (resource.plural, namespace or "", name) in self.objects:
            raise errors.AlreadyExists(409, f"{name} exists", "AlreadyExists")
        return self.put(resource, body, namespace or "")

    async def dry_run(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        self._note("dry_run", resource, body.get("metadata", {}).get("name", ""), body)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
    ) -> Object:
        self._note("delete", resource, name)
        raw = self._find(resource, namespace, name)
        if raw["metadata"]["uid"] != uid:
            raise errors.Conflict(409, "uid differs")
        del self.objects[resource.plural, namespace or "", name]
        return {"kind": "Status"}

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        self._note("patch", resource, name, patch)
        return self.put(resource, merged(self._find(resource, namespace, name), patch), namespace or "")

    async def patch_status(
        self, resource: Resource, namespace: str | None, name: str, version: str, patch: Mapping[str, Any]
    ) -> Object:
        self._note("patch_status", resource, name, patch)
        raw = self._find(resource, namespace, name)
        if raw["metadata"]["resourceVersion"] != version:
            raise errors.Conflict(409, "the object has been modified")
        return self.put(resource, merged(raw, {"status": patch}), namespace or "")

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
        self._note("apply", resource, name, body)
        if subresource:
            raw = self._find(resource, namespace, name)
            status = dict(raw.get("status") or {})
            others = [
                one for one in status.get("conditions", []) if not one["type"].startswith("convoy.dev/")
            ]
            status["conditions"] = [*others, *body["status"]["conditions"]]
            return self.put(resource, {**raw, "status": status}, namespace or "")
        if not force and (resource.plural, namespace or "", name) in self.objects:
            raise errors.Conflict(409, "another manager owns a field")
        known = self.objects.get((resource.plural, namespace or "", name), {"metadata": {}})["metadata"]
        same = {"uid": known["uid"]} if "uid" in known else {}
        metadata = {**body["metadata"], **same}
        return self.put(resource, {**body, "kind": resource.kind, "metadata": metadata}, namespace or "")

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        self._note("evict", PODS, name)
        raw = self._find(PODS, namespace, name)
        if raw["metadata"]["uid"] != uid:
            raise errors.Conflict(409, "uid differs")
        self.put(PODS, merged(raw, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), namespace)

    def count(self, verb: str, plural: str = "") -> int:
        """Return the number of calls with this verb."""
        return sum(1 for call in self.calls if call[0] == verb and plural in ("", call[1]))


def merged(target: Any, patch: Any) -> Any:
    """Return the result of a merge patch as defined by RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()
