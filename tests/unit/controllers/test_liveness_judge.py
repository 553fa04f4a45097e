"""Tests of the silence after which a hub believes that an agent is absent."""

from __future__ import annotations

import pytest

from convoy_controllers.liveness.judge import Liveness


def liveness(count: int = 1, at: float = 0.0) -> Liveness:
    alive = Liveness(silent_seconds=5, grace_seconds=10, farewell_seconds=15)
    alive.start_leading(at)
    for n in range(count):
        alive.record_sign(f"n{n}", at)
    return alive


class TestLiveness:
    def test_agent_is_connected_until_the_silence_timeout(self) -> None:
        alive = liveness()
        assert alive.connected("n0", 5.0)
        assert not alive.connected("n0", 5.1)
        alive.record_sign("n0", 6.0)
        assert alive.connected("n0", 10.0)

    def test_agent_without_a_heartbeat_is_not_connected(self) -> None:
        assert not liveness().connected("other", 0.0)
        assert liveness().silence("other", 0.0) == float("inf")

    def test_an_announced_absence_may_last_longer(self) -> None:
        alive = liveness()
        alive.record_farewell("n0", 0.0)
        assert alive.connected("n0", 14.0)
        assert not alive.connected("n0", 15.1)

    @pytest.mark.parametrize(
        ("agents", "silent", "alarm"),
        [
            (1, 1, False),
            (2, 2, False),
            (3, 3, True),
            (10, 3, False),
            (10, 4, True),
            (100, 30, False),
            (100, 31, True),
        ],
    )
    def test_simultaneous_silence_of_too_many_agents_is_not_believed(
        self, agents: int, silent: int, alarm: bool
    ) -> None:
        alive = liveness(agents)
        for n in range(silent, agents):
            alive.record_sign(f"n{n}", 20.0)
        assert alive.alarm(21.0) is alarm
        assert alive.connected("n0", 21.0) is alarm

    @pytest.mark.parametrize(
        ("others", "silent_others", "spot", "silent_spot", "alarm"),
        [
            (4, 0, 8, 8, False),  # a whole zone of spot nodes is gone
            (4, 1, 8, 8, False),  # and a node of the trainer as well
            (10, 3, 8, 8, False),
            (10, 4, 8, 8, True),
            (10, 4, 90, 0, True),  # present spot nodes do not hide the silence of the others
            (10, 3, 90, 0, False),
            (0, 0, 8, 7, False),
            (0, 0, 8, 8, True),  # no agent at all is present
            (2, 2, 8, 8, True),
            (2, 2, 8, 7, False),
            (1, 1, 1, 1, False),
        ],
    )
    def test_spot_nodes_count_towards_the_alarm_only_if_no_agent_is_present(
        self, others: int, silent_others: int, spot: int, silent_spot: int, alarm: bool
    ) -> None:
        alive = liveness(0)
        alive.set_spot_nodes(frozenset(f"spot{n}" for n in range(spot)))
        for name, count, silent in (("n", others, silent_others), ("spot", spot, silent_spot)):
            for n in range(count):
                alive.record_sign(f"{name}{n}", 0.0 if n < silent else 20.0)
        assert alive.alarm(21.0) is alarm
        silent_nodes = [f"n{n}" for n in range(silent_others)] + [f"spot{n}" for n in range(silent_spot)]
        assert {alive.connected(node, 21.0) for node in silent_nodes} <= {alarm}

    def test_a_node_that_leaves_its_pool_counts_again(self) -> None:
        alive = liveness(4)
        alive.record_sign("n3", 20.0)
        alive.set_spot_nodes(frozenset({"n0"}))
        assert not alive.alarm(21.0)
        alive.set_spot_nodes(frozenset())
        assert alive.alarm(21.0)

    def test_successive_silences_are_believed(self) -> None:
        alive = liveness(10)
        for n in range(10):
            alive.record_sign(f"n{n}", 100.0 + 20 * min(n, 4))
        assert not alive.alarm(181.0)
        assert not alive.connected("n0", 181.0)

    def test_agents_that_announced_their_absence_raise_no_alarm(self) -> None:
        alive = liveness(10)
        for n in range(10):
            (alive.record_farewell if n < 8 else alive.record_sign)(f"n{n}", 20.0 if n < 8 else 40.0)
        assert not alive.alarm(41.0)
        assert not alive.connected("n0", 41.0)

    def test_alarm_ends_and_removed_agents_do_not_count_in_the_next_alarm(self) -> None:
        alive = liveness(20)
        for second in range(10, 400, 2):
            for n in range(15, 20):
                alive.record_sign(f"n{n}", float(second))
            assert alive.alarm(second + 1.0) is (second < 300)
        for n in range(15, 19):
            alive.record_sign(f"n{n}", 410.0)
        assert not alive.alarm(411.0)
        assert alive.alarm(418.0), "all that were left, at once"
        assert alive.connected("n15", 418.0) and not alive.connected("n0", 418.0)

    def test_a_silence_counts_once_it_is_long_and_believed(self) -> None:
        alive = liveness()
        assert alive.silent("n0", 15.0) == 15.0
        alive.record_sign("n0", 15.0)
        assert (alive.silent("n0", 20.0), alive.silent("n0", 20.5)) == (0.0, 5.5)

    def test_no_silence_is_believed_before_a_new_leader_may_judge(self) -> None:
        alive = liveness(at=90.0)
        alive.start_leading(100.0)
        assert alive.silent("n0", 109.0) == 0.0
        assert alive.silent("n0", 110.0) == 20.0

    @pytest.mark.parametrize(
        ("dialled", "missing", "grace"), [(0, 1, 10), (2, 1, 5.5), (2, 2, 10), (8, 3, 5.5), (8, 4, 10)]
    )
    def test_leader_judges_early_if_almost_all_agents_have_connected(
        self, dialled: int, missing: int, grace: float
    ) -> None:
        alive = Liveness(5.0, 10.0, 15.0)
        alive.start_leading(100.0)
        alive.expect([f"missing{n}" for n in range(missing)], 100.0)
        for n in range(dialled):
            alive.record_sign(f"n{n}", 101.0)
        assert alive.grace(100.0) == grace

    def test_announced_absence_is_not_a_silence(self) -> None:
        alive = liveness()
        alive.record_farewell("n0", 20.0)
        assert alive.silent("n0", 35.0) == 0.0
        assert alive.silent("n0", 36.0) == 16.0

    def test_silent_time_is_zero_if_too_many_agents_are_silent(self) -> None:
        alive = liveness(10)
        for n in range(4, 10):
            alive.record_sign(f"n{n}", 20.0)
        assert alive.silent("n0", 21.0) == 0.0
        assert alive.quiet(5.0, 21.0).keys() == {"n0", "n1", "n2", "n3"}, "but they are known"

    def test_expected_agent_that_never_connects_is_silent_since_expected(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.start_leading(100.0)
        alive.expect({"lost"}, 101.0)
        alive.expect({"lost"}, 109.0)
        assert alive.silent("lost", 109.9) == 0.0
        assert alive.silent("lost", 112.0) == 11.0
        assert alive.silent("nobody's", 112.0) == 0.0
        assert not alive.known("lost") and not alive.connected("lost", 112.0)
        alive.record_sign("lost", 112.0)
        assert alive.silent("lost", 113.0) == 0.0
        alive.drop("lost")
        alive.expect({"lost"}, 200.0)
        assert alive.silent("lost", 204.0) == 0.0, "its silence begins anew with the node"

    def test_removed_node_removes_its_expected_agent(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.start_leading(0.0)
        alive.expect({"n"}, 0.0)
        alive.drop("n")
        assert alive.silent("n", 30.0) == 0.0

    def test_agents_that_are_no_longer_expected_are_dropped(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.start_leading(0.0)
        alive.expect({"n"}, 0.0)
        alive.expect((), 20.0)
        assert alive.silent("n", 30.0) == 0.0 and not alive.quiet(0.0, 30.0)

    def test_new_leader_without_connections_is_itself_cut_off(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.start_leading(0.0)
        alive.expect({"a", "b", "c"}, 0.0)
        assert alive.alarm(12.0)
        assert alive.silent("a", 12.0) == 0.0

    def test_operator_pause_does_not_count_as_silence(self) -> None:
        alive = liveness(2)
        alive.record_sign("n1", 20.0)
        alive.excuse(6.0, 20.5)
        assert alive.silent("n0", 20.5) == 14.5
        assert alive.quiet(-1.0, 20.5)["n1"] == 0.0, "and nobody is heard in the future"

    def test_grace_starts_with_the_leadership(self) -> None:
        alive = Liveness(5, 10, 15)
        assert alive.grace(1e9) == 10, "who does not lead has not begun to judge"
        alive.start_leading(100.0)
        assert (alive.grace(104.0), alive.grace(111.0)) == (6.0, 0.0)
