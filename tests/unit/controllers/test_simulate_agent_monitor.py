"""Tests of the simulated leader's view of agents, when nodes fail together with the leader or the agent."""

from __future__ import annotations

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_crds.trainingjob_status import Phase


def test_a_pod_on_a_node_that_failed_with_the_leader_is_moved() -> None:
    """The scheduler binds a pod to a node that failed together with the former leader. The pod must move.

    This node's agent has never connected to the new leader. During the grace period after its start, the
    new leader declares no agent absent. So the node keeps its agent-ready label, and the scheduler still
    uses it.
    """
    cluster = Cluster([Machine(f"node-{number}", capacity=1) for number in range(4)], engines=[make_engine()])
    faults = Faults(cluster)
    cluster.operator.lead()
    faults.cordon_node("node-2")
    faults.cordon_node("node-3")
    cluster.submit(make_job(roles=[{"name": "worker", "replicas": 2}]), Program())
    cluster.run(10.0)
    faults.kill_node("node-2")
    faults.crash_operator()
    while not cluster.operator.leading:
        cluster.run(0.5)
    cluster.run(1.5)
    assert not cluster.hub.monitor.unsettled(["node-0", "node-1", "node-3"])
    assert cluster.hub.monitor.unsettled(["node-2"])

    faults.uncordon_node("node-2")
    deleted = next(pod for pod in cluster.api.pods.values() if pod.node == "node-0")
    faults.cordon_node("node-0")
    faults.delete_pod(deleted.name)
    cluster.run(3.0)
    assert cluster.api.pods[deleted.name].node == "node-2"

    faults.uncordon_node("node-3")
    cluster.run(30.0)
    assert cluster.api.pods[deleted.name].node == "node-3"
    assert cluster.job("job").status.phase is Phase.RUNNING


def test_node_that_fails_with_the_leader_loses_its_label() -> None:
    """An agent that never connected to the new leader must count as absent after the grace period."""
    cluster = Cluster([Machine(f"node-{number}") for number in range(3)], engines=[make_engine()])
    faults = Faults(cluster)
    cluster.operator.lead()
    cluster.run(5.0)
    assert all(node.agent_ready for node in cluster.api.nodes.values())
    faults.kill_node("node-2")
    faults.crash_operator()
    cluster.run(25.0)
    assert [node.agent_ready for node in cluster.api.nodes.values()] == [True, True, False]


def test_ended_pod_in_deletion_is_removed_when_its_node_fails() -> None:
    """A pod in deletion waits for its stopped agent, which must unmount the volume. Then its node fails."""
    cluster = Cluster([Machine(f"node-{number}", capacity=1) for number in range(2)], engines=[make_engine()])
    faults = Faults(cluster)
    cluster.operator.lead()
    cluster.submit(make_job(roles=[{"name": "worker", "replicas": 2}]), Program())
    cluster.run(10.0)
    faults.stop_agent("node-0")
    faults.edit("job", suspend=True)
    cluster.run(5.0)
    (left,) = cluster.api.pods.values()
    assert (left.phase, left.deleting, left.node) == ("Failed", True, "node-0")
    assert cluster.job("job").status.phase is Phase.SUSPENDING

    faults.kill_node("node-0")
    cluster.run(120.0)
    assert not cluster.api.pods
    assert cluster.job("job").status.phase is Phase.SUSPENDED
