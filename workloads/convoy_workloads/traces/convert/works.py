"""Works: what runs apart from the thread that launched it, on a thread of gloo or a stream of a device."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from convoy_workloads.traces.convert.kinds import Kind, is_communication_kernel, kind_named, kind_of_kernel
from convoy_workloads.traces.convert.requests import Requests
from convoy_workloads.traces.findings import Finding, Findings, Rule, short
from convoy_workloads.traces.torch_json.document import bounded
from convoy_workloads.traces.torch_json.host import Host, HostNode
from convoy_workloads.traces.torch_json.kineto import DEVICE, Event, Kineto
from convoy_workloads.traces.trace import Collective, NodeType

_LAUNCHER = "c10d::"
_RANK_PLACE, _TAG_PLACE = 2, 3
"""Places of the other rank and of the tag among the arguments of c10d's send and recv_."""
_MAX_NUMBER = 2**31
_BACKEND_WORK = re.compile(r"(?:gloo|mpi|ucc):(?P<kind>.+)")
"""Annotations of host backends, which last as long as the work. Those of NCCL cover the launch only."""


@dataclass(slots=True, eq=False)
class Work:
    """A communication, or a kernel of a device."""

    event: Event
    kind: Kind | None = None
    """The kind of communication; None for other kernels."""
    launch: Event | None = None
    """The operator that launched the work."""
    host: HostNode | None = None
    """The annotation of the work in the host trace."""
    launcher: HostNode | None = None
    """The operator that launched the work, in the host trace."""
    asked: Event | None = None
    """The operator that asked for a kernel of NCCL which does not show its collective. The sends and receives
    of a batch are works with the same event.
    """

    @property
    def key(self) -> tuple[int, int]:
        """Return the order of launches."""
        return (self.launch.start if self.launch else self.event.start, self.event.start)

    @property
    def communicates(self) -> bool:
        """Return True for a communication."""
        return self.kind is not None


def is_backend_work(event: Event) -> bool:
    """Return True for the annotation that gloo gives to a work."""
    match = _BACKEND_WORK.fullmatch(event.name) if event.category == "user_annotation" else None
    return match is not None and kind_named(match["kind"]) is not None


def find_works(kineto: Kineto, host: Host, found: Findings) -> list[Work]:
    """Return the works in the order of their launches, each with its launch where the traces show it."""
    works = list(_backend_works(kineto, host))
    works += _with_requests(
        list(_kernels(kineto, host)), kineto, host, [one.launch for one in works if one.launch]
    )
    for work in works:
        if work.launch is None and work.communicates:
            text = (
                f"{short(work.event.name)}: its launch is not in the trace, so its order is that of its start"
            )
            found.add(Finding(Rule.UNKNOWN_LAUNCH, text))
        if not work.communicates and is_communication_kernel(work.event.name):
            name = short(work.event.name)
            text = f"{name}: the traces do not show its collective, so it counts as a computation"
            found.add(Finding(Rule.UNKNOWN_COLLECTIVE, text))
    works.sort(key=lambda work: work.key)
    return works


def _backend_works(kineto: Kineto, host: Host) -> Iterator[Work]:
    """Yield gloo's works.

    Kineto names the record function of a work, which began when the work was launched. Its launch is the last
    operator of c10d before it on the same thread. Works without this number get the launches of their kind
    that are left, in the order of time.
    """
    nodes = {node.record: node for node in host.nodes if node.record}
    operators = {
        record: event
        for event in kineto.events
        if event.name.startswith(_LAUNCHER) and (record := event.number("Record function id"))
    }
    threads = defaultdict[int, list[int]](list)
    for record in sorted(record for record in operators if record in nodes):
        threads[nodes[record].thread].append(record)
    used = set[int]()
    apart: list[Work] = []
    for event in filter(is_backend_work, kineto.events):
        node = nodes.get(event.number("Record function id") or 0)
        work = Work(event, kind_named(event.name), host=node if node and node.name == event.name else None)
        before = threads[work.host.thread] if work.host else []
        place = bisect_left(before, work.host.record) - 1 if work.host else -1
        if place >= 0 and operators[before[place]].start <= event.start:
            used.add(before[place])
            _launched_by(work, operators[before[place]], nodes[before[place]])
        else:
            apart.append(work)
        yield work
    left = (event for record, event in operators.items() if record not in used)
    _join_in_order(apart, sorted(left, key=lambda event: event.start), nodes)


def _join_in_order(works: list[Work], launches: list[Event], nodes: dict[int, HostNode]) -> None:
    queues = defaultdict[Kind | None, deque[Event]](deque)
    for event in launches:
        queues[kind_named(event.name)].append(event)
    for work in works:
        queue = queues[work.kind]
        if queue and queue[0].start <= work.event.start:
            launch = queue.popleft()
            _launched_by(work, launch, nodes.get(launch.number("Record function id") or 0))


def _launched_by(work: Work, launch: Event, node: HostNode | None) -> None:
    """Note the launch of a work. Its kind is what the program asked for: gloo runs a reduce-scatter as an
    all-reduce.
    """
    work.launch, work.launcher = launch, node
    asked = kind_named(launch.name)
    work.kind = work.kind if asked is None else asked


def _kernels(kineto: Kineto, host: Host) -> Iterator[Work]:
    """Yield the kernels of devices. A launch has the same correlation number, or the same external id."""
    nodes = {node.record: node for node in host.nodes if node.record}
    by_correlation: dict[int, Event] = {}
    by_external: dict[int, Event] = {}
    for event in kineto.events:
        if event.category in DEVICE:
            continue
        if (correlation := event.number("correlation")) is not None:
            by_correlation[correlation] = event
        elif (external := event.number("External id")) is not None:
            by_external[external] = event
    for event in kineto.events:
        if event.category not in DEVICE:
            continue
        operator = by_external.get(event.number("External id") or -1)
        launch = by_correlation.get(event.number("correlation") or -1, operator)
        node = nodes.get(operator.number("Record function id") or 0) if operator else None
        late = launch is not None and launch.start > event.start
        yield Work(event, _kernel_kind(event), None if late else launch, launcher=node)


def _kernel_kind(event: Event) -> Kind | None:
    if not is_communication_kernel(event.name):
        return None
    named = event.args.get("Collective name")
    kind = kind_named(named) if isinstance(named, str) else None
    return kind_of_kernel(event.name) if kind is None else kind


def _with_requests(kernels: list[Work], kineto: Kineto, host: Host, taken: list[Event]) -> Iterator[Work]:
    """Yield the kernels of devices. Those of NCCL that do not show their collective get it from the operators
    that asked for them; a batch of sends and receives becomes one work for each.

    A kernel stays as it is if the other rank of a message is unknown.
    """
    ours = [one for one in kernels if is_communication_kernel(one.event.name)]
    unknown = {one for one in ours if one.kind is None and one.launch is not None}
    if not unknown:
        yield from kernels
        return
    nodes = {node.record: node for node in host.nodes if node.record}
    requests = Requests(kineto.events, [one.launch for one in ours if one.launch is not None], taken)
    for work in kernels:
        found = [
            Work(
                work.event, kind_named(event.name), work.launch, launcher=_node_of(event, nodes), asked=event
            )
            for event in (requests.of(work.launch) if work in unknown and work.launch is not None else ())
        ]
        known = found and all(
            isinstance(one.kind, Collective) or other_rank(one) is not None for one in found
        )
        yield from found if known else [work]


def _node_of(event: Event, nodes: dict[int, HostNode]) -> HostNode | None:
    node = nodes.get(event.number("Record function id") or 0)
    return node if node is not None and node.name == event.name else None


def other_rank(work: Work) -> int | None:
    """Return the rank, in its group, that a send goes to or a receive comes from; None if it is unknown."""
    named = bounded(
        work.event.args.get("Dst Rank" if work.kind is NodeType.SEND else "Src Rank"), _MAX_NUMBER
    )
    return argument(work, _RANK_PLACE) if named is None or work.asked is not None else named


def tag_of(work: Work) -> int:
    """Return the tag of a send or receive. NCCL has none, but the order of its messages."""
    on_device = work.event.category in DEVICE and work.asked is None
    return 0 if on_device else argument(work, _TAG_PLACE) or 0


def argument(work: Work, place: int) -> int | None:
    """Return a whole number among the arguments of the operator that asked for a work; None without it."""
    values = work.launcher.values() if work.launcher else []
    if place < len(values):
        return bounded(values[place], _MAX_NUMBER)
    return work.asked.concrete(place) if work.asked else None
