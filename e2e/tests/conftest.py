"""One real cluster with the chart installed, for all e2e tests.

`CONVOY_E2E_KEEP=1` leaves it up, so that the next run starts in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.install import bring_up
from e2e.tests.jobs import Jobs, restricted_namespace

NAME = "e2e"
NODES = int(os.environ.get("CONVOY_E2E_NODES", "3"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Nodes with this checkout's images, operator and agents."""
    # A developer may bring images in some other way, while editing.
    build = not os.environ.get("CONVOY_E2E_SKIP_BUILD")
    try:
        yield bring_up(NAME, NODES, Progress(), build=build)
    finally:
        if not os.environ.get("CONVOY_E2E_KEEP"):
            Cluster(NAME).down()


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> str:
    """A namespace that enforces the restricted pod security standard."""
    return restricted_namespace(cluster, "e2e-restricted")


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Iterator[Jobs]:
    """The namespace's jobs; those a test leaves are deleted."""
    made = Jobs.of(cluster, namespace)
    yield made
    made.delete_all()
