"""Tests of the tutorials. Each test runs the commands of one tutorial from top to bottom without changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.docs.tutorial import FOLDER, blocks, run_page
from e2e.drive.experiments import Experiments
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.drive.shell import shell

NAMESPACE = "tutorials"
LONG = "own-script"
"""Name of the tutorial that takes too long for CI."""
ONE_PROCESSOR = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "one-processor"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]},
}
"""A LimitRange that gives each container one processor. Without it each would start one thread per
processor.
"""
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "index.md")


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a reader's shell in its own namespace. After the test, delete all experiments
    and jobs there.
    """
    namespace = restricted_namespace(cluster, NAMESPACE)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(ONE_PROCESSOR))
    yield shell(cluster, namespace, tmp_path)
    Experiments.of(cluster, namespace).delete_all()
    Jobs.of(cluster, namespace).delete_all()


@pytest.fixture
def folder(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for a page's files. After the test, delete the objects that these files created."""
    made = tmp_path / "folder"
    made.mkdir()
    yield made
    for path in made.glob("*.yaml"):
        cluster.kubectl("delete", "-n", NAMESPACE, "-f", str(path), "--ignore-not-found", deadline=120)
    for kind in ("nodehealths", "hardwareclasses"):
        cluster.kubectl("delete", kind, "--all")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name == LONG else ()) for name in PAGES],
)
def test_the_commands_of_a_tutorial_print_the_shown_output(
    name: str, folder: Path, environment: dict[str, str]
) -> None:
    page = FOLDER / f"{name}.md"
    assert any(one.is_output for one in blocks(page.read_text()))
    run_page(page, folder, environment)
