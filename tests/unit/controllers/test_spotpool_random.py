"""Random lives of a pool: repeated, wrong and late notices, nodes that vanish, operators that restart.

The cost must add up, each life of a node must end once, and no pod may be evicted without a reason.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.spot_cluster import SpotCluster, make_pool

from convoy_crds.spotpool_status import MAX_PAST_NOTICES, NoticeKind, NoticeSource

NAMES = ("a", "b", "c")
PRICE = 0.25

actions = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(NAMES)),
        st.tuples(st.just("vanish"), st.sampled_from(NAMES)),
        st.tuples(st.just("reboot"), st.sampled_from(NAMES)),
        st.tuples(st.just("silence"), st.sampled_from(NAMES)),
        st.tuples(st.just("wake"), st.sampled_from(NAMES)),
        st.tuples(st.just("pod"), st.sampled_from(NAMES)),
        st.tuples(
            st.just("notice"),
            st.sampled_from(NAMES),
            st.sampled_from(list(NoticeSource)),
            st.none() | st.integers(-100, 300),
            st.sampled_from(list(NoticeKind)),
        ),
        st.tuples(st.just("stale"), st.sampled_from(NAMES)),
        st.tuples(st.just("withdraw")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait"), st.integers(1, 400)),
    ),
    max_size=30,
)


class Life:
    """A cluster, and what its pool must have counted."""

    def __init__(self) -> None:
        self.cluster = SpotCluster(pool=make_pool())
        self.cluster.claim(3)
        self.cluster.step()
        self.started: dict[str, float] = {}
        self.node_seconds = 0.0
        self.ended = 0
        self.silenced = False

    def act(self, action: tuple[object, ...]) -> None:
        """Do one action, and let the operator react."""
        cluster, name = self.cluster, str(action[1]) if len(action) > 1 else ""
        there = name in cluster.nodes
        match action[0]:
            case "join" if not there:
                cluster.add_node(name)
            case "vanish" if there:
                self.ended += not any(
                    one.lost_at for one in cluster.status.internal.nodes if one.uid == cluster.nodes[name].uid
                )
                cluster.remove_node(name)
            case "reboot" if there and cluster.nodes[name].ready:
                self.ended += 1
                cluster.change(name, boot_id=cluster.nodes[name].boot_id + "+")
            case "silence" if there:
                self.silenced = True
                cluster.change(name, ready=False)
            case "wake" if there:
                cluster.change(name, ready=True)
            case "pod" if there:
                cluster.add_pod(f"pod-{name}", name)
            case "notice" if there:
                _, _, source, seconds, kind = action
                assert isinstance(source, NoticeSource)
                assert seconds is None or isinstance(seconds, int)
                cluster.notify(name, source, seconds, kind=kind)
            case "stale" if there:
                notice = cluster.notify(name)
                cluster.signals[-1] = type(notice)(notice.source, name, "an-earlier-uid", deadline=1.0)
            case "withdraw":
                cluster.signals.clear()
            case "restart":
                cluster.restart_operator()
            case "wait":
                assert isinstance(action[1], int)
                self.wait(action[1])
        cluster.step()
        self.check()

    def wait(self, seconds: int) -> None:
        """Let time pass, and count the seconds of all nodes."""
        self.node_seconds += seconds * len(self.cluster.nodes)
        self.cluster.wait(seconds, tick=20)

    def check(self) -> None:
        """Assert what must hold after each step."""
        cluster = self.cluster
        status, cost = cluster.status, cluster.status.cost
        parts = sum(one.spend for one in cost.by_namespace) + cost.unused + cost.residual
        assert parts == pytest.approx(cost.spot + cost.on_demand)
        if not self.silenced:  # a lost node costs nothing
            assert cost.spot == pytest.approx(self.node_seconds * PRICE / 3600)
            counts = status.preemptions
            assert counts.total + counts.removals == self.ended
            assert counts.total == counts.with_notice + counts.without_notice
        assert len(status.notices) <= len(cluster.nodes) + MAX_PAST_NOTICES
        keys = [(one.node_uid, one.boot_id) for one in status.notices if one.state.holds]
        assert len(keys) == len(set(keys))
        present = {one.uid for one in cluster.nodes.values()}
        assert {uid for uid, _ in keys} <= present
        assert sum(grant.pods for grant in status.grants) <= 8
        again = cluster.step()
        assert again.status is None


@settings(max_examples=25, deadline=None)
@given(actions)
def test_all_random_lives_add_up(found: list[tuple[object, ...]]) -> None:
    life = Life()
    for action in found:
        life.act(action)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_no_repetition_ever_postpones_the_deadline(offsets: list[int]) -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    earliest = None
    for offset in offsets:
        cluster.notify("a", seconds=offset)
        cluster.step()
        deadline = cluster.notice("a").deadline
        assert deadline is not None
        assert earliest is None or deadline <= earliest
        earliest = min(deadline, cluster.now + timedelta(seconds=offset))
        assert deadline == earliest
