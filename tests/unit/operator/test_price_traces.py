"""Tests of reading price traces from ConfigMaps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.spot_cluster import make_pool

from convoy_controllers.cached import CachedObject
from convoy_controllers.controllers import CONTROLLERS
from convoy_crds.spotpool import KIND
from convoy_operator import errors
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.price_traces import REREAD_SECONDS, PriceTraces

TRACE = {"trace": {"configMap": "prices"}}


class ConfigMaps:
    """A gateway to one ConfigMap that counts the reads."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | Exception = {"metadata": {}, "data": {"prices.csv": "0,0.3\n"}}
        self.reads: list[str] = []

    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any]:
        self.reads.append(f"{namespace}/{name}")
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Reading:
    """The traces of one pool, with a clock that a test sets."""

    def __init__(self) -> None:
        self.maps, self.now = ConfigMaps(), 0.0
        self.cache = ClusterCache(CONTROLLERS)
        gateway: Any = self.maps
        self.traces = PriceTraces(self.cache, gateway, "convoy", lambda: self.now)

    def pool(self, spot: dict[str, Any]) -> CachedObject:
        raw = make_pool(price={"onDemandPerHour": 1, "spot": spot}).to_dict()
        return CachedObject("", "pool", "pool-uid", 1, raw)

    async def resolve(self, **spot: Any) -> Any:
        await self.traces.resolve(self.pool(spot or TRACE))
        return self.traces.find("pool")


async def test_a_trace_is_read_once_in_a_while() -> None:
    it = Reading()
    assert it.traces.find("pool") is None
    assert (await it.resolve()).trace.steps == ((0.0, 0.3),)
    await it.resolve()
    assert it.maps.reads == ["convoy/prices"]
    it.now = REREAD_SECONDS
    await it.resolve()
    assert len(it.maps.reads) == 2
    await it.resolve(trace={"configMap": "others"})
    assert it.maps.reads[-1] == "convoy/others"


async def test_the_last_trace_counts_while_the_api_server_fails() -> None:
    it = Reading()
    it.maps.found = errors.ApiError(503, "busy")
    assert "503" in (await it.resolve()).error
    it.now += REREAD_SECONDS
    it.maps.found = {"metadata": {}, "data": {"prices.csv": "0,0.3\n"}}
    before = await it.resolve()
    it.now += REREAD_SECONDS
    it.maps.found = errors.ApiError(0, "no answer")
    assert await it.resolve() is before
    it.now += REREAD_SECONDS
    it.maps.found = errors.NotFound(404, "no")
    assert "does not exist" in (await it.resolve()).error


async def test_an_unchanged_trace_is_not_parsed_again() -> None:
    it = Reading()
    it.maps.found = {"metadata": {"resourceVersion": "5"}, "data": {"prices.csv": "0,0.3\n"}}
    before = await it.resolve()
    it.now += REREAD_SECONDS
    assert await it.resolve() is before
    it.now += REREAD_SECONDS
    it.maps.found = {"metadata": {"resourceVersion": "6"}, "data": {"prices.csv": "0,0.4\n"}}
    assert (await it.resolve()).trace.steps == ((0.0, 0.4),)


async def test_a_pool_without_a_trace_has_none() -> None:
    it = Reading()
    await it.resolve()
    assert await it.resolve(perHour=1) is None


@pytest.mark.parametrize(
    ("annotation", "as_of"),
    [("1970-01-01T01:00:00Z", 3600.0), ("soon", None), ("1970-01-01T01:00:00", None), (None, None)],
)
async def test_the_annotation_says_when_the_prices_were_read(
    annotation: str | None, as_of: float | None
) -> None:
    it = Reading()
    marks = {"convoy.dev/price-as-of": annotation} if annotation else {}
    it.maps.found = {"metadata": {"annotations": marks}, "data": {"prices.csv": "0,0.3\n"}}
    assert (await it.resolve()).as_of == as_of


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (errors.NotFound(404, "no"), "does not exist"),
        (errors.Forbidden(403, "no"), "operator.priceConfigMaps"),
        ({"metadata": {}, "data": {"other.csv": ""}}, "no key 'prices.csv'"),
        ({"metadata": {}}, "no key 'prices.csv'"),
    ],
)
async def test_a_trace_that_cannot_be_read_says_why(found: Any, words: str) -> None:
    it = Reading()
    it.maps.found = found
    lookup = await it.resolve()
    assert words in lookup.error
    assert lookup.trace.steps == ()


async def test_a_deleted_pool_is_dropped() -> None:
    it = Reading()
    pool = it.pool(TRACE)
    it.cache.objects(KIND).upsert(pool)
    await it.traces.resolve(pool)
    it.cache.objects(KIND).remove(pool)
    assert it.traces.find("pool") is None
