"""Fixtures with the dashboard's process, which has the permissions from the chart, and a real browser."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.dashboard.browser import Browser, eventually
from tests.ports import free_ports

from convoy_crds.kinds import KINDS

__all__ = ["Browser", "eventually"]

ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "/apis/convoy.dev/v1alpha1"


def chart_rules() -> list[dict[str, Any]]:
    """Return the rules of the dashboard's role in the chart. Logs are enabled."""
    text = (ROOT / "charts/convoy/templates/dashboard.yaml").read_text()
    kinds = "".join(f"\n      - {kind.plural}" for kind in KINDS)
    text = re.sub(r"\s*\{\{- range .*?\{\{- end \}\}", kinds, text, count=1, flags=re.DOTALL)
    for body in yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "", text)):
        if body and body["kind"] == "ClusterRole":
            return body["rules"]
    raise AssertionError("the chart has no ClusterRole of the dashboard")


@dataclass
class Cluster:
    """The API server, with methods that create accounts and objects for the tests."""

    plane: Any

    def account(self, name: str, rules: list[dict[str, Any]], namespace: str | None = None) -> str:
        """Create a service account with these rules, in one namespace or in all. Return a token of the
        account.
        """
        with contextlib.suppress(urllib.error.HTTPError):
            self.plane.request(
                "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}}
            )
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        scope, role, binding = ("", "ClusterRole", "ClusterRoleBinding")
        if namespace:
            scope, role, binding = f"/namespaces/{namespace}", "Role", "RoleBinding"
        group = "rbac.authorization.k8s.io"
        for kind, body in (
            (role, {"metadata": {"name": name}, "rules": rules}),
            (binding, {"metadata": {"name": name}, "subjects": [subject],
                       "roleRef": {"apiGroup": group, "kind": role, "name": name}}),
        ):  # fmt: skip
            with contextlib.suppress(urllib.error.HTTPError):
                self.plane.request("POST", f"{RBAC}{scope}/{kind.lower()}s", body)
        path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
        response = self.plane.request("POST", path, {"spec": {"expirationSeconds": 7200}})
        return str(response["status"]["token"])

    def make(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create a Convoy object together with its status."""
        namespace = body["metadata"].get("namespace")
        path = f"{GROUP}{f'/namespaces/{namespace}' if namespace else ''}/{kind}"
        made = self.plane.request("POST", path, {"apiVersion": "convoy.dev/v1alpha1", **body})
        if "status" in body:
            made = self.status(kind, body["metadata"]["name"], body["status"], namespace)
        return made

    def status(
        self, kind: str, name: str, status: dict[str, Any], namespace: str | None = None
    ) -> dict[str, Any]:
        """Patch the status of an object."""
        path = f"{GROUP}{f'/namespaces/{namespace}' if namespace else ''}/{kind}/{name}/status"
        return self.plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")

    def clear(self) -> None:
        """Delete all Convoy objects, nodes and pods."""
        for kind in KINDS:
            for item in self.plane.request("GET", f"{GROUP}/{kind.plural}")["items"]:
                meta = item["metadata"]
                scope = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
                self.plane.request("DELETE", f"{GROUP}{scope}/{kind.plural}/{meta['name']}")
        for item in self.plane.request("GET", "/api/v1/pods")["items"]:
            meta = item["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
            self.plane.request("DELETE", path)
        for item in self.plane.request("GET", "/api/v1/nodes")["items"]:
            self.plane.request("DELETE", f"/api/v1/nodes/{item['metadata']['name']}")


@pytest.fixture(scope="session")
def cluster(control_plane: Any) -> Cluster:
    return Cluster(control_plane)


@pytest.fixture
def empty(cluster: Cluster) -> Cluster:
    cluster.clear()
    return cluster


@dataclass
class Process:
    """A running dashboard process."""

    port: int
    metrics_port: int
    probe_port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, port: int | None = None, host: str = "127.0.0.1") -> str:
        """Send a GET request and return the body of the response."""
        with urllib.request.urlopen(f"http://{host}:{port or self.port}{path}", timeout=10) as response:
            return response.read().decode()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@dataclass
class Starter:
    """Starts dashboards, and stops them when the test session ends."""

    cluster: Cluster
    folder: Path
    started: list[Process] = field(default_factory=list)

    def __call__(self, mode: str = "None", kubeconfig: Path | None = None, **settings: str) -> Process:
        """Start a dashboard and wait until it is ready."""
        found = self.launch(mode, kubeconfig, **settings)

        def ready() -> bool:
            # Call pytest.fail, because `eventually` retries after an AssertionError.
            if found.process.poll() is not None:
                pytest.fail(found.log.read_text()[-3000:])
            return found.get("/readyz", found.probe_port) == "ok\n"

        eventually(ready, 50, "the dashboard is ready")
        return found

    def launch(self, mode: str = "None", kubeconfig: Path | None = None, **settings: str) -> Process:
        """Start a dashboard. Do not wait until it is ready."""
        if kubeconfig is None:
            token = self.cluster.account("convoy-dashboard", chart_rules())
            kubeconfig = self.cluster.plane.kubeconfig(token)
        ports = free_ports(3)
        output = self.folder / f"dashboard-{ports[0]}.log"
        process = subprocess.Popen(
            [sys.executable, "-m", "convoy_operator.dashboard"],
            env={
                **os.environ,
                "KUBECONFIG": str(kubeconfig),
                "CONVOY_DASHBOARD_AUTH_MODE": mode,
                "CONVOY_DASHBOARD_BIND": "127.0.0.1",
                "CONVOY_DASHBOARD_PORT": str(ports[0]),
                "CONVOY_DASHBOARD_METRICS_PORT": str(ports[1]),
                "CONVOY_DASHBOARD_PROBE_PORT": str(ports[2]),
                "NICEGUI_STORAGE_PATH": str(self.folder / "nicegui"),
                **{f"CONVOY_DASHBOARD_{name.upper()}": value for name, value in settings.items()},
            },
            cwd=self.folder,
            stdout=output.open("wb"),
            stderr=subprocess.STDOUT,
        )
        found = Process(*ports, process, output)
        self.started.append(found)
        return found


@pytest.fixture(scope="session")
def starter(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    found = Starter(cluster, tmp_path_factory.mktemp("dashboard"))
    yield found
    for one in found.started:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture(scope="session")
def dashboard(starter: Starter) -> Process:
    """A dashboard without authentication."""
    return starter()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not shutil.which("chromedriver"):
        pytest.fail("no chromedriver: make host")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser without cookies. It is as wide as a laptop screen and has a light colour scheme."""
    # Leave the page of the previous test, which may belong to a stopped dashboard.
    chromium.open("about:blank")
    chromium.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.size(1280)
    chromium.dark(False)
    chromium.console_errors()
    chromium.requested_urls()
    return chromium
