"""The operator's hub in a simulated cluster: sessions of agents, their reports, and views for plans."""

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
    """The hub of the present leader. A new leader starts without reports."""

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
        self._term = 0
        self.monitor = AgentMonitor(kernel, latencies, api, machines)
        workers.changed = self._pod_changed
        machines.changed.append(self.refresh)

    # Leadership

    def start_leading(self) -> None:
        """Start a leader's term."""
        self.monitor.start_leading()
        for machine in self._machines.by_name.values():
            self.refresh(machine)

    def stop_leading(self) -> None:
        """End a leader's term and drop all its reports."""
        self.monitor.leading = False
        self._term += 1
        for link in self.monitor.links.values():
            link.up = link.dialling = False

    # Sessions

    def refresh(self, machine: Machine) -> None:
        """Start or end the session of a machine's agent, according to the machine's state."""
        link = self.monitor.links[machine.name]
        reachable = self.monitor.leading and machine.reaches_control
        self.monitor.reach_changed(machine.name)
        if link.up and not (reachable and machine.agent):
            self._session_ended(machine)
        elif reachable and machine.agent and not link.up and not link.dialling:
            link.dialling = True
            term = self._term
            pause = self._kernel.about(self._latencies.dial)
            self._kernel.after(pause, lambda: self._dialled(machine, term))

    def _dialled(self, machine: Machine, term: int) -> None:
        link = self.monitor.links[machine.name]
        if term != self._term or not self.monitor.leading:
            return
        link.dialling = False
        if not (machine.reaches_control and machine.agent):
            return
        machine.farewell = False
        link.slots = {
            worker.uid: view
            for worker in self._workers.on(machine.name)
            if (view := self._report(worker.uid)) is not None
        }
        self.monitor.session_started(machine.name)
        self.monitor.wake(machine.name, 0.0)

    def _session_ended(self, machine: Machine) -> None:
        link = self.monitor.links[machine.name]
        before = self._kernel.now - self._latencies.progress
        link.slots = {uid: self._with_steps(uid, slot, before) for uid, slot in link.slots.items()}
        self.monitor.session_ended(machine.name, farewell=machine.farewell and not machine.agent)

    def _pod_changed(self, uid: str) -> None:
        """Send the report of a pod's agent to the hub, because the pod has changed."""
        slot = self._workers.slots.get(uid)
        node = (
            slot.node
            if slot
            else next((n for n, link in self.monitor.links.items() if uid in link.slots), None)
        )
        link = self.monitor.links.get(node or "")
        if node is None or link is None or not link.up:
            return
        term, report = self._term, self._report(uid)
        pause = self._kernel.about(self._latencies.report)
        link.channel.send(pause, lambda: self._receive_report(node, uid, report, term))

    def _receive_report(self, node: str, uid: str, report: SlotView | None, term: int) -> None:
        link = self.monitor.links[node]
        if term != self._term or not link.up:
            return
        if report is None:
            link.slots.pop(uid, None)
        else:
            link.slots[uid] = replace(report, stepped=self._last_step_seen(link.slots.get(uid), report))
        self.monitor.wake(node, 0.0 if report is not None else self._latencies.debounce)

    def _last_step_seen(self, before: SlotView | None, report: SlotView) -> float:
        """Return the Unix time in seconds at which the hub last saw a further step of the pod's ranks."""
        if before is None or before.incarnation != report.incarnation:
            return 0.0
        known = {rank.rank: rank.step or 0 for rank in before.ranks}
        moved = any((rank.step or 0) > known.get(rank.rank, 0) for rank in report.ranks)
        return self._kernel.now if moved else before.stepped

    def _report(self, uid: str) -> SlotView | None:
        return self._workers.view(uid, self._kernel.now)

    def send(self, command: JobCommand) -> None:
        """Send a command to an agent. Drop it if the agent is not connected, because the next plan repeats
        it.
        """
        link = self.monitor.links.get(command.node)
        if link is None or not link.up:
            return
        term = self._term

        def arrive() -> None:
            if term == self._term and link.up:
                self._workers.handle_command(command)

        self._kernel.after(self._kernel.about(self._latencies.command), arrive)

    # Views for plans

    def slots(self, pods: Iterable[PodView]) -> dict[str, SlotView]:
        """Return the agents' reports by pod uid."""
        found: dict[str, SlotView] = {}
        for pod in pods:
            link = self.monitor.links.get(pod.node or "")
            slot = link.slots.get(pod.uid) if link is not None else None
            if link is None or slot is None:
                continue
            if link.up:
                slot = self._with_steps(pod.uid, slot, self._kernel.now - self._latencies.progress)
            elif slot.launcher_connected and not self.monitor.present(pod.node or ""):
                slot = replace(slot, launcher_connected=False, agent_away=True)
            found[pod.uid] = slot
        return found

    def _with_steps(self, uid: str, slot: SlotView, moment: float) -> SlotView:
        """Return a report with the steps that the ranks had made by `moment`."""
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
        """Return the views of the nodes on which these pods are, by node name."""
        names = {pod.node for pod in pods if pod.node}
        return {name: self.monitor.node_view(name, self._kubelets.lease_seconds) for name in names}
