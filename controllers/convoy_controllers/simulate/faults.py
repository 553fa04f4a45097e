"""What can be done to a simulated cluster from outside: by hardware, people and chance.

Whatever does not apply any more when it comes, such as the end of a rank that has ended, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.simulate.api import Node
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import FaultInjected
from convoy_controllers.simulate.workers import LIVE, SIGKILL, Worker


class Faults:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._machines = cluster.machines
        self._workers = cluster.workers

    # Ranks and pods

    def end_rank(self, job: str, rank: int, code: int = 0, signal: int = 0) -> None:
        """A rank of the job's newest incarnation ends."""
        worker = self._with_rank(job, rank)
        if worker is not None:
            self._record(f"rank {rank} of {job} ends with {f'signal {signal}' if signal else code}")
            self._workers.end_rank(worker.uid, rank, code or (128 + signal if signal else 0), signal=signal)

    def kill_rank(self, job: str, rank: int) -> None:
        """SIGKILL."""
        self.end_rank(job, rank, signal=SIGKILL)

    def hang_rank(self, job: str, rank: int) -> None:
        """A rank stands still for good."""
        worker = self._with_rank(job, rank)
        if worker is not None:
            self._record(f"rank {rank} of {job} hangs")
            self._cluster.training.hang(worker.uid)

    def delete_pod(self, name: str) -> None:
        """`kubectl delete pod`."""
        pod = self._api.pods.get(name)
        if pod is not None and self._api.up:
            self._record(f"pod {name} is deleted")
            self._api.delete_pod(name, pod.uid)

    def kill_container(self, name: str) -> None:
        """The kernel takes a whole container for its memory."""
        pod = self._api.pods.get(name)
        if pod is not None and pod.uid in self._workers.by_uid:
            self._record(f"the container of {name} runs out of memory")
            self._workers.kill(pod.uid, reason="OOMKilled")

    # Nodes

    def kill_node(self, name: str) -> None:
        """The power of a machine goes."""
        if self._machines[name].powered:
            self._record(f"node {name} loses power")
            self._workers.lose_node(name)
            self._machines.set(name, powered=False, booted=False, agent=False)

    def return_node(self, name: str) -> None:
        """The power is back; kubelet and agent follow once it has booted."""
        machine = self._machines[name]
        if not machine.powered:
            self._record(f"node {name} has power again")
            self._machines.set(name, powered=True)
            pause = self._cluster.kernel.about(self._cluster.latencies.boot)
            self._cluster.kernel.after(pause, lambda: self._booted(name))
        elif machine.reaches_control and name not in self._api.nodes and self._api.up:
            self._record(f"the kubelet of {name} registers its node again")
            self._api.put_node(Node(name, machine.capacity))
            self._cluster.hub.refresh(machine)

    def _booted(self, name: str) -> None:
        if self._machines[name].powered:
            self._machines.set(name, booted=True, agent=True)

    def cut_node(self, name: str, *, control_only: bool = False) -> None:
        """A node's network goes; with `control_only` only its way to the control plane."""
        self._record(f"node {name} is cut off" + (" from the control plane" if control_only else ""))
        self._machines.set(name, **{"control_cut" if control_only else "cut": True})

    def heal_node(self, name: str) -> None:
        """The network is back."""
        machine = self._machines[name]
        if machine.cut or machine.control_cut:
            self._record(f"the network of node {name} heals")
            self._machines.set(name, cut=False, control_cut=False)

    def cordon_node(self, name: str) -> None:
        """`kubectl cordon`."""
        self._record(f"node {name} is cordoned")
        self._api.set_node(name, cordoned=True)

    def uncordon_node(self, name: str) -> None:
        """`kubectl uncordon`."""
        self._record(f"node {name} is uncordoned")
        self._api.set_node(name, cordoned=False)

    def drain_node(self, name: str) -> None:
        """`kubectl drain`: cordons, then evicts."""
        if not self._api.up:
            return
        self._record(f"node {name} is drained")
        self._api.set_node(name, cordoned=True)
        for pod in self._api.pods_on(name):
            self._api.evict(pod.name)

    def delete_node(self, name: str) -> None:
        """`kubectl delete node`."""
        if name in self._api.nodes and self._api.up:
            self._record(f"Node object {name} is deleted")
            self._cluster.kubelets.delete_node(name)

    # Agents

    def stop_agent(self, node: str, *, farewell: bool = False) -> None:
        """An agent's process ends, or leaves for an upgrade."""
        if self._machines[node].agent:
            self._record(f"the agent of {node} " + ("says goodbye" if farewell else "crashes"))
            self._machines.set(node, farewell=farewell, agent=False)

    def start_agent(self, node: str) -> None:
        """It is there again, with what its predecessor wrote down."""
        if self._machines[node].up and not self._machines[node].agent:
            self._record(f"the agent of {node} is there again")
            self._machines.set(node, agent=True)

    # The control plane

    def crash_operator(self, effects: int = 0) -> None:
        """The leader dies, at once or between two effects of a plan; another follows."""
        self._record("the operator crashes" + (f" before its effect number {effects}" if effects else ""))
        self._cluster.operator.crash(effects)

    def stop_api(self) -> None:
        """The API server answers nobody; who connects is refused."""
        self._record("the API server goes down")
        self._api.up = False

    def start_api(self) -> None:
        """It answers again."""
        if not self._api.up:
            self._record("the API server is up again")
            self._api.up = True
            self._cluster.kubelets.resync()
            self._cluster.scheduler.request_run()
            self._cluster.operator.api_changed()
            self._cluster.hub.monitor.poll()

    # People

    def edit(self, job: str, **spec: object) -> None:
        """A user changes fields of the spec, in JSON form."""
        if job in self._api.jobs and self._api.up:
            self._record(f"{job}: " + ", ".join(f"{key} = {value!r}" for key, value in spec.items()))
            self._api.edit_job(job, spec)

    def heal_all(self, but: str = "") -> None:
        """Nothing is broken any more, one node excepted, and nobody is held back."""
        self.start_api()
        for name in self._machines.by_name:
            if name == but:
                continue
            self.heal_node(name)
            self.return_node(name)
            self.start_agent(name)
            self.uncordon_node(name)

    # Help

    def ranks(self, job: str) -> Sequence[int]:
        """The ranks of the job's newest incarnation that live."""
        return sorted(
            rank.rank
            for worker in self._newest(job)
            for rank in self._workers.slots[worker.uid].ranks
            if rank.state in LIVE
        )

    def _newest(self, job: str) -> list[Worker]:
        slots = self._workers.slots
        known = [w for w in self._workers.by_uid.values() if w.job == job and w.live and w.uid in slots]
        newest = max((slots[worker.uid].incarnation for worker in known), default=0)
        return [worker for worker in known if slots[worker.uid].incarnation == newest]

    def _with_rank(self, job: str, rank: int) -> Worker | None:
        for worker in self._newest(job):
            if any(one.rank == rank and one.state in LIVE for one in self._workers.slots[worker.uid].ranks):
                return worker
        return None

    def _record(self, what: str) -> None:
        self._cluster.notify(FaultInjected(what))
