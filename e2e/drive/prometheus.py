"""Runs a real Prometheus on the machine's address, which all nodes can reach."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.run import tail


@dataclass(frozen=True)
class Alert:
    """An alert that fires, as Prometheus reports it."""

    name: str
    labels: Mapping[str, str]
    """All labels except the alert's name and severity."""
    text: str
    """Summary and description of the alert."""


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of a Prometheus server."""

    address: str

    def query(self, path: str, **arguments: str) -> Any:
        """Return the `data` of the response to an API request."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.address}/api/v1/{path}?{query}", timeout=20) as answer:
            return json.load(answer)["data"]

    def has(self, expression: str) -> bool:
        """Return True if an expression has a value at present. Raises HTTPError if Prometheus cannot parse
        it.
        """
        return bool(self.query("query", query=expression)["result"])

    def value(self, expression: str) -> float:
        """Return an expression's present value. Raises ValueError unless there is exactly one."""
        (sample,) = self.query("query", query=expression)["result"]
        return float(sample["value"][1])

    def targets(self) -> list[dict[str, Any]]:
        """Return the scraped targets with their fields `labels`, `health` and `lastError`."""
        found: list[dict[str, Any]] = self.query("targets", state="active")["activeTargets"]
        return found

    def firing(self) -> list[Alert]:
        """Return the firing alerts."""
        return [
            Alert(
                alert["labels"]["alertname"],
                {k: v for k, v in alert["labels"].items() if k not in ("alertname", "severity")},
                " ".join(alert["annotations"][part] for part in ("summary", "description")),
            )
            for alert in self.query("alerts")["alerts"]
            if alert["state"] == "firing"
        ]

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its fields `name`, `health` and `lastError`."""
        return [rule for group in self.query("rules")["groups"] for rule in group["rules"]]


@contextmanager
def prometheus(
    host: str, scrape_configs: list[dict[str, Any]], groups: list[dict[str, Any]], evaluation: str = "1s"
) -> Iterator[Prometheus]:
    """Run a Prometheus that evaluates its rules every `evaluation`. Its data is deleted after the block.

    Prometheus scrapes only its own metrics about rules. Its other metrics have names that targets use too.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-prometheus-") as name:
        folder = Path(name)
        with socket.socket() as sock:
            sock.bind((host, 0))
            address = f"{host}:{sock.getsockname()[1]}"
        itself = {
            "job_name": "prometheus",
            "scrape_interval": "1s",
            "static_configs": [{"targets": [address]}],
            "metric_relabel_configs": [
                {"action": "keep", "source_labels": ["__name__"], "regex": "prometheus_rule_.*"}
            ],
        }
        # Prometheus reads YAML, and JSON is valid YAML.
        (folder / "rules.yml").write_text(json.dumps({"groups": groups}))
        (folder / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"evaluation_interval": evaluation},
                    "rule_files": ["rules.yml"],
                    "scrape_configs": [itself, *scrape_configs],
                }
            )
        )
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
        ]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
            try:
                _wait_until_ready(f"http://{address}", server, folder / "log")
                yield Prometheus(f"http://{address}")
            finally:
                server.terminate()
                server.wait(20)


def _wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        if server.poll() is not None:
            raise AssertionError(f"prometheus ended: {tail(log)}")
        try:
            urllib.request.urlopen(f"{address}/-/ready", timeout=2).close()
        except OSError:
            if time.monotonic() > deadline:
                raise AssertionError(f"prometheus does not respond: {tail(log)}") from None
            time.sleep(0.1)
        else:
            return
