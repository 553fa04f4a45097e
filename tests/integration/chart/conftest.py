"""Renders the chart with helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster import binaries, versions
from e2e.cluster.progress import Progress

CHART = Path(__file__).parents[3] / "charts" / "convoy"
NAMESPACE = "convoy-system"

Bodies = list[dict[str, Any]]
Render = Callable[..., Bodies]


@pytest.fixture(scope="session")
def helm() -> Path:
    return binaries.ensure(Progress(quiet=True)) / "helm"


def render(
    helm: Path,
    *settings: str,
    apis: Iterable[str] = (),
    values: Mapping[str, Any] | None = None,
    chart: Path = CHART,
) -> Bodies:
    """Return the rendered objects. `apis` are additional API versions that the cluster has.

    Raises ValueError with helm's message if helm fails.
    """
    command = [str(helm), "template", "convoy", str(chart), f"--kube-version={versions.release().kubernetes}"]
    command += [f"--namespace={NAMESPACE}", "--values=-", *(f"--api-versions={api}" for api in apis)]
    done = subprocess.run(
        [*command, *(f"--set={setting}" for setting in settings)],
        input=yaml.safe_dump(dict(values or {})),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(done.stderr)
    return [body for body in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if body]


def one(bodies: Bodies, kind: str, name: str) -> dict[str, Any]:
    return next(body for body in bodies if body["kind"] == kind and body["metadata"]["name"] == name)


def of_kind(bodies: Bodies, kind: str) -> Bodies:
    return [body for body in bodies if body["kind"] == kind]
