"""Reads the price traces of SpotPools from ConfigMaps in the operator's namespace.

The operator reads a ConfigMap by its name and never lists or watches ConfigMaps, so it needs no right to see
others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.resources import CONFIG_MAPS
from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.spot_prices import parse_trace
from convoy_crds.spotpool import KIND, SpotPool, TraceRef
from convoy_crds.terms import ANNOTATION_PRICE_AS_OF
from convoy_operator import errors
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import ApiGateway

log = structlog.get_logger(__name__)

REREAD_SECONDS = 30.0
"""Seconds for which a trace counts before it is read again."""


class PriceTraces:
    """The price traces of all SpotPools. All methods must be called from the event loop."""

    def __init__(
        self,
        cache: ClusterCache,
        gateway: ApiGateway,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespace` is the operator's namespace, which contains the ConfigMaps."""
        self._gateway = gateway
        self._namespace = namespace
        self._clock = clock
        self._known: dict[str, tuple[TraceRef, float, TraceLookup]] = {}
        """Reference, monotonic time of the read and result, by name of the pool."""
        cache.objects(KIND).listen(self._on_removed)

    async def resolve(self, parent: CachedObject) -> None:
        """Read the trace of a pool if the spec names another one, or if the last read is too old."""
        try:
            ref = SpotPool.model_validate(parent.raw).spec.price.spot.trace
        except ValidationError:
            ref = None
        if ref is None:
            self._known.pop(parent.name, None)
            return
        known = self._known.get(parent.name)
        if known is None or known[0] != ref or self._clock() - known[1] >= REREAD_SECONDS:
            self._known[parent.name] = ref, self._clock(), await self._read(ref)

    def find(self, pool: str) -> TraceLookup | None:
        """Return the trace of a pool; None if it has none, or before `resolve`."""
        known = self._known.get(pool)
        return known[2] if known is not None else None

    async def _read(self, ref: TraceRef) -> TraceLookup:
        try:
            raw = await self._gateway.get(CONFIG_MAPS, self._namespace, ref.config_map)
        except errors.NotFound:
            return TraceLookup(error="the ConfigMap does not exist; create it")
        except errors.Forbidden:
            why = "the operator may not read the ConfigMap; list it in the chart's operator.priceConfigMaps"
            return TraceLookup(error=why)
        text = (raw.get("data") or {}).get(ref.key)
        if not isinstance(text, str):
            return TraceLookup(error=f"the ConfigMap has no key {ref.key!r}; add it")
        found = parse_trace(text)
        if found.problem is not None:
            log.warning("price trace has a fault", config_map=ref.config_map, fault=str(found.problem))
        return TraceLookup(found, as_of=_as_of(raw))

    def _on_removed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if after is None and before is not None:
            self._known.pop(before.name, None)


def _as_of(raw: Any) -> float | None:
    text = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_PRICE_AS_OF, "")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None
