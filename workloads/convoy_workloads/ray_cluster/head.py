"""The head of the Ray cluster, beside the trainer, and the driver's connection to it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from convoy_workloads.ray_cluster import private, token
from convoy_workloads.ray_cluster.drain_reports import DrainWatch, Report
from convoy_workloads.ray_cluster.process import NodeFailed, NodeProcess
from convoy_workloads.ray_cluster.settings import MIN_STORE_BYTES, SINCE_LABEL, NodeSettings, environment

STARTS = 3
"""Tries to start the head."""


@dataclass(frozen=True, slots=True)
class WorkerNode:
    """A living Ray node that is not the head."""

    id: str
    address: str
    slots: int
    since: float | None = None
    """Unix time at which the node's pod started; None if the node does not tell."""


class Head:
    """The head's processes and the driver's connection. Use it as a context manager, once in a process."""

    def __init__(
        self,
        address: str,
        folder: Path,
        key: bytes,
        store_bytes: int = MIN_STORE_BYTES,
        base: Mapping[str, str] = os.environ,
        report_notice: Report | None = None,
    ) -> None:
        """Prepare the head. `address`: this pod's own address. `key`: the job's key.

        `report_notice`: a function to call for each node that another program drains, as `job.report_notice`.
        """
        private.check_version()
        if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
            raise RuntimeError(
                "ray was imported before its settings were made, so it would connect without a token: create "
                "the Head before the first `import ray`"
            )
        self.settings = NodeSettings(address, address, folder, token.write(folder, key), store_bytes, slots=0)
        self._process = NodeProcess(self.settings, base)
        self._watch: DrainWatch | None = None
        if report_notice is not None:
            self._watch = DrainWatch(private.ForeignDrains(self.settings.gcs).poll, report_notice)
        # The driver must have the same settings as the head. Ray reads them when it is imported.
        os.environ.update(environment(self.settings, {}))

    def __enter__(self) -> Head:
        import ray  # noqa: PLC0415 - heavy

        self._start()
        try:
            ray.init(
                address=self.settings.gcs,
                _node_ip_address=self.settings.address,
                _temp_dir=str(self.settings.folder),
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except BaseException:
            self._process.stop()
            raise
        if self._watch is not None:
            self._watch.start()
        return self

    def _start(self) -> None:
        """Start the head's processes; again if a busy machine lets Ray's own time-outs pass."""
        for left in reversed(range(STARTS)):
            try:
                self._process.start()
                return
            except NodeFailed:
                if not left:
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray  # noqa: PLC0415

        try:
            if self._watch is not None:
                self._watch.stop()
            ray.shutdown()
        finally:
            self._process.stop()

    def running(self) -> bool:
        """Return True if the head's processes run."""
        return self._process.running()

    def worker_nodes(self) -> list[WorkerNode]:
        """Return the living worker nodes, in the order of their addresses."""
        import ray  # noqa: PLC0415

        return sorted(
            (
                WorkerNode(
                    node["NodeID"],
                    node["NodeManagerAddress"],
                    int(node["Resources"].get("CPU", 0)),
                    _since(node.get("Labels", {})),
                )
                for node in ray.nodes()
                if node["Alive"] and node["NodeManagerAddress"] != self.settings.address
            ),
            key=lambda node: (node.address, node.id),
        )

    def own_node_id(self) -> str:
        """Return the id of the driver's own node."""
        import ray  # noqa: PLC0415

        return str(ray.get_runtime_context().get_node_id())

    def draining(self) -> Mapping[str, float]:
        """Return the deadline (Unix seconds) of each draining node, by node id."""
        return private.draining_nodes()

    def start_drain(self, node_id: str, deadline: float, why: str) -> bool:
        """Mark a node as draining, so that no actor is started on it. See `private.start_drain`."""
        return private.start_drain(self.settings.gcs, node_id, deadline, why)


def _since(labels: Mapping[str, str]) -> float | None:
    try:
        return float(labels[SINCE_LABEL])
    except (KeyError, ValueError):
        return None
