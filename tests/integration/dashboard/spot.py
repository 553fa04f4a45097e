"""An invented SpotPool with a noticed node, grants and costs."""

from __future__ import annotations

from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import condition
from tests.integration.dashboard.times import at

NAME = "harvest"


def create(cluster: Cluster) -> None:
    """Create the pool."""
    notice = {
        "node": "node-09",
        "nodeUid": "u-node-09",
        "bootId": "b-1",
        "kind": "Preemption",
        "state": "Noticed",
        "at": at(seconds=20),
        "deadline": at(seconds=-100),
        "sources": ["Taint", "AWS"],
        "repeats": 3,
    }
    cost = {
        "currency": "USD",
        "spot": 41.5,
        "onDemand": 3.5,
        "byNamespace": [{"namespace": "default", "spend": 27.0}, {"namespace": "research", "spend": 9.0}],
        "unused": 8.9,
        "residual": 0.1,
        "perHour": 2.16,
        "asOf": at(seconds=5),
    }
    grant = {"namespace": "default", "job": "llama-8b", "role": "rollout", "pods": 6, "mode": "Spot"}
    stale = "spec.price.asOf: the spot price was read 3.0 h ago, and spec.price.maxAge is 1h"
    cluster.make(
        "spotpools",
        {
            "kind": "SpotPool",
            "metadata": {"name": NAME},
            "spec": {
                "selector": {"matchLabels": {"convoy.dev/capacity": "spot"}},
                "maxNodes": 8,
                "allowedNamespaces": ["*"],
                "price": {"onDemandPerHour": 1, "spot": {"perHour": 0.27}},
                "budget": {"maxSpend": 100},
            },
            "status": {
                "mode": "Spot",
                "modeSince": at(hours=6),
                "price": {"perHour": 1.0, "known": False, "asOf": at(hours=3)},
                "nodes": {"ready": 7, "noticed": 1, "gone": 12},
                "notices": [notice],
                "preemptions": {"total": 12, "withNotice": 10, "withoutNotice": 2, "lastAt": at(minutes=9)},
                "noticeSeconds": {"p50": 118.0, "min": 14.0},
                "cost": cost,
                "grants": [{**grant, "reason": "PoolFull", "message": "its spec.maxNodes allows 8 in all"}],
                "conditions": [condition("PriceKnown", "False", "PriceStale", stale, hours=2)],
            },
        },
    )
