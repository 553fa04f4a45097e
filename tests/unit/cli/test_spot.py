"""Tests of `convoy spot pools` and `convoy spot cost`."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controllers.spot_cluster import SpotCluster, make_pool
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.spot import cost, pools
from convoy_crds.spotpool import SpotPool


class Pools:
    """A collection of given SpotPools."""

    def __init__(self) -> None:
        self.found: list[SpotPool] = []

    def list(self) -> list[SpotPool]:
        return self.found

    def get(self, name: str) -> SpotPool:
        return next(one for one in self.found if one.metadata.name == name)


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch) -> Pools:
    found = Pools()
    for module in (pools, cost):
        monkeypatch.setattr(module, "connect", lambda *_: SimpleNamespace(spot_pools=found))
    return found


@pytest.fixture
def used(collection: Pools) -> SpotPool:
    """A pool with a noticed node, half of whose cost a namespace has used."""
    cluster = SpotCluster(pool=make_pool(budget={"maxSpend": 2}))
    cluster.claim(9)
    for name in "ab":
        cluster.add_node(name)
    cluster.add_pod("pod", "a")
    cluster.step()
    cluster.wait(3600, tick=900)
    cluster.notify("a", seconds=60)
    cluster.step()
    collection.found = [cluster.pool]
    return cluster.pool


def output(*words: str) -> str:
    result = CliRunner().invoke(app, ["spot", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_all_pools_are_listed(used: SpotPool) -> None:
    lines = output("pools").splitlines()
    assert lines[0].split()[:4] == ["NAME", "MODE", "READY", "NOTICED"]
    assert lines[1].split()[:4] == ["pool", "Spot", "1", "1"]


def test_a_pool_shows_notices_and_grants(used: SpotPool) -> None:
    text = output("pools", "pool")
    assert "spotpool/pool: new pods are placed on Spot capacity" in text
    assert "nodes: 1 ready, 1 noticed; 0 have left" in text
    assert "preemptions: 0, 0 with and 0 without a notice; 0 wrong notices" in text
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.split()[:6] == ["a", "Preemption", "Noticed", "01:01:00Z", "Fake", "0"]
    assert ["team", "job", "worker", "8", "Spot", "PoolFull"] in [line.split() for line in text.splitlines()]


def test_the_parts_of_the_cost_add_up(used: SpotPool) -> None:
    rows = [line.split() for line in output("cost").splitlines()]
    assert ["pool", "namespace", "team", "0.25", "50%", "-"] in rows
    assert ["pool", "unused", "0.25", "50%", "-"] in rows
    assert ["pool", "not", "observed", "0.00", "0%", "-"] in rows
    assert ["pool", "total", "0.50", "100%", "-"] in rows
    assert "spotpool/pool: 25% of spec.budget.maxSpend 2 is spent" in output("cost", "pool")


def test_the_cost_is_also_json(used: SpotPool) -> None:
    (found,) = json.loads(output("cost", "--format", "json"))
    assert found["pool"] == "pool"
    assert found["byNamespace"] == [{"namespace": "team", "spend": pytest.approx(0.25)}]


def test_the_cost_is_also_a_focus_export(used: SpotPool) -> None:
    used.status.cost.currency = "USD"
    head, *rows = csv.reader(output("cost", "--format", "focus").splitlines())
    assert {"BilledCost", "EffectiveCost", "ChargePeriodStart", "ChargePeriodEnd"} <= set(head)
    assert sum(float(row[head.index("BilledCost")]) for row in rows) == pytest.approx(0.5)


def test_a_focus_export_without_a_currency_says_what_to_set(used: SpotPool, collection: Pools) -> None:
    result = CliRunner().invoke(app, ["spot", "cost", "--format", "focus"])
    assert result.stderr == "BillingCurrency is empty: set spec.price.currency of SpotPool pool\n"
    used.status.cost.currency = "USD"
    result = CliRunner().invoke(app, ["spot", "cost", "--format", "focus"])
    assert result.stderr == ""
    collection.found = [make_pool()]
    assert CliRunner().invoke(app, ["spot", "cost", "--format", "focus"]).stderr == "", "no rows"


def test_a_rounding_error_is_no_negative_cost(used: SpotPool) -> None:
    used.status.cost.residual = -1e-12
    text = output("cost", "--format", "focus")
    assert ",Unobserved" in text and "-0.000000" not in text


@pytest.mark.parametrize("command", ["pools", "cost"])
def test_a_cluster_without_pools_says_so(collection: Pools, command: str) -> None:
    assert output(command) == "no SpotPools in the cluster\n"


def test_a_pool_without_an_operator_says_so(collection: Pools) -> None:
    fresh: Any = make_pool()
    collection.found = [fresh]
    assert "no operator has reconciled" in output("pools", "pool")
