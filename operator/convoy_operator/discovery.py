"""Discovery: which optional resources the API server serves.

A cluster may get an API at any time, with a CustomResourceDefinition or an upgrade, and may lose it again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable

import structlog

from convoy_controllers.resources import Resource
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway
from convoy_operator.limits import backoff

log = structlog.get_logger(__name__)

DISCOVERY_SECONDS = 30.0
"""Seconds between two reads of the API groups of all optional resources."""


class Discovery:
    """The optional resources that the API server serves."""

    def __init__(self, gateway: ApiGateway, resources: Iterable[Resource]) -> None:
        self._gateway = gateway
        self._groups: dict[tuple[str, str], set[Resource]] = defaultdict(set)
        for one in resources:
            self._groups[one.group, one.version].add(one)
        self._read: set[tuple[str, str]] = set()
        """The groups and versions that have been read at least once."""
        self._changed = asyncio.Event()
        self.served: frozenset[Resource] = frozenset()
        self.on_change: Callable[[], None] = lambda: None
        """Callback for a change of `served`."""

    async def first(self) -> None:
        """Read the API groups until each has been read once. Before that, an API that is served would look
        as if it were not.
        """
        attempt = 0
        while True:
            await self.refresh()
            if self._read >= self._groups.keys():
                return
            await asyncio.sleep(backoff(attempt, 0.5, 15.0))
            attempt += 1

    async def run(self) -> None:
        """Read the API groups again and again, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(DISCOVERY_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - jitter

    async def refresh(self) -> None:
        """Read the API groups once. A group whose request fails keeps its earlier result."""
        found: set[Resource] = set()
        for (group, version), resources in self._groups.items():
            try:
                names = await self._gateway.served(group, version)
            except errors.ApiError as fault:
                log.warning("reading an API group failed, will retry", group=group, error=str(fault))
                found |= resources & self.served
            else:
                self._read.add((group, version))
                found |= {one for one in resources if one.plural in names}
        if found != self.served:
            served = sorted(f"{one.plural}.{one.version}.{one.group}" for one in found)
            log.info("the served optional APIs have changed", served=served)
            self.served = frozenset(found)
            self._changed.set()
            self._changed = asyncio.Event()
            self.on_change()

    async def until(self, resource: Resource, *, served: bool) -> None:
        """Wait until the resource is served, or until it is not."""
        while (resource in self.served) is not served:
            await self._changed.wait()
