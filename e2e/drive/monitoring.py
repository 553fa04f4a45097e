"""The chart's objects for Prometheus and Grafana, and a Prometheus that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from e2e.cluster.cluster import Cluster
from e2e.drive.prometheus import Prometheus, prometheus
from e2e.drive.scrape_configs import Body, scrapes, with_short_waits
from e2e.drive.target_discovery import discovery
from e2e.install import helm, rendered

SECONDS = 3
"""Seconds that an alert's expression must hold before it fires. In the chart's rules this time is minutes."""
SETTINGS = {
    "serviceMonitor": {"enabled": True, "interval": "2s"},
    "prometheusRule": {"enabled": True},
    "grafanaDashboards": {"enabled": True},
}


def shipped(cluster: Cluster) -> list[Body]:
    """Return the installed release's objects for Prometheus and Grafana."""
    release = yaml.safe_load(helm(cluster, "get", "values", "convoy", "--output=yaml")) or {}
    return monitored(cluster.binaries, release)


def monitored(binaries: Path, release: Body) -> list[Body]:
    """Return the objects for Prometheus and Grafana that the chart renders with the values `release`."""
    with TemporaryDirectory(prefix="convoy-values-") as folder:
        values = Path(folder) / "values.yaml"
        values.write_text(yaml.safe_dump({**release, "monitoring": SETTINGS}))
        return rendered(
            binaries,
            f"--values={values}",
            "--api-versions=monitoring.coreos.com/v1",
            "--show-only=templates/monitoring.yaml",
        )


@contextmanager
def running_prometheus(cluster: Cluster, bodies: list[Body]) -> Iterator[Prometheus]:
    """Run a Prometheus with these ServiceMonitors and rules. Yield a client of its API."""
    monitors = [body for body in bodies if body["kind"] == "ServiceMonitor"]
    with discovery(cluster) as targets:
        configs = [config for monitor in monitors for config in scrapes(monitor, targets)]
        with prometheus(cluster.addresses.host, configs, with_short_waits(alerts(bodies), SECONDS)) as found:
            yield found


def alerts(bodies: list[Body]) -> Body:
    """Return the only PrometheusRule among the objects."""
    (rule,) = [body for body in bodies if body["kind"] == "PrometheusRule"]
    return rule
