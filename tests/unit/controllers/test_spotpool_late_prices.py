"""Random edits of the prices while the spot price is unknown, and its late arrival."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.controllers.spot_cluster import START, SpotCluster, make_pool

from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.spot_prices import parse_trace

HOUR = 3600.0
SPOT = 0.25
RATES = st.sampled_from((0.1, 0.3, 1.0, 2.0, 40.0))


class Ledger:
    """A pool with two nodes, one of them in use, whose spot price is the same at all times but known late."""

    def __init__(self) -> None:
        self.cluster = SpotCluster()
        for name in "ab":
            self.cluster.add_node(name)
        self.cluster.claim(1)
        self.rate(1.0)
        self.cluster.step()
        self.cluster.add_pod("pod", "a")
        self.final = 0.0

    def rate(self, on_demand: float) -> None:
        """Edit the on-demand price."""
        spot = {"trace": {"configMap": "prices"}}
        edited = make_pool(price={"onDemandPerHour": on_demand, "spot": spot, "maxAge": "1s"})
        self.cluster.pool = edited.model_copy(update={"status": self.cluster.pool.status})

    def publish(self) -> None:
        """Make the price of all time until now known."""
        trace = parse_trace(f"{START.timestamp():.0f},{SPOT}")
        self.cluster.trace = TraceLookup(trace, as_of=self.cluster.now.timestamp())
        self.cluster.step()

    def check(self) -> None:
        """Assert that no money is negative, that the cost adds up, and that no final cost falls."""
        cost = self.cluster.status.cost
        parts = [cost.unused, cost.residual, *(one.spend for one in cost.by_namespace)]
        assert min(parts) >= -1e-9
        assert sum(parts) == pytest.approx(cost.spot)
        assert 0 <= cost.provisional <= cost.spot + 1e-9
        assert cost.spot - cost.provisional >= self.final - 1e-9
        self.final = cost.spot - cost.provisional


ACTIONS = st.one_of(
    st.tuples(st.just("rate"), RATES),
    st.tuples(st.just("wait"), st.integers(1, 9000)),
    st.tuples(st.just("publish"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(ACTIONS, max_size=7))
@example([("wait", 9000), ("rate", 2.0)])
def test_a_late_price_replaces_just_what_its_time_has_cost(actions: list[tuple[str, float | None]]) -> None:
    it = Ledger()
    for name, value in actions:
        match name, value:
            case "rate", float():
                it.rate(value)
                it.cluster.step()
            case "wait", int():
                it.cluster.wait(value, tick=300)
            case "publish", _:
                it.publish()
            case "restart", _:
                it.cluster.restart_operator()
        it.check()
    it.publish()
    it.check()
    seconds = (it.cluster.now - START).total_seconds()
    assert it.cluster.status.cost.spot == pytest.approx(2 * SPOT * seconds / HOUR)
    assert it.cluster.status.cost.provisional == 0
