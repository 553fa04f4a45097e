"""The scheduler of a simulated cluster. Of the nodes with room it prefers those that the pod's node affinity
prefers, and of these the node with the fewest pods.

Pods of a gang are bound together: as many as the gang's PodGroup demands, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.node_room import NodeRoom, schedulable
from convoy_controllers.simulate.pod_groups import PodGroups
from convoy_controllers.views import PodView


class Scheduler:
    """Schedules pending pods after every change of pods or nodes."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._groups = PodGroups(api)
        self._scheduled = False
        self.open = True
        """False if every pod must stay pending, as in a full cluster."""
        api.listeners.append(self._changed)

    def _changed(self, kind: str, name: str) -> None:
        if kind != "jobs":
            self.request_run()

    def request_run(self) -> None:
        """Schedule all pending pods after the latency `schedule`."""
        if not self._scheduled:
            self._scheduled = True
            self._kernel.after(self._kernel.about(self._latencies.schedule), self._schedule)

    def _schedule(self) -> None:
        """Bind the pending pods that fit, those of the highest priority first."""
        self._scheduled = False
        if not self._api.up:
            return
        waiting = [pod for pod in self._api.pods.values() if _unscheduled(pod.node, pod.phase, pod.deleting)]
        if not waiting:
            return
        room = NodeRoom(self._api)
        tried: set[str] = set()
        for pod in sorted(waiting, key=lambda pod: -pod.priority):
            group = self._groups.name(pod)
            if not group:
                self._bind({pod.name: self._choose(pod, room)}, [pod])
            elif group not in tried:
                tried.add(group)
                self._schedule_gang(group, [one for one in waiting if self._groups.name(one) == group], room)

    def _schedule_gang(self, group: str, waiting: Sequence[PodView], room: NodeRoom) -> None:
        """Bind the waiting pods of a gang that fit, if its PodGroup then has its least number of pods.

        A scheduler ignores a gang whose PodGroup or pods are missing. Bound pods count as pods of the gang,
        also while they end.
        """
        least, bound = self._groups.least(group), self._groups.bound(group)
        if least is None or bound + len(waiting) < least:
            return
        places = {pod.name: self._choose(pod, room) for pod in waiting}
        placed = sum(node is not None for node in places.values())
        if bound + placed >= least:
            self._groups.report(group, placed=True)
            self._bind(places, waiting)
            return
        for pod in waiting:
            if (node := places[pod.name]) is not None:
                room.give_back(node, pod)
        self._groups.report(group, placed=False)
        self._bind(dict.fromkeys(places), waiting)

    def _choose(self, pod: PodView, room: NodeRoom) -> str | None:
        """Return the best node for a pod, and take its room; None if no node fits."""
        node = room.best(pod) if self.open else None
        if node is not None:
            room.add(node, pod)
        return node

    def _bind(self, places: Mapping[str, str | None], pods: Iterable[PodView]) -> None:
        """Write the nodes into the pods. Pods without a node become unschedulable."""
        for pod in pods:
            node = places[pod.name]
            why = self._unschedulable_message() if node is None else ""
            facts = {"unschedulable": why, "judged": True}
            self._api.set_pod(pod.name, pod.uid, **(facts if node is None else {**facts, "node": node}))

    def _unschedulable_message(self) -> str:
        nodes = self._api.nodes.values()
        closed = sum(not schedulable(node) for node in nodes)
        reasons = [f"{closed} node(s) did not match"] if closed else []
        if len(nodes) > closed:
            reasons.append(f"{len(nodes) - closed} Insufficient cpu")
        return f"0/{len(nodes)} nodes are available: {', '.join(reasons) or 'there are none'}."


def _unscheduled(node: str | None, phase: str, deleting: bool) -> bool:
    return node is None and phase == "Pending" and not deleting
