"""Runs what a production platform runs beside the jobs: alerts, a guard and a dashboard viewer."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.common.exceptions import WebDriverException
from tests.integration.dashboard.browser import Browser

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.drive.dashboard_access import port_forward, reader_token
from e2e.drive.monitoring import running_prometheus, shipped
from e2e.drive.node_health import policy

_POLICY = "surroundings"
_CHECK_SECONDS, _RETRY_SECONDS = 5.0, 10.0
_DISCONNECTED = """
const popup = document.getElementById("popup");
return location.pathname === "/login" || !popup || popup.getAttribute("aria-hidden") === "false";
"""


@contextmanager
def everything_on(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Run Prometheus with the chart's alerts, a GuardPolicy in mode Act, and a browser on the dashboard."""
    with (
        running_prometheus(cluster, shipped(cluster)),
        policy(cluster, _POLICY, {"mode": "Act"}),
        _viewer(cluster, namespace),
    ):
        yield


@contextmanager
def _viewer(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Keep the dashboard's overview open in a browser. Reopen it when the connection is lost."""
    stop = threading.Event()

    def keep_open() -> None:
        while not stop.is_set():
            try:
                with _page(cluster, token) as browser:
                    while not stop.wait(_CHECK_SECONDS):
                        assert not browser.run(_DISCONNECTED), "the page has lost its connection"
            except (AssertionError, ClusterError, OSError, WebDriverException) as error:
                cluster.progress.report(f"the viewer lost the dashboard: {str(error).splitlines()[0][:100]}")
                stop.wait(_RETRY_SECONDS)

    with reader_token(cluster, namespace, "viewer", "view") as token:
        thread = threading.Thread(target=keep_open, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


@contextmanager
def _page(cluster: Cluster, token: str) -> Iterator[Browser]:
    """Log in to the dashboard in a browser and open the overview."""
    with tempfile.TemporaryDirectory(prefix="convoy-viewer-") as folder:
        browser = Browser(Path(folder))
        try:
            with port_forward(cluster, "convoy-dashboard", 80) as url:
                browser.open(url)
                browser.find("#token").send_keys(token)
                browser.find("button[type=submit]").click()
                yield browser
        finally:
            browser.driver.quit()
