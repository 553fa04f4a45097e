"""Builds the parts that keep the states of replicas, and connects them to the pods of the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.registry import Pods
from convoy_agents.pods.state import PodState
from convoy_agents.states.copying import StateCopies
from convoy_agents.states.hosting import HostedStates
from convoy_agents.states.restoring import StateRestores
from convoy_agents.states.server import StateServer
from convoy_agents.tiercheck.copying import ShardCopier
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import PeerTransfer
from convoy_agents.tiercheck.rank_connection import RankConnection
from convoy_agents.tiercheck.rank_server import RankServer
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.wire.slot_tokens import signing_key_id as key_of
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Manifest

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class States:
    """The parts that keep the states of replicas on one node."""

    memory_manager: MemoryManager
    hosted: HostedStates
    copies: StateCopies
    server: StateServer

    async def advanced(self, pod: PodState) -> None:
        """Use the newest assignment of a pod: renew the slot tokens of the states that its replica may
        read, and send copies to its present hosts.
        """
        plan = pod.assignment.of_state() if pod.assignment else None
        if plan is None:
            return
        self.copies.start(pod.uid)
        for memory in self.hosted.memories(plan.job_uid):
            if not memory.slot_token or key_of(memory.slot_token) == key_of(plan.slot_token):
                continue
            try:
                await self.memory_manager.set_slot_token(memory, plan.slot_token)
            except OSError as error:
                log.warning("slot token of a state not renewed", uid=memory.job_uid, why=str(error))


def assemble(
    node: str, memory_manager: MemoryManager, pods: Pods, peers: PeerTransfer, troubles: TroubleReporter
) -> States:
    """Return the parts of a node's agent that keep the states of replicas."""

    def state_plan(pod_uid: str) -> Assignment | None:
        assignment = pods.assignment(pod_uid)
        return assignment.of_state() if assignment else None

    def record(plan: Assignment, tier: Tier, saved_ms: int) -> None:
        generation = Generation(plan.incarnation, saved_ms)
        pods.commit_decided(plan.pod_uid, tier, generation, Verdict.COMMITTED, plan.incarnation)

    def saved(plan: Assignment, saved_ms: int) -> None:
        record(plan, Tier.LOCAL, saved_ms)

    def copied(plan: Assignment, state: Manifest) -> None:
        record(plan, Tier.PEER, state.generation.step)

    hosted = HostedStates(memory_manager, lambda: pods)
    copier = ShardCopier(peers, troubles, state_plan)
    copies = StateCopies(memory_manager, copier, state_plan, troubles, copied)
    restores = StateRestores(node, memory_manager, hosted, peers)
    server = StateServer(memory_manager, restores, copies, troubles, saved)
    return States(memory_manager, hosted, copies, server)


async def serve(
    ranks: RankServer, states: StateServer, pod: Callable[[], PodState], connection: RankConnection
) -> None:
    """Serve the memory requests of a rank: those of a replica that may save its state, or those of a training
    rank.
    """
    assignment = pod().assignment
    replica = assignment is not None and assignment.replica_state is not None
    await (states if replica else ranks).serve(pod, connection)
