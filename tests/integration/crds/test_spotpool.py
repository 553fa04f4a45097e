"""Tests of the rules about SpotPools at a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.crds.test_schema import STRICT, body, path, refusal

from convoy.cli.rules import broken_rules
from convoy_controllers.resources import SPOT_POOLS
from convoy_crds import spotpool, trainingjob
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import MAX_NODES
from convoy_crds.trainingjob import TrainingJob

POOLS = SPOT_POOLS.path()
FALLBACK = {"onDemandSelector": {"matchLabels": {"capacity": "on-demand"}}}
PRICE = {"onDemandPerHour": 1.0, "spot": {"perHour": 0.3}}
EARLY, LATE = (
    {"from": "2026-01-01T00:00:00Z", "perHour": 1},
    {"from": "2026-01-01T01:00:00+00:00", "perHour": 2},
)


def pool(name: str = "pool", **more: Any) -> dict[str, Any]:
    spec = {
        "selector": {"matchLabels": {"capacity": "spot"}},
        "maxNodes": 2,
        "allowedNamespaces": ["*"],
        "price": PRICE,
        **more,
    }
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "SpotPool",
        "metadata": {"name": name},
        "spec": spec,
    }


def priced(**spot: Any) -> dict[str, Any]:
    return pool(price={**PRICE, "spot": spot})


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (pool(selector={}), "spec.selector", "an empty selector selects every node"),
    (pool(allowedNamespaces=["A_B"]), "spec.allowedNamespaces", "must be the name of a namespace"),
    (priced(), "spec.price.spot", "exactly one of perHour, steps and trace"),
    (priced(perHour=1, trace={"configMap": "x"}), "spec.price.spot", "exactly one of perHour, steps"),
    (
        pool(budget={"maxSpend": 5, "perNamespace": {"maxSpend": 6}}),
        "spec.budget.perNamespace",
        "must not exceed maxSpend",
    ),
    (
        pool(fallback={"onDemandSelector": {}}),
        "spec.fallback.onDemandSelector",
        "must select by at least one label",
    ),
    (
        pool(fallback={**FALLBACK, "spotBelow": 3}, maxNodes=2),
        "spec.fallback.spotBelow",
        "must not exceed maxNodes",
    ),
    (
        pool(tolerations=[{"key": "convoy.dev/spot-notice"}]),
        "spec.tolerations[0].key",
        "must not tolerate taints of Convoy",
    ),
    (
        pool(tolerations=[{"key": "x", "value": "y"}]),
        "spec.tolerations[0].value",
        "value needs operator Equal",
    ),
    (pool("a.b"), "", "at most 63 characters and no dot"),
    (pool("a" * 64), "", "at most 63 characters and no dot"),
]
TYPES: list[tuple[dict[str, Any], str]] = [
    (priced(steps=[EARLY, EARLY]), "Duplicate value"),
    (priced(steps=[{"from": "soon", "perHour": 1}]), "spec.price.spot.steps[0].from"),
    (priced(steps=[{"from": "2026-01-01T00:00:00", "perHour": 1}]), "spec.price.spot.steps[0].from"),
    (pool(price={**PRICE, "asOf": "2026-01-01T00:00:00"}), "spec.price.asOf"),
    (priced(perHour=0), "spec.price.spot.perHour"),
    (pool(fallback={**FALLBACK, "spotBelow": 0}), "spec.fallback.spotBelow"),
    (
        pool(fallback={**FALLBACK, "maxInterruptionsPerHour": MAX_NODES + 1}),
        "spec.fallback.maxInterruptionsPerHour",
    ),
    (priced(perHour=-1), "spec.price.spot.perHour"),
    (priced(perHour="cheap"), "spec.price.spot.perHour"),
    (pool(price={"spot": {"perHour": 1}}), "spec.price.onDemandPerHour: Required value"),
    (pool(price={**PRICE, "maxAge": "-1h"}), "spec.price.maxAge"),
    (pool(maxNodes=-1), "spec.maxNodes"),
    (pool(budget={"maxSpend": 0}), "spec.budget.maxSpend"),
    (pool(notice={"metadata": "Http://evil"}), "spec.notice.metadata: Unsupported value"),
    (pool(notice={"endpoint": "x"}), "unknown field"),
    (pool(tolerations=[{"operator": "Exists"}]), "spec.tolerations[0].key: Required value"),
]
VALID: list[dict[str, Any]] = [
    pool(maxNodes=0, fallback=FALLBACK),
    pool("least"),
    pool(
        "all",
        tolerations=[{"key": "a"}, {"key": "b", "operator": "Equal", "value": "c", "effect": "NoSchedule"}],
        podsPerNode=4,
        price={**PRICE, "asOf": "2026-01-01T00:00:00Z", "maxAge": "9h", "currency": "EUR"},
        budget={"maxSpend": 6, "maxSpendPerHour": 1, "perNamespace": {"maxSpend": 6}},
        notice={"taints": False, "metadata": "AWS", "minSeconds": 0, "rebalance": "Cordon"},
        drain={"surrenderSeconds": 0},
        fallback={
            "onDemandSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
            "after": "1s",
            "minimumStay": "1h",
            "maxInterruptionsPerHour": MAX_NODES,
            "probe": True,
            "spotBelow": 2,
        },
    ),
    {**priced(steps=[LATE, EARLY]), "metadata": {"name": "steps"}},
    {**priced(trace={"configMap": "prices"}), "metadata": {"name": "trace"}},
]


@pytest.mark.parametrize("manifest", VALID, ids=lambda one: str(one["metadata"]["name"]))
def test_a_valid_pool_is_accepted(control_plane: Any, manifest: dict[str, Any]) -> None:
    made = control_plane.request("POST", POOLS + STRICT, manifest)
    control_plane.request("DELETE", f"{POOLS}/{made['metadata']['name']}")
    assert SpotPool.model_validate(made).spec == SpotPool.model_validate(manifest).spec


@pytest.mark.parametrize(("manifest", "where", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_a_wrong_pool_is_refused_with_its_field(
    control_plane: Any, manifest: dict[str, Any], where: str, words: str
) -> None:
    message = refusal(lambda: control_plane.request("POST", POOLS + STRICT, manifest))
    assert where in message
    assert words in message
    ours = broken_rules(spotpool.KIND, SpotPool.model_validate(manifest).to_dict())
    assert any(words in one for one in ours), "convoy validate must report the fault too"


@pytest.mark.parametrize(("manifest", "words"), TYPES, ids=[words for _, words in TYPES])
def test_a_wrong_value_is_refused(control_plane: Any, manifest: dict[str, Any], words: str) -> None:
    assert words in refusal(lambda: control_plane.request("POST", POOLS + STRICT, manifest))


def test_only_an_independent_or_elastic_role_may_name_a_pool(control_plane: Any) -> None:
    namespace = str(control_plane.namespace("spotted"))
    wrong = body(roles=[{"name": "worker", "replicas": 1, "spotPool": "pool"}])
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, wrong))
    assert "spec.roles[0].spotPool" in message
    assert "spotPool needs membership Independent, or minReplicas below replicas" in message
    assert broken_rules(trainingjob.KIND, TrainingJob.model_validate(wrong).to_dict())
    role = {"name": "rollout", "replicas": 1, "membership": "Independent", "spotPool": "pool"}
    elastic = {"name": "worker", "replicas": 3, "minReplicas": 1, "spotPool": "pool"}
    right = body(roles=[elastic, role])
    control_plane.request("POST", path(namespace) + STRICT, right)
