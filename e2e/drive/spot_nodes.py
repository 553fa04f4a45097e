"""Nodes of the local cluster that a provider gives and takes back, as a trace says.

A lost node crashes, and its Node object goes, as clouds do it. A returned node is another Node with the same
name. Some losses have a notice: a taint, or a file that the agent's fake metadata source reads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from convoy_workloads.spot.trace import SECONDS_PER_HOUR, SpotTrace
from e2e.cluster.cluster import Cluster
from e2e.cluster.run import wait_for

TAINT = "cloud.google.com/impending-node-termination"
NOTICE_FILE = "run/convoy/fake-notice.json"
JOIN_SECONDS = 60.0
"""Time within which the kubelet of a returned node must create its Node."""


class Act(StrEnum):
    """Act of the provider."""

    LOSE = "lose"
    GIVE = "give"
    NOTICE = "notice"


class Step(NamedTuple):
    """An act on some places of the trace."""

    at: float
    act: Act
    places: tuple[str, ...]
    lead: float
    """Seconds from a notice to the loss."""


class Provider(Protocol):
    """The acts on a node of the cluster."""

    def lose(self, node: str) -> None:
        """Take the node away."""

    def give(self, node: str) -> None:
        """Return the node."""

    def notice(self, node: str, deadline: float) -> None:
        """Announce that the node will be lost at the Unix time `deadline`."""


@dataclass
class Account:
    """Acts of the provider up to the present."""

    counts: dict[Act, int] = field(default_factory=lambda: dict.fromkeys(Act, 0))
    node_seconds: float = 0.0
    max_delay: float = 0.0
    """Maximum seconds by which an act came after its time in the trace."""

    @property
    def losses_per_node_hour(self) -> float | None:
        """Return the achieved rate of losses; None before any node was there."""
        return self.counts[Act.LOSE] * SECONDS_PER_HOUR / self.node_seconds if self.node_seconds else None


def steps(trace: SpotTrace) -> list[Step]:
    """Return the acts in the order of their times. Losses of a moment come before returns."""
    found = []
    for at, appeared, vanished, lead in trace.changes():
        if vanished and lead > 0:
            found.append(Step(at - lead, Act.NOTICE, vanished, lead))
        if vanished:
            found.append(Step(at, Act.LOSE, vanished, 0.0))
        if appeared:
            found.append(Step(at, Act.GIVE, appeared, 0.0))
    return sorted(found, key=lambda step: (step.at, step.act is Act.GIVE))


def follow(
    trace: SpotTrace,
    nodes: Mapping[str, str],
    provider: Provider,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.time,
) -> Iterator[Account]:
    """Act on the nodes until the trace ends. Yield the account after each act.

    All nodes run at the start. `nodes`: node of the cluster by place of the trace. `wait`: waits for so many
    seconds and returns True to end early.
    """
    account, start = Account(), clock()
    there, last = len(nodes), start
    first = {place for step in steps(trace) if step.at <= 0 and step.act is Act.GIVE for place in step.places}
    for place, node in nodes.items():
        if place not in first:
            provider.lose(node)  # This is no loss of the trace: the node was never given.
            there -= 1
    for at, act, places, lead in steps(trace):
        if at <= 0:
            continue
        if wait(max(0.0, start + at - clock())):
            break
        moment = clock()
        account.max_delay = max(account.max_delay, moment - start - at)
        account.node_seconds += there * (moment - last)
        last = moment
        for place in places:
            match act:
                case Act.NOTICE:
                    provider.notice(nodes[place], moment + lead)
                case Act.LOSE:
                    provider.lose(nodes[place])
                    there -= 1
                case Act.GIVE:
                    provider.give(nodes[place])
                    there += 1
        account.counts[act] += len(places)
        yield account
    else:
        wait(max(0.0, start + trace.seconds - clock()))
    account.node_seconds += there * (clock() - last)
    yield account


@contextmanager
def following(trace: SpotTrace, nodes: Sequence[str], provider: Provider) -> Iterator[Account]:
    """Follow a trace while the block runs. Afterwards, return every node. Raises AssertionError if the
    provider failed.
    """
    if trace.nodes > len(nodes):
        raise AssertionError(f"the trace has {trace.nodes} nodes, but only {len(nodes)} may be lost")
    places = {f"spot-{number}": node for number, node in enumerate(nodes[: trace.nodes])}
    shared, ended, failures = Account(), threading.Event(), list[Exception]()

    def act() -> None:
        try:
            for account in follow(trace, places, provider, ended.wait):
                shared.counts, shared.node_seconds = dict(account.counts), account.node_seconds
                shared.max_delay = account.max_delay
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=act, name="spot nodes", daemon=True)
    thread.start()
    try:
        yield shared
    finally:
        ended.set()
        thread.join(JOIN_SECONDS)
        for node in nodes:
            provider.give(node)
    if failures:
        raise AssertionError(f"spot nodes: {failures[0]}") from failures[0]


def label_node(cluster: Cluster, node: str, labels: Mapping[str, str]) -> None:
    """Set labels of a node."""
    words = [f"{key}={value}" for key, value in labels.items()]
    cluster.kubectl("label", "node", node, *words, "--overwrite")


class LocalProvider:
    """A provider of nodes of the local cluster."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str], *, taints: bool = True) -> None:
        """`labels`: labels of a returned Node. `taints`: notices are taints; otherwise they are files."""
        self._cluster = cluster
        self._labels = dict(labels)
        self._taints = taints

    def lose(self, node: str) -> None:
        """Crash a node and delete its Node object."""
        self._cluster.node(node).kill()
        self._cluster.kubectl("delete", "node", node, "--ignore-not-found", "--wait=false")

    def give(self, node: str) -> None:
        """Start a node that is down, and label its new Node. A node that runs loses its notice."""
        found = self._cluster.node(node)
        if found.alive:
            taints = self._cluster.get("nodes", node)["spec"].get("taints") or []
            if any(one["key"] == TAINT for one in taints):
                self._cluster.kubectl("taint", "node", node, f"{TAINT}-")
            self._file(node).unlink(missing_ok=True)
            return
        found.reboot()
        wait_for(lambda: self._exists(node), deadline=JOIN_SECONDS, what=f"Node {node} after its return")
        if self._labels:
            label_node(self._cluster, node, self._labels)
        self._file(node).unlink(missing_ok=True)

    def notice(self, node: str, deadline: float) -> None:
        """Announce the loss of a node, by a taint or by a file."""
        if self._taints:
            self._cluster.kubectl("taint", "node", node, f"{TAINT}=true:NoSchedule", "--overwrite")
            return
        moment = datetime.fromtimestamp(deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        file = self._file(node)
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"action": "terminate", "time": moment}))
        fresh.replace(file)

    def _exists(self, node: str) -> bool:
        return bool(self._cluster.kubectl("get", "node", node, "--ignore-not-found", "-o", "name").strip())

    def _file(self, node: str) -> Path:
        return Path(f"/proc/{self._cluster.node(node).pid}/root") / NOTICE_FILE
