"""The operator's hub in a simulated cluster: agents' sessions, what they told, and what plans see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from convoy_controllers.commands import JobCommand
from convoy_controllers.simulate.agent_monitor import AgentMonitor
from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.kubelets import Kubelets
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine, Machines
from convoy_controllers.simulate.workers import Workers
from convoy_controllers.views import NodeView, PodView, SlotView


class Hub:
    """Of the present leader; a new one begins with nothing."""

    def __init__(
        self,
        kernel: Kernel,
        latencies: Latencies,
        api: Api,
        machines: Machines,
        workers: Workers,
        kubelets: Kubelets,
    ) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._machines = machines
        self._workers = workers
        self._kubelets = kubelets
        self._life = 0
        self.monitor = AgentMonitor(kernel, latencies, api, machines)
        workers.changed = self._changed
        machines.changed.append(self.refresh)

    # Leadership

    def begin(self) -> None:
        """A replica leads from now on."""
        self.monitor.lead()
        for machine in self._machines.by_name.values():
            self.refresh(machine)

    def end(self) -> None:
        """The leader is gone, and with it all it knew."""
        self.monitor.leading = False
        self._life += 1
        for link in self.monitor.links.values():
            link.up = link.dialling = False

    # Sessions

    def refresh(self, machine: Machine) -> None:
        """A machine's reach may have changed."""
        link = self.monitor.links[machine.name]
        there = self.monitor.leading and machine.reaches_control
        self.monitor.reach_changed(machine.name)
        if link.up and not (there and machine.agent):
            self._broke(machine)
        elif there and machine.agent and not link.up and not link.dialling:
            link.dialling = True
            life = self._life
            pause = self._kernel.about(self._latencies.dial)
            self._kernel.after(pause, lambda: self._dialled(machine, life))

    def _dialled(self, machine: Machine, life: int) -> None:
        link = self.monitor.links[machine.name]
        if life != self._life or not self.monitor.leading:
            return
        link.dialling = False
        if not (machine.reaches_control and machine.agent):
            return
        machine.farewell = False
        link.slots = {
            worker.uid: view
            for worker in self._workers.on(machine.name)
            if (view := self._told(worker.uid)) is not None
        }
        self.monitor.connected(machine.name)
        self.monitor.wake(machine.name, 0.0)

    def _broke(self, machine: Machine) -> None:
        link = self.monitor.links[machine.name]
        before = self._kernel.now - self._latencies.progress
        link.slots = {uid: self._stepped(uid, slot, before) for uid, slot in link.slots.items()}
        self.monitor.broke(machine.name, farewell=machine.farewell and not machine.agent)

    def _changed(self, uid: str) -> None:
        """An agent has news of a pod."""
        slot = self._workers.slots.get(uid)
        node = (
            slot.node
            if slot
            else next((n for n, link in self.monitor.links.items() if uid in link.slots), None)
        )
        link = self.monitor.links.get(node or "")
        if node is None or link is None or not link.up:
            return
        life, told = self._life, self._told(uid)
        pause = self._kernel.about(self._latencies.report)
        link.channel.send(pause, lambda: self._arrived(node, uid, told, life))

    def _arrived(self, node: str, uid: str, told: SlotView | None, life: int) -> None:
        link = self.monitor.links[node]
        if life != self._life or not link.up:
            return
        if told is None:
            link.slots.pop(uid, None)
        else:
            link.slots[uid] = replace(told, stepped=self._seen(link.slots.get(uid), told))
        self.monitor.wake(node, 0.0 if told is not None else self._latencies.debounce)

    def _seen(self, before: SlotView | None, told: SlotView) -> float:
        """When a step of its ranks was last seen to be over."""
        if before is None or before.incarnation != told.incarnation:
            return 0.0
        known = {rank.rank: rank.step or 0 for rank in before.ranks}
        moved = any((rank.step or 0) > known.get(rank.rank, 0) for rank in told.ranks)
        return self._kernel.now if moved else before.stepped

    def _told(self, uid: str) -> SlotView | None:
        return self._workers.view(uid, self._kernel.now)

    def send(self, command: JobCommand) -> None:
        """Tells an agent, if it has dialled; else the plan will say it again."""
        link = self.monitor.links.get(command.node)
        if link is None or not link.up:
            return
        life = self._life

        def arrives() -> None:
            if life == self._life and link.up:
                self._workers.obey(command)

        self._kernel.after(self._kernel.about(self._latencies.command), arrives)

    # What plans are shown

    def slots(self, pods: Iterable[PodView]) -> dict[str, SlotView]:
        """By pod uid, what agents have told."""
        found: dict[str, SlotView] = {}
        for pod in pods:
            link = self.monitor.links.get(pod.node or "")
            slot = link.slots.get(pod.uid) if link is not None else None
            if link is None or slot is None:
                continue
            if link.up:
                slot = self._stepped(pod.uid, slot, self._kernel.now - self._latencies.progress)
            elif slot.launcher_connected and not self.monitor.present(pod.node or ""):
                slot = replace(slot, launcher_connected=False, agent_away=True)
            found[pod.uid] = slot
        return found

    def _stepped(self, uid: str, slot: SlotView, moment: float) -> SlotView:
        """The report with the steps that were told since, as of a moment."""
        now = self._workers.view(uid, moment)
        if now is None or now.incarnation != slot.incarnation or not slot.ranks:
            return slot
        known = {rank.rank: rank for rank in slot.ranks}
        newer = {
            rank.rank: rank
            for rank in now.ranks
            if (old := known.get(rank.rank)) is not None
            and (rank.state, old.state) == ("RUNNING", "RUNNING")
            and rank.time > old.time
        }
        if not newer:
            return slot
        ranks = tuple(newer.get(rank.rank, rank) for rank in slot.ranks)
        latest = max((rank.time for rank in newer.values() if rank.step), default=0.0)
        seen = latest + self._latencies.progress if latest else slot.stepped
        return replace(slot, ranks=ranks, stepped=min(seen, self._kernel.now))

    def nodes(self, pods: Iterable[PodView]) -> dict[str, NodeView]:
        """By name, the nodes that these pods are on."""
        names = {pod.node for pod in pods if pod.node}
        return {name: self.monitor.node_view(name, self._kubelets.lease_seconds) for name in names}
