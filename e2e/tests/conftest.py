"""One real cluster with the chart installed, for all e2e tests.

`CONVOY_E2E_KEEP=1` leaves it up, so that the next run starts in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.install import bring_up

NAME = "e2e"
NODES = int(os.environ.get("CONVOY_E2E_NODES", "3"))
LEFT_OUT = pytest.StashKey[list[pytest.Item]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = []


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        item.config.stash[LEFT_OUT].append(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What was asked of the API server is looked at once everything has been asked."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")


@pytest.fixture
def ran(request: pytest.FixtureRequest) -> frozenset[str]:
    """The tests of this run, as `file::test`, the file from the checkout's root."""
    return frozenset(item.nodeid.partition("[")[0] for item in request.session.items)


@pytest.fixture
def more_than_slice(request: pytest.FixtureRequest) -> bool:
    """Whether this run has tests that are not of the slice."""
    return any(item.get_closest_marker("full") for item in request.session.items)


@pytest.fixture
def incomplete(request: pytest.FixtureRequest, made: bool) -> str:
    """Why this run does not show all that Convoy asks for; empty when it does."""
    left_out = request.config.stash[LEFT_OUT]
    files = {item.path for item in [*request.session.items, *left_out]}
    if set(Path(__file__).parent.glob("test_*.py")) - files or any(
        item.get_closest_marker("full") is None for item in left_out
    ):
        return "not all tests of the slice were asked for"
    if not made:
        return "the cluster was there before this run"
    return "a test has failed" if request.session.testsfailed else ""


@pytest.fixture(scope="session")
def made() -> bool:
    """Whether this run makes the cluster; asked before it does."""
    return not Cluster(NAME).exists


@pytest.fixture(scope="session")
def cluster(made: bool) -> Iterator[Cluster]:
    """Nodes with this checkout's images, operator and agents."""
    # A developer may bring images in some other way, while editing.
    build = not os.environ.get("CONVOY_E2E_SKIP_BUILD")
    try:
        yield bring_up(NAME, NODES, Progress(), build=build, audit=True)
    finally:
        if not os.environ.get("CONVOY_E2E_KEEP"):
            Cluster(NAME).down()


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> str:
    """A namespace that enforces the restricted pod security standard."""
    return restricted_namespace(cluster, "e2e-restricted")


@pytest.fixture(scope="session")
def early(cluster: Cluster) -> Iterator[Jobs]:
    """Jobs that several tests share, or that one test starts for another one to judge."""
    made = Jobs.of(cluster, restricted_namespace(cluster, "e2e-early"), single_threaded=True)
    made.delete_all()
    yield made
    made.start_deletion()


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Iterator[Jobs]:
    """The namespace's jobs; those a test leaves are deleted while the next one begins."""
    made = Jobs.of(cluster, namespace, single_threaded=True)
    yield made
    made.start_deletion()
