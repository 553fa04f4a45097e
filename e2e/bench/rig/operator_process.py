"""Runs Convoy's operator as a separate process, with the rights that the chart gives it and a real hub."""

from __future__ import annotations

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from e2e.bench.rig.accounts import account_config
from e2e.bench.rig.api import Api
from e2e.bench.rig.plane import OPERATOR_USER, Plane
from e2e.bench.rig.programs import ConvoyProcess
from e2e.cluster.errors import ClusterError
from e2e.cluster.run import tail
from e2e.install import NAMESPACE

SESSION_PORT, METRICS_PORT = 8471, 8080
_NAME = "operator"


class OperatorProcess(ConvoyProcess):
    """One replica of the operator, with the settings of the chart."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.programs, _NAME)
        self._plane = plane
        self._config = Path()
        self._started: tuple[float, Mapping[str, str] | None] = (0.0, None)
        """Settings of the last start."""

    @property
    def hub(self) -> str:
        """Host and port to which agents connect."""
        return f"{self._plane.host}:{SESSION_PORT}"

    async def prepare(self, api: Api) -> None:
        """Write a kubeconfig with the rights of the chart's service account."""
        self._config = await account_config(self._plane, api, OPERATOR_USER)

    def start(self, qps: float, more: Mapping[str, str] | None = None) -> None:
        """Start the operator with a limit of `qps` API requests per second; 0 for no limit. The permitted
        burst of requests is that of the chart. `more`: more environment variables.
        """
        self._started = qps, more
        plane = self._plane
        environment = {
            "KUBECONFIG": str(self._config),
            "CONVOY_NAMESPACE": NAMESPACE,
            "CONVOY_POD_NAME": _NAME,
            "CONVOY_POD_IP": plane.host,
            "CONVOY_HUB_BIND": plane.host,
            "CONVOY_HTTP_BIND": plane.host,
            "CONVOY_ENGINES_DIR": str(plane.engines),
            "CONVOY_QPS": str(qps),
            "CONVOY_LOG_LEVEL": "WARNING",
            **(more or {}),
        }
        plane.programs.start(_NAME, [sys.executable, "-m", "convoy_operator"], environment)

    def revive(self) -> bool:
        """Start the operator again if it has ended, as a kubelet does. Return True if it had ended."""
        ended = not self.alive
        if ended:
            self.start(*self._started)
        return ended

    async def ready(self, agents: int, deadline: float = 180.0) -> None:
        """Wait until the operator is the leader and at least `agents` agents are connected.

        Raise ClusterError after `deadline` seconds.
        """
        end = time.monotonic() + deadline
        while True:
            self._plane.programs.check(_NAME)
            found = await asyncio.to_thread(self.metrics)
            if found.get("convoy_leader") == 1 and found.get("convoy_agents_connected", 0) >= agents:
                return
            if time.monotonic() > end:
                log_end = tail(self._plane.programs.log(_NAME), 1000)
                raise ClusterError(f"the operator is not ready after {deadline:g} s: {found}\n{log_end}")
            await asyncio.sleep(0.2)

    def metrics(self) -> dict[str, float]:
        """Return those of the operator's metrics that have no labels. Empty if the operator does not
        answer.
        """
        try:
            with urllib.request.urlopen(
                f"http://{self._plane.host}:{METRICS_PORT}/metrics", timeout=5
            ) as page:
                lines = page.read().decode().splitlines()
        except (urllib.error.URLError, OSError):
            return {}
        pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
        return {name: float(value) for name, value in pairs}

    def kill(self) -> None:
        """Send SIGKILL to the operator."""
        self._plane.programs.kill(_NAME)
