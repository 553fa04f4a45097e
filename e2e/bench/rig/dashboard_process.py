"""Runs Convoy's dashboard as a separate process, with the rights that the chart gives it."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from pathlib import Path

from e2e.bench.rig.accounts import account_config
from e2e.bench.rig.api import Api
from e2e.bench.rig.plane import DASHBOARD_USER, Plane
from e2e.bench.rig.programs import ConvoyProcess
from e2e.cluster.run import tail, wait_for

METRICS_PORT = 8091
_PORT, _PROBE_PORT = 8090, 8092
_NAME = "dashboard"
_READY_SECONDS = 60.0


class DashboardProcess(ConvoyProcess):
    """One replica of the dashboard. It serves requests without authentication, because the simulated
    viewers do not log in.
    """

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.programs, _NAME)
        self._plane = plane

    @property
    def url(self) -> str:
        """Base URL of the dashboard's pages."""
        return f"http://{self._plane.host}:{_PORT}"

    async def start(self, api: Api) -> None:
        """Start the dashboard and wait until it is ready. Raise ClusterError if it is not ready in time."""
        plane = self._plane
        environment = {
            "KUBECONFIG": str(await account_config(plane, api, DASHBOARD_USER)),
            "NICEGUI_STORAGE_PATH": str(plane.cluster.folder / "nicegui"),
            "CONVOY_DASHBOARD_AUTH_MODE": "None",
            "CONVOY_DASHBOARD_BIND": plane.host,
            "CONVOY_DASHBOARD_PAGES_BIND": plane.host,
            "CONVOY_DASHBOARD_HOSTS": plane.host,
            "CONVOY_DASHBOARD_PORT": str(_PORT),
            "CONVOY_DASHBOARD_METRICS_PORT": str(METRICS_PORT),
            "CONVOY_DASHBOARD_PROBE_PORT": str(_PROBE_PORT),
            "CONVOY_DASHBOARD_LOG_LEVEL": "WARNING",
        }
        plane.programs.start(_NAME, [sys.executable, "-m", "convoy_operator.dashboard"], environment)
        log: Path = plane.programs.log(_NAME)
        await asyncio.to_thread(
            wait_for, self._ready, deadline=_READY_SECONDS, what=_NAME, why=lambda: tail(log)
        )

    def _ready(self) -> bool:
        self._plane.programs.check(_NAME)
        try:
            urllib.request.urlopen(f"http://{self._plane.host}:{_PROBE_PORT}/readyz", timeout=5).close()
        except (urllib.error.URLError, OSError):
            return False
        return True
