"""Sends the orders of health sweeps to agents, and records the agents' reports.

All state is only in memory. On each new stream an agent repeats the reports that the hub has not confirmed.
An agent ignores an order that it has already received.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.healthsweep.observed import (
    BANDWIDTH,
    INVENTORY,
    METRICS,
    MOST_ACCELERATORS,
    End,
    Measurement,
    NodeReport,
    Order,
    OrderState,
)
from convoy_crds.nodehealth import Provenance

log = structlog.get_logger(__name__)

Send = Callable[[str, wire.HubMessage], bool]
"""Function that sends a message to a node's agent and returns True if the agent is connected."""

AGAIN_SECONDS = 15.0
"""Seconds between resends of an unacknowledged order."""
_MAX_REPORTS = 64
"""Maximum number of recorded reports of one node. Its agent keeps at most 16."""
_MAX_METRICS = 256
_MAX_SAMPLES = 512
_MAX_DIGESTS = 1024
_MAX_FACTS = 512
_WORDS = 512
_DIGEST = 128
_MAX_TOTAL = 20_000
"""Maximum number of samples of all metrics in one report together."""
_MAX_SECONDS = 2**31
_METRICS = {**METRICS, INVENTORY: ("", True), BANDWIDTH: ("MB/s", True)}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Matches a valid digest of an inventory, which must be a valid Kubernetes name."""
_STANDS = {
    wire.SweepReport.RUNNING: OrderState.RUNNING,
    wire.SweepReport.DONE: OrderState.DONE,
    wire.SweepReport.CANCELLED: OrderState.CANCELLED,
    wire.SweepReport.REFUSED: OrderState.REFUSED,
}
_ENDS = {
    wire.SweepMetric.MEASURED: End.MEASURED,
    wire.SweepMetric.NOT_AVAILABLE: End.NOT_AVAILABLE,
    wire.SweepMetric.FAILED: End.FAILED,
    wire.SweepMetric.TIMED_OUT: End.TIMED_OUT,
    wire.SweepMetric.HUNG: End.HUNG,
    wire.SweepMetric.CRASHED: End.CRASHED,
    wire.SweepMetric.OUT_OF_MEMORY: End.OUT_OF_MEMORY,
    wire.SweepMetric.GARBAGE: End.GARBAGE,
    wire.SweepMetric.NO_OUTPUT: End.NO_OUTPUT,
}


class Sweeps:
    """The sweep orders and reports of all nodes. All methods must be called from the event loop."""

    def __init__(
        self,
        send: Send,
        peer_address: Callable[[str], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._peer_address = peer_address
        self._clock = clock
        self._reports: dict[str, dict[str, NodeReport]] = defaultdict(dict)
        """The newest report of each node on each order, by node and then by order."""
        self._ordered: dict[tuple[str, str], float] = {}
        """Monotonic time in seconds when each unacknowledged order was sent, by node and order."""
        self.on_news: Callable[[], None] = lambda: None
        """Function to call when the state of an order changes."""

    def join(self, node: str) -> None:
        """Drop the reports of an agent that has connected on orders that have not ended. The agent may have
        restarted. It reports the current states of these orders at once.
        """
        known = self._reports[node]
        for name in [name for name, report in known.items() if not report.over]:
            del known[name]
        self._ordered = {key: at for key, at in self._ordered.items() if key[0] != node}
        self.on_news()

    def record_report(self, node: str, report: wire.SweepReport) -> None:
        """Record an agent's report on an order."""
        known, current = self._reports[node], _parse_report(report)
        if len(report.name) > _WORDS or (report.name not in known and len(known) >= _MAX_REPORTS):
            log.warning("agent reports too many sweep orders, the report is ignored", node=node)
            return
        before, known[report.name] = known.get(report.name), current
        if current.state is not OrderState.REFUSED:
            self._ordered.pop((node, report.name), None)
        if before is None or before.state is not current.state:
            log.info(
                "sweep order changed its state",
                node=node,
                order=report.name,
                state=current.state.value,
                message=current.message,
            )
            self.on_news()

    def report(self, node: str, order: str) -> NodeReport | None:
        """Return a node's newest report on an order; None if there is none."""
        return self._reports.get(node, {}).get(order)

    def all(self) -> Iterator[tuple[str, str, NodeReport]]:
        """Yield the node, the order and the report for every report."""
        for node, orders in list(self._reports.items()):
            yield from ((node, name, report) for name, report in list(orders.items()))

    def order(self, order: Order) -> None:
        """Send an order to its node's agent. Skip it if the agent has acknowledged it, or if it was sent
        less than AGAIN_SECONDS ago.
        """
        report, now, key = self.report(order.node, order.name), self._clock(), (order.node, order.name)
        if report is not None and report.state is not OrderState.REFUSED:
            return
        if now - self._ordered.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS and self._send(
            order.node, self._message(order)
        ):
            self._ordered[key] = now

    def cancel(self, node: str, order: str) -> None:
        """Tell a node's agent to cancel an order that is running."""
        report = self.report(node, order)
        if report is not None and report.state is OrderState.RUNNING:
            self._send(node, wire.HubMessage(sweep_cancel=wire.SweepCancel(name=order)))

    def drop_report(self, node: str, order: str) -> None:
        """Drop a report that is no longer needed, and confirm it to the agent."""
        if self._reports.get(node, {}).pop(order, None) is not None:
            self._send(node, wire.HubMessage(sweep_received=wire.SweepReceived(name=order)))
        self._ordered.pop((node, order), None)

    def drop_node(self, node: str) -> None:
        """Drop the orders and reports of a deleted node."""
        self._reports.pop(node, None)
        self._ordered = {key: at for key, at in self._ordered.items() if key[0] != node}

    def _message(self, order: Order) -> wire.HubMessage:
        message = wire.SweepOrder(
            name=order.name,
            tiers=order.tiers,
            probes=order.probes,
            deadline_seconds=min(order.seconds, _MAX_SECONDS),
        )
        if order.partner:
            role = wire.SweepPair.MEASURER if order.measures else wire.SweepPair.RESPONDER
            place = wire.NodeAddress(node=order.partner, peer_address=self._peer_address(order.partner))
            message.pair.CopyFrom(wire.SweepPair(role=role, partner=place))
        return wire.HubMessage(sweep_order=message)


def _parse_report(report: wire.SweepReport) -> NodeReport:
    known = report.provenance
    return NodeReport(
        state=_STANDS.get(report.state, OrderState.REFUSED),
        message=report.message[:_WORDS],
        metrics=_measurements(report),
        facts={name[:64]: value[:_WORDS] for name, value in list(report.inventory.items())[:_MAX_FACTS]},
        digest=report.inventory_digest if _NAME.fullmatch(report.inventory_digest) else "",
        provenance=Provenance(driver=known.driver[:128], kernel=known.kernel[:128], suite=known.agent[:64]),
    )


def _known(one: wire.SweepMetric) -> bool:
    """Return True if the hub accepts the metric and the accelerator index. An agent may report anything,
    and values of made-up metrics must not fill or corrupt the stored HardwareClass.
    """
    return one.metric in _METRICS and one.accelerator < MOST_ACCELERATORS


def _measurements(report: wire.SweepReport) -> tuple[Measurement, ...]:
    found, samples, digests = [], 0, 0
    for one in report.metrics[:_MAX_METRICS]:
        more, others = len(one.samples[:_MAX_SAMPLES]), len(one.digests)
        if _known(one) and samples + more <= _MAX_TOTAL and digests + others <= _MAX_DIGESTS:
            found.append(_measurement(one))
            samples, digests = samples + more, digests + others
    return tuple(found)


def _measurement(one: wire.SweepMetric) -> Measurement:
    unit, higher = _METRICS[one.metric]
    return Measurement(
        metric=one.metric,
        # Map an unknown outcome, which an agent of another version may report, to FAILED.
        end=_ENDS.get(one.outcome, End.FAILED),
        accelerator=one.accelerator if one.HasField("accelerator") else None,
        unit=unit,
        higher_is_better=higher,
        samples=tuple(one.samples[:_MAX_SAMPLES]),
        digests=tuple(digest[:_DIGEST] for digest in one.digests),
        message=one.message[:_WORDS],
    )
