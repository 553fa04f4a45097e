"""The state of a simulated worker pod, as the pod's agent knows it. This module does no I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import slot_tokens

# No program listens on this port, so every fake launcher may report the same port.
_PORT = 29500
_TOTAL_STEPS = 10_000_000
_GRADIENTS = 2**28
# Standard deviation of step times between ranks on equal hardware, as a fraction of the step time.
_NOISE = 0.01


@dataclass(slots=True)
class FakePod:
    """The launcher and the ranks of one pod. The ranks run as soon as the pod has an assignment.

    The pod copies only the needed fields of an assignment: a thousand assignments that list a thousand
    members each would hold a million members in memory.
    """

    uid: str
    namespace: str
    name: str
    node: str
    job: str
    incarnation: int = 0
    port_incarnation: int = 0
    rank_offset: int = 0
    processes: int = 0
    world_size: int = 0
    coordinator: tuple[str, str] = ("", "")
    """Node and peer address of the agent of slot 0."""
    authority: str = ""
    """Id of the key that signed the slot token in the assignment."""
    interval: int = 0
    """Steps between two checkpoints in memory; a step takes one second. 0 if the job saves none."""
    member_nodes: set[str] = field(default_factory=set)
    """Nodes whose ranks take part in each of the job's steps."""
    began_ms: int = 0
    step: int = 0
    stepped_ms: int = 0
    ended: bool = False

    def pick_port(self, request: wire.PickPort) -> None:
        """Pick a port, as the launcher of slot 0 does."""
        self.port_incarnation = max(self.port_incarnation, request.incarnation)

    def assign(self, assignment: wire.Assignment, member_nodes: set[str], now: float) -> None:
        """Restart the ranks at step 0, unless the assignment's incarnation is not newer than the pod's."""
        if assignment.incarnation <= self.incarnation:
            return
        self.incarnation = assignment.incarnation
        self.interval = assignment.memory.interval_seconds if assignment.HasField("memory") else 0
        self.rank_offset, self.processes = assignment.rank_offset, assignment.processes
        self.world_size = assignment.world_size
        self.coordinator = (assignment.members[0].node, assignment.members[0].peer_address)
        self.authority = slot_tokens.signing_key_id(assignment.slot_token)
        self.member_nodes = member_nodes
        self.step = 0
        self.began_ms = int(now * 1000)

    def advance(self, now: float) -> None:
        """Advance every rank by one step."""
        self.step += 1
        self.stepped_ms = int(now * 1000)

    def report(self) -> wire.PodReport:
        """Return a complete report about the pod."""
        node, address = self.coordinator
        report = wire.PodReport(
            pod_uid=self.uid,
            launcher_connected=not self.ended,
            incarnation=self.incarnation,
            master_port=_PORT if self.port_incarnation else 0,
            port_incarnation=self.port_incarnation,
            peers=[wire.NodeAddress(node=node, peer_address=address)],
            authority=self.authority,
            interval_seconds=self.interval,
            committed=self._committed(),
        )
        for rank in range(self.rank_offset, self.rank_offset + self.processes):
            one = report.ranks.add(rank=rank, state=wire.RankReport.RUNNING, started_unix_ms=self.began_ms)
            if self.step:
                # A real agent too includes the time of the incarnation's first step.
                one.first_step_unix_ms = self.began_ms
                one.progress.step = self.step
                one.progress.total_steps = _TOTAL_STEPS
                one.progress.samples_per_second = 10.0
                one.progress.loss = round(1.0 / self.step, 6)
                one.progress.time_unix_ms = self.stepped_ms
        return report

    def telemetry(self) -> wire.PodTelemetry:
        """Return the times of the latest step by rank: about one second, nearly equal between ranks."""
        telemetry = wire.PodTelemetry(pod_uid=self.uid, incarnation=self.incarnation)
        for rank in range(self.rank_offset, self.rank_offset + self.processes):
            compute = random.gauss(0.8, 0.8 * _NOISE)
            window = telemetry.windows.add(
                rank=rank, first=self.step, last=self.step, wall=1.0, compute=compute, optimizer=0.05,
                data=0.01, wait=max(0.0, 0.94 - compute), tokens=4096,
            )  # fmt: skip
            if self.world_size > 1:
                members, seconds = f"0-{self.world_size - 1}", random.gauss(0.02, 0.02 * _NOISE)
                window.collectives.add(kind="dp", members=members, bytes=_GRADIENTS, count=1, seconds=seconds)
        return telemetry

    def _committed(self) -> list[wire.Committed]:
        """Return the latest checkpoint, once as committed on the pod's node and once on a peer."""
        kept = self.step - self.step % self.interval if self.interval else 0
        return [
            wire.Committed(
                incarnation=self.incarnation, step=kept, time_unix_ms=self.began_ms + 1000 * kept, tier=tier
            )
            for tier in ("local", "peer")
            if kept
        ]
