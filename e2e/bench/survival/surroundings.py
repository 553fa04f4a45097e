"""A platform's surroundings of jobs: alerts, a guard that acts, a viewer of the dashboard."""

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
from e2e.drive.dashboard_access import forwarded, reader
from e2e.drive.monitoring import shipped, watched
from e2e.drive.node_health import policy

_POLICY = "surroundings"
_LOOK_SECONDS, _AGAIN_SECONDS = 5.0, 10.0
_LOST = """
const popup = document.getElementById("popup");
return location.pathname === "/login" || !popup || popup.getAttribute("aria-hidden") === "false";
"""


@contextmanager
def everything_on(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Prometheus with what the chart ships, a GuardPolicy that acts, and a browser on the dashboard."""
    with (
        watched(cluster, shipped(cluster)),
        policy(cluster, _POLICY, {"mode": "Act"}),
        _viewer(cluster, namespace),
    ):
        yield


@contextmanager
def _viewer(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Somebody who keeps the overview open, and comes back whenever the way to it is lost."""
    over = threading.Event()

    def keep_open() -> None:
        while not over.is_set():
            try:
                with _page(cluster, token) as browser:
                    while not over.wait(_LOOK_SECONDS):
                        assert not browser.run(_LOST), "its page has no connection"
            except (AssertionError, ClusterError, OSError, WebDriverException) as error:
                cluster.progress.say(f"the dashboard is lost: {str(error).splitlines()[0][:100]}")
                over.wait(_AGAIN_SECONDS)

    with reader(cluster, namespace, "viewer", "view") as token:
        thread = threading.Thread(target=keep_open, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)


@contextmanager
def _page(cluster: Cluster, token: str) -> Iterator[Browser]:
    """The overview, logged in."""
    with tempfile.TemporaryDirectory(prefix="convoy-viewer-") as folder:
        browser = Browser(Path(folder))
        try:
            with forwarded(cluster, "convoy-dashboard", 80) as url:
                browser.open(url)
                browser.find("#token").send_keys(token)
                browser.find("button[type=submit]").click()
                yield browser
        finally:
            browser.driver.quit()
