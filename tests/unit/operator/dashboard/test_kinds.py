"""Tests that the dashboard watches every registered kind, including a kind that exists only in tests."""

from __future__ import annotations

from typing import Any

from tests.unit.crds import toyserver

from convoy_crds.kinds import KINDS
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core.objects import parser_of
from convoy_operator.dashboard.feed import Feed
from convoy_operator.metrics import Metrics

TOY = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "ToyServer",
    "metadata": {"namespace": "team", "name": "toy", "uid": "u", "resourceVersion": "1"},
    "spec": {"replicas": 3},
}


async def test_changes_of_a_toy_kind_notify_the_pages() -> None:
    feed = Feed()
    gateway: Any = None
    cache = DashboardCache(feed, (*KINDS, toyserver.KIND))
    reflectors = cache.reflectors(gateway, Metrics())
    assert set(reflectors) == {"pods", "nodes", "toyservers", *(kind.plural for kind in KINDS)}
    toys = cache.objects(toyserver.KIND)
    with feed.subscribe() as subscription:
        toys.upsert(parser_of(toyserver.ToyServer)(TOY))
        assert await subscription.wait(1) is not None
    (parsed,) = toys
    assert parsed.model is not None and parsed.model.spec.replicas == 3
